// Command hutch runs code that nobody has to trust.
//
// This package is the command line and nothing else: the grammar, one file per group of commands, each command a few
// lines that call the host packages, which hold all that hutch does.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/hutch-run/hutch/cmd/hutch/internal/early"
	"github.com/hutch-run/hutch/cmd/hutch/internal/signals"
	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/run"
)

// version is set by the linker; see the Makefile.
var version = "unknown"

// Exit codes of hutch itself. `hutch run` passes on the program's own code and uses 124 to 127 as timeout(1) and
// docker(1) do.
const (
	exitNo      = 1   // the answer is no: invalid, unformatted, damaged, not able
	exitFailure = 125 // hutch could not do what was asked, or did not understand it
)

func main() {
	if os.Getenv("GOGC") == "" {
		collectLate()
	}
	if os.Getenv("GOTRACEBACK") == "" {
		debug.SetTraceback("none") // a crash ends with its message; the stack helps nobody but us
	}
	os.Exit(hutch(os.Args[1:]))
}

// host is what executes a command: this process for the user who started it, or as a worker of `hutch serve`.
type host struct {
	how    string          // for --trace
	keeper *backend.Keeper // nil for a process with one command
	boxes  *run.Ahead      // likewise
	run    *built          // parser of `hutch run` that was built before the command came, or nil
	leave  func(code int)  // ends the process before the command has ended; nil is os.Exit
}

func (h host) end(code int) {
	if h.leave != nil {
		h.leave(code)
	}
	os.Exit(code)
}

// collectLate lets the first garbage collection begin at 16 MiB instead of 4, because a short call makes a few
// megabytes of garbage. From then on the heap is kept at twice of what is alive: at five times, a call of 2,000 runs
// kept 11 KB for each.
func collectLate() {
	debug.SetGCPercent(400)
	runtime.AddCleanup(new([32]byte), func(percent int) { debug.SetGCPercent(percent) }, 100)
}

func hutch(args []string) int {
	if len(args) == 1 && args[0] == "--version" { // as quick as a program can be: not even the grammar is built
		if _, err := os.Stdout.WriteString("hutch " + version + "\n"); err != nil {
			return exitFailure
		}
		return 0
	}
	if len(args) == 1 && args[0] == workArg {
		if err := work(); err != nil {
			return newUI(os.Stdin, os.Stdout, os.Stderr).fail(err)
		}
		return 0
	}
	place, err := habitsOfPlace(args)
	if err != nil {
		return newUI(os.Stdin, os.Stdout, os.Stderr).fail(err)
	}
	if len(place) != len(args) {
		early.Try(place)
	}
	h := host{how: "start"}
	if early.Why != "" {
		h.how = "start, without hutch serve: " + early.Why
	}
	return h.execute(place)
}

// execute executes a command and returns its exit code.
func (h host) execute(args []string) int {
	u := newUI(os.Stdin, os.Stdout, os.Stderr)
	u.host = h
	u.asked = askedBy(args)
	ctx, stop := interruptible(context.Background(), u) // before anything is started
	defer stop()
	u.ahead = lookAhead(u, args)
	defer u.ahead.drop()
	parser, kctx, call, err := parse(u, args)
	switch {
	case err != nil:
		return u.fail(usageError(parser, err))
	case kctx == nil:
		_ = kongHelp(parser, u.err)
		return exitFailure
	}
	kctx.BindTo(ctx, (*context.Context)(nil))
	err = kctx.Run(u, call)
	u.ending.Lock() // from here on a signal changes nothing any more; after a second one nobody comes here
	if err != nil {
		return u.fail(operandHint(call.args, err))
	}
	return 0
}

// habitsOfPlace does what stands before a command: -C DIR and -chdir=DIR change the directory.
func habitsOfPlace(args []string) ([]string, error) {
	for len(args) > 0 {
		dir, is := strings.CutPrefix(args[0], "-chdir=")
		switch {
		case is:
			args = args[1:]
		case args[0] == "-C" && len(args) > 1:
			dir, args = args[1], args[2:]
		default:
			return args, nil
		}
		if err := os.Chdir(dir); err != nil {
			return nil, fmt.Errorf("-C: %s", plain(err))
		}
	}
	return args, nil
}

// quick are the commands that are called most, or in a hurry, with their own grammar.
var quick = map[string]func() any{
	"run": func() any { return new(runGrammar) },
	"exec": func() any {
		return &struct {
			globals `embed:""`
			Exec    execCmd `cmd:""`
		}{}
	},
	"diff": func() any {
		return &struct {
			globals `embed:""`
			Diff    diffCmd `cmd:""`
		}{}
	},
}

// parse reads the command line; kctx is nil when it is empty. A quick command that is as it should be is read by its
// own grammar alone, since building the whole one costs a millisecond and more. What that does not understand, and
// whatever asks for help, is left to the whole grammar, so that both say the same.
func parse(u *ui, args []string) (parser *kong.Kong, kctx *kong.Context, c *call, err error) {
	if len(args) > 0 && quick[args[0]] != nil && !asksForHelp(args) {
		b := u.host.run
		if b == nil || args[0] != "run" {
			b = build(quick[args[0]]())
		}
		if parser, kctx, c, err := parseWith(b, u, args); err == nil {
			return parser, kctx, c, nil
		}
	}
	return parseWith(build(new(grammar)), u, args)
}

func parseWith(b *built, u *ui, args []string) (parser *kong.Kong, kctx *kong.Context, c *call, err error) {
	if parser, err = b.of(u); err != nil {
		panic(err) // the grammar is wrong: no input can cause it
	}
	if c, err = arrange(parser.Model.Node, args); err != nil {
		return nil, nil, nil, err
	}
	if len(c.args) > 0 {
		kctx, err = parser.Parse(c.args)
	}
	return parser, kctx, c, err
}

func asksForHelp(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool { return a == "-h" || a == "--help" || a == "-help" })
}

// interruptible ends ctx at the first SIGINT, SIGTERM, SIGHUP or SIGQUIT, so that runs are stopped and sandboxes
// removed in order. At the second one the process ends at once: backends see the end of their lifeline and clean up by
// themselves, as when hutch is killed, and what they cannot remove is left to gc. timeout(1) sends its SIGTERM to the
// process and then to its group, a closing terminal its SIGHUP likewise: such a pair is one. Signals are caught until
// the process is gone, so that one in its last moments does not change how it ended.
func interruptible(parent context.Context, u *ui) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	done := make(chan struct{})
	go func() {
		var first time.Time
		for {
			select {
			case <-done:
				return
			case s := <-signals.C:
				sig, _ := s.(syscall.Signal)
				if !first.IsZero() && sig != syscall.SIGINT && time.Since(first) < oneSignal {
					continue
				}
				if u.reading.Load() {
					u.runKill()
					u.host.end(128 + int(sig))
				}
				if !first.IsZero() {
					u.ending.Lock() // what the leaving makes of the command is not its outcome
					u.runKill()
					u.note("not waiting any longer; backends finish by themselves, and hutch gc removes what they cannot")
					u.host.end(128 + int(sig))
				}
				first = time.Now()
				u.host.keeper.Refuse()
				u.interrupted.Store(int32(sig))
				u.note("stopping; once more does not wait for that")
				cancel(errInterrupted)
			}
		}
	}()
	return ctx, func() {
		close(done)
		cancel(nil)
	}
}

// oneSignal is how far apart two signals that nobody typed can be and still mean one.
const oneSignal = 500 * time.Millisecond

// errInterrupted is why everything ends after a signal: somebody cancelled it.
var errInterrupted error = interruption{}

type interruption struct{}

func (interruption) Error() string        { return "interrupted" }
func (interruption) Is(target error) bool { return target == context.Canceled }

// exit is an error that says nothing and only sets the exit code: what there was to say has been said.
type exit int

func (e exit) Error() string { return "exit" }

func kongHelp(k *kong.Kong, w interface{ Write([]byte) (int, error) }) error {
	ctx, err := kong.Trace(k, nil)
	if err != nil {
		return err
	}
	k.Stdout = w
	return ctx.PrintUsage(false)
}
