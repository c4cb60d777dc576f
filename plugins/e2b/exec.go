package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/e2b/internal/envd"
	"github.com/hutch-run/hutch/plugins/e2b/scripts"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/command"
	"github.com/hutch-run/hutch/sdk/supervise"
)

// stuckTime bounds the wait for the reader of a command's output once the command is to end.
const stuckTime = 20 * time.Second

// endTime bounds the wait for the word that a command which was killed has ended.
const endTime = 30 * time.Second

// Exec implements [sdk.Sandbox].
func (s *sandbox) Exec(ctx context.Context, c *sdk.Command) (*sdk.Exit, error) {
	if tooLong(c) {
		return &sdk.Exit{Cause: sdk.CauseExited, Code: 126, NotStarted: true,
			Evidence: "the arguments and variables are longer than Linux takes"}, nil
	}
	user := cmp.Or(c.User, s.user())
	if err := s.jobsOf(ctx, user); err != nil {
		return nil, err
	}
	j, err := newJob(c, user)
	if err != nil {
		return nil, err
	}
	if j.path, err = s.sendText(ctx, j.dir+"/", user, j.text); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, typed(err, "send the command")
	}
	d, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	io, err := openStreams(c)
	if err != nil {
		return nil, err
	}
	defer func() { _ = io.close() }()
	release, err := s.claim(j.mark)
	if err != nil {
		return nil, err
	}
	r := &running{s: s, d: d, c: c, io: io, job: j, closed: map[*os.File]bool{},
		begun: make(chan struct{}), ended: make(chan struct{})}
	exit, err := r.run(ctx)
	return exit, errors.Join(err, release(!r.left))
}

// commandPrefix begins the names of files in the sandbox's directory on the host that stand for commands in the
// machine.
const commandPrefix = "command-"

// claim records in a file that this process has a command in the machine, which does not end with this process. The
// file is locked before it gets its name and until release: one that is not locked is of a process that was killed.
// release removes it, unless the command may still run: then the next process that attaches ends the command.
func (s *sandbox) claim(mark string) (release func(ended bool) error, err error) {
	f, err := os.CreateTemp(s.dir, "new-"+commandPrefix)
	if err != nil {
		return nil, err
	}
	name := filepath.Join(s.dir, commandPrefix+mark)
	if err := errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_EX), os.Rename(f.Name(), name)); err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()), f.Close())
	}
	return func(ended bool) error {
		defer f.Close()
		if !ended {
			return nil
		}
		if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) { // else the sandbox was destroyed meanwhile
			return err
		}
		return nil
	}, nil
}

// endOrphans ends the commands of processes that were killed.
func (s *sandbox) endOrphans(ctx context.Context) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if mark, ok := strings.CutPrefix(e.Name(), commandPrefix); ok {
			if err := s.endOrphan(ctx, mark); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *sandbox) endOrphan(ctx context.Context, mark string) error {
	f, err := os.OpenFile(filepath.Join(s.dir, commandPrefix+mark), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has just ended
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil // its process lives
	}
	if err := s.sh(ctx, "end a command that was left", rootUser, scripts.End, nil, "KILL", mark, "-"); err != nil {
		return err
	}
	return os.Remove(f.Name())
}

// sendText sends a small file, and returns its path, which begins with prefix. It retries under another name each
// time: the daemon may still be writing what it was sent before.
func (s *sandbox) sendText(ctx context.Context, prefix, user, text string) (string, error) {
	for n := 1; ; n++ {
		d, err := s.connect(ctx)
		if err != nil {
			return "", err
		}
		to := prefix + rand.Text()
		if err = d.Upload(ctx, to, user, strings.NewReader(text)); err == nil {
			return to, nil
		}
		s.lost(err)
		defer s.drop(ctx, to)
		if n == 4 || ctx.Err() != nil || !transient(err) || s.backend.sleep(ctx, lookAgain[1]*time.Duration(n)) != nil {
			return "", err
		}
	}
}

// transient reports whether a transfer that failed may work when it is repeated: the connection broke, or the daemon or
// a proxy before it failed.
func transient(err error) bool {
	var e *envd.Error
	if errors.As(err, &e) {
		return !envd.Gone(err) && slices.Contains([]int{429, 500, 502, 503, 504}, e.Status)
	}
	var ours *sdk.Error
	return !errors.As(err, &ours)
}

// running is one command while it runs.
type running struct {
	s   *sandbox
	d   *envd.Client
	c   *sdk.Command
	io  *streams
	job *job

	begin  sync.Once
	begun  chan struct{} // closed when the command itself runs
	giveUp func()        // ends the wait for events
	ended  chan struct{} // closed when its end has been reported, or never will be

	pid    atomic.Uint32
	closed map[*os.File]bool // output streams without a reader; used by output only

	mu      sync.Mutex
	first   []byte // what came on stderr until the sign was whole
	signed  bool
	joined  bool   // the sign may never come
	refusal string // the job's own word for why the command does not run
	code    int    // and the code for that
	broken  error  // of the input

	left bool // the command may still run, although run has returned
}

// run starts the command and returns how it ended.
func (r *running) run(ctx context.Context) (*sdk.Exit, error) {
	// Events are received after ctx has ended, too: what the command printed until then belongs to it.
	events, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	r.giveUp = stop
	typing, endInput := context.WithCancel(context.WithoutCancel(ctx))
	defer endInput()
	var input sync.WaitGroup
	input.Go(func() { r.input(typing) })
	unwatch := command.Watch(ctx, r, r.c, r.resize)
	cmd := envd.Command{User: r.job.user, Path: "/bin/sh", Args: []string{r.job.path}, Dir: "/", Stdin: hasInput(r.c)}
	if r.c.TTY != nil {
		cmd.PTY = &envd.Size{Rows: r.c.TTY.Rows, Cols: r.c.TTY.Cols}
	}
	began := time.Now()
	end, err := r.d.Run(events, cmd, envd.Events{Started: r.started, Joined: r.rejoined, Output: r.output})
	wall := time.Since(began)
	close(r.ended)
	unwatch()
	_ = r.io.stdin.SetReadDeadline(time.Now()) // a reader that still waits for input
	endInput()
	input.Wait()
	var lost *envd.LostError
	mayRun := errors.As(err, &lost) && !envd.Gone(err)
	if r.c.TTY != nil || end == nil && mayRun { // a terminal's end comes before the rest is gone
		r.left = !r.end(context.WithoutCancel(ctx), "KILL") && end == nil
	}
	exit, err := r.exit(ctx, end, err)
	if exit != nil && exit.Usage.Wall == 0 {
		exit.Usage.Wall = wall
	}
	return exit, err
}

func (r *running) started(pid uint32) { r.pid.Store(pid) }

// rejoined takes a command for begun whose word of that may have been lost with the connection. If it still comes, it
// counts.
func (r *running) rejoined() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.signed {
		r.joined = true
		r.hasStarted()
	}
}

// hasStarted says that the command itself runs.
func (r *running) hasStarted() { r.begin.Do(func() { close(r.begun) }) }

// output takes what the machine sends, one piece at a time.
func (r *running) output(from envd.Source, b []byte) error {
	to := r.io.stdout
	if from != envd.Stdout {
		if b = r.unsign(b); len(b) == 0 {
			return nil
		}
		if from == envd.Stderr {
			to = r.io.stderr
		}
	}
	return r.write(to, b)
}

// write passes output on. When its reader is gone the command gets SIGPIPE; the other stream goes on.
func (r *running) write(to *os.File, b []byte) error {
	if r.closed[to] {
		return nil
	}
	_, err := to.Write(b)
	if err == nil {
		return nil
	}
	r.closed[to] = true
	switch {
	case errors.Is(err, syscall.EPIPE):
		go r.end(context.Background(), "PIPE")
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("pass on the command's output: %w", err)
	}
	return nil
}

// unsign takes the sign from the beginning of stderr, or of what a terminal shows.
func (r *running) unsign(b []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.code != 0:
		return nil // no command runs, so this is not its output
	case r.signed:
		return b
	}
	r.first = append(r.first, b...)
	// What stands before the sign is of those who start the command: the daemon's nice, for one, may say that it cannot.
	at := bytes.Index(r.first, []byte(r.job.sign))
	switch {
	case at < 0 && r.joined:
		r.signed = true
		return r.first
	case at < 0 && len(r.first) > 64<<10:
		r.signed = true // it never comes
		return nil
	case at < 0:
		return nil
	}
	r.first = r.first[at:]
	word, rest, whole := strings.Cut(string(r.first[len(r.job.sign):]), ";")
	if !whole {
		return nil
	}
	r.signed = true
	code, why, _ := strings.Cut(word, ":")
	if code == "0" {
		r.hasStarted()
		return []byte(rest)
	}
	r.refusal = why
	if n, err := strconv.ParseUint(code, 10, 8); err == nil && n > 0 {
		r.code = int(n)
	} else {
		r.code = 125
	}
	return nil
}

// Started implements [command.Running].
func (r *running) Started() <-chan struct{} { return r.begun }

// Executed implements [command.Running]: what never is executed is never started.
func (r *running) Executed() bool { return true }

// resize sets the size of the command's terminal; it fails for one that has ended.
func (r *running) resize(size sdk.WindowSize) {
	if pid := r.pid.Load(); pid != 0 {
		_ = r.d.Resize(context.Background(), pid, envd.Size{Rows: size.Rows, Cols: size.Cols})
	}
}

// Signal implements [command.Running].
func (r *running) Signal(sig syscall.Signal) error {
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	const script = `kill -"$1" "$2" 2>/dev/null; exit 0`
	err := r.s.sh(ctx, "send a signal", rootUser, script, nil, fmt.Sprint(int(sig)), fmt.Sprint(r.pid.Load()))
	if err != nil {
		sdk.Logger().Warn("a signal could not be sent", "sandbox", r.s.id, "signal", sig, "error", err)
	}
	return err
}

// SignalGroup implements [command.Running]: all processes of the command get the one signal by which it is to end.
func (r *running) SignalGroup(syscall.Signal) error {
	r.bound(r.c.Grace)
	r.end(context.Background(), "TERM")
	return nil
}

// bound ends the wait for readers of the output once the command is to end.
func (r *running) bound(grace time.Duration) {
	for _, f := range []*os.File{r.io.stdout, r.io.stderr} {
		_ = f.SetWriteDeadline(time.Now().Add(max(grace, supervise.DefaultGrace) + stuckTime))
	}
}

// Kill implements [command.Running]. A command may begin just after a signal was sent to all that ran, so it repeats
// that until the end is reported; in the end it gives up.
func (r *running) Kill() error {
	r.bound(0)
	for began := time.Now(); time.Since(began) < endTime; {
		r.end(context.Background(), "KILL")
		if r.waitEnd(2 * time.Second) {
			return nil
		}
	}
	r.giveUp()
	return nil
}

// end sends a signal to all processes of the command, and reports whether that worked.
func (r *running) end(ctx context.Context, signal string) bool {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	err := r.s.sh(ctx, "end the command", rootUser, scripts.End, nil, signal, r.job.mark, r.job.path)
	if err != nil && sdk.ReasonOf(err) != sdk.ReasonNotFound {
		sdk.Logger().Warn("a command could not be ended", "sandbox", r.s.id, "signal", signal, "error", err)
		return false
	}
	return true
}

func (r *running) waitEnd(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-r.ended:
		return true
	case <-t.C:
		return false
	}
}
