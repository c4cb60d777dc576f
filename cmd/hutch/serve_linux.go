package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/cmd/hutch/internal/signals"
	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/resident"
	"github.com/hutch-run/hutch/host/resident/handover"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/store"
)

type serveCmd struct {
	Detach bool          `xor:"what" help:"Return once it serves, and let it go on in the background."`
	Stop   bool          `xor:"what" help:"End it once the commands that it executes have ended."`
	Status bool          `xor:"what" help:"Show what it has done, and why it refused commands."`
	Idle   time.Duration `default:"30m" placeholder:"DURATION" help:"End when it was not used for so long (default 30m); 0 for never."`
	Ready  int           `hidden:"" help:"Descriptor that gets a line once it serves."`
}

// Help is the text below the synopsis.
func (*serveCmd) Help() string {
	return `Serves the commands hutch run and hutch exec of this user: they hand over to processes that are up, with
backends that are started. Output, exit code, record, signals and limits are the same, and nothing needs it: without
it, or where a command cannot be handed over, hutch executes the command itself, and --trace says why. A hutch that is
installed meanwhile is not served; the old one ends. docs/serve.md says more.

    hutch serve --detach
    hutch serve --status
    hutch serve --stop`
}

func (c *serveCmd) Run(ctx context.Context, u *ui) error {
	switch {
	case c.Stop:
		return resident.Stop()
	case c.Status:
		text, err := resident.Status()
		if errors.Is(err, handover.ErrAbsent) {
			u.note("%s", err)
			return exit(exitNo)
		}
		if err == nil {
			_, err = io.WriteString(u.out, text)
		}
		return err
	case c.Idle < 0:
		return errors.New("--idle: at least 0")
	case c.Detach:
		return c.detach()
	}
	ready := func() { u.note("serving; ^C ends it") }
	if c.Ready > 0 {
		ready = func() {
			f := os.NewFile(uintptr(c.Ready), "ready")
			_, _ = f.WriteString(readyLine)
			f.Close()
		}
	}
	err := resident.Serve(ctx, resident.Options{Version: version, Worker: []string{workArg}, Idle: c.Idle, Ready: ready,
		Log: u.stderr})
	if u.interrupted.Load() != 0 && err == nil {
		return exit(0)
	}
	return err
}

// readyLine is what a detached resident says first.
const readyLine = "ready\n"

// detach starts a resident that goes on, and waits until it serves.
func (c *serveCmd) detach() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	dir, err := resident.MakeDir()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("/proc/self/exe", "serve", "--idle", c.Idle.String(), "--ready", "3")
	cmd.Args[0] = os.Args[0]
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = "/", null, null, log, []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	w.Close()
	if text, _ := io.ReadAll(r); string(text) == readyLine {
		return nil
	}
	_ = cmd.Wait()
	words, _ := os.ReadFile(log.Name())
	return errors.New(strings.TrimPrefix(strings.TrimSpace(string(words)), "hutch: "))
}

// workArg is the argument of a process that executes commands for `hutch serve`. It is no command of the grammar,
// because such a process has no command line but those of its clients.
const workArg = "__work"

// mostAhead is how many sandboxes a worker makes before they are asked for.
const mostAhead = 2

// work executes commands for `hutch serve`.
func work() error {
	dir, err := store.NewRuntimeDir()
	if err != nil {
		return err
	}
	defer dir.Close()
	keeper := backend.NewKeeper(dir.Path())
	boxes := run.NewAhead(mostAhead)
	drop := func() {
		_ = boxes.Drop(context.Background()) // what stays is for gc
		keeper.Drop(context.Background())
	}
	defer drop()
	parser := build(quick["run"]())
	w := resident.Worker{
		Signals:   signals.C,
		Abandoned: func() { _ = dir.Close() },
		Umask:     drop,
		Run: func(c *resident.Command) (code int, again bool) {
			leave := func(code int) {
				_ = dir.Close()
				c.Exit(code)
				os.Exit(code)
			}
			code = host{how: "start, by hutch serve", keeper: keeper, boxes: boxes, run: parser, leave: leave}.execute(c.Args)
			// After a failure nothing is kept, so that whatever it left ends with this process.
			if again = code != exitFailure && !keeper.Refuses(); !again {
				keeper.Refuse()
				drop()
			}
			return code, again
		},
		After: func() bool {
			parser = build(quick["run"]())
			if boxes.Work(context.Background()) != nil {
				drop()
				return false
			}
			return true
		},
	}
	return w.Work()
}
