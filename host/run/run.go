package run

import (
	"context"
	"io"
	"time"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
)

// DefaultOutput is how many bytes of each stream are kept when the run does not say: 16 MiB.
const DefaultOutput = 16 << 20

// DefaultTimeout is the timeout of a run that has none, unless it has a terminal.
const DefaultTimeout = 10 * time.Minute

// Options are what all runs of one call share.
type Options struct {
	Store    *store.Store
	Backends Backends

	// MinIsolation is the user's own minimum; the stronger one of it and the run's counts. "" is none.
	MinIsolation sdk.Isolation
	// Environ is the environment of the user, as NAME=VALUE: where the registry configuration of installers comes
	// from. Nothing else of it reaches a sandbox.
	Environ []string
	// Keep leaves sandboxes in place after the command ended, for `hutch exec`.
	Keep bool
	// Progress is told what a run is doing, by its id; it may be nil and may be called concurrently.
	Progress func(p Progress)
	// Trace records the spans of the runs; nil records nothing.
	Trace *Trace
}

// Progress is one thing that a run is doing now.
type Progress struct {
	Run, Name   string // id and instance name
	Step        string // such as "dependencies: npm install"
	Done, Total int64  // Total 0 means unknown
}

// Runner runs definitions. It is safe for concurrent use.
type Runner struct{ opt Options }

// New returns a Runner.
func New(o Options) *Runner { return &Runner{opt: o} }

// Streams connect a run to its caller. The zero value is a run with empty input that nobody watches.
type Streams struct {
	// Stdin is copied to the command; nil is empty. The definition's own stdin has precedence.
	Stdin io.Reader
	// Stdout and Stderr get the bytes of the command as they come and unchanged; nil discards them. They are called
	// from one goroutine each. An error from one ends its stream, not the run.
	Stdout, Stderr io.Writer
	// TTY asks for a terminal of this size. Everything then comes on Stdout.
	TTY *sdk.WindowSize
	// Resizes and Signals are passed on to the command; nil channels are fine. Only with TTY do resizes matter.
	Resizes <-chan sdk.WindowSize
	Signals <-chan int // signal numbers
}

// Run runs one definition and returns when nothing of it is left but its record. The result is never nil: what went
// wrong is in it. The error says only that the record itself could not be written, and is store.ErrFull when that is
// why.
//
// When ctx ends the command is stopped (SIGTERM, then SIGKILL), what it left is collected, and the sandbox is destroyed
// all the same.
func (r *Runner) Run(ctx context.Context, d *runfile.Definition, s Streams) (*result.Result, error) {
	return nil, errNotImplemented
}

// Many says how several runs go together.
type Many struct {
	// Jobs is how many run at once; 0 means as many as there are CPUs.
	Jobs int
	// FailFast cancels what runs, and starts nothing further, once a run is not ok.
	FailFast bool
	// Streams gives the streams of each run; nil means none. It is called right before the run starts; done (may be
	// nil) right after it ended, before Each.
	Streams func(d *runfile.Definition) (s Streams, done func())
	// Each is called with every result as soon as it is there, one at a time; it may be nil.
	Each func(*result.Result)
}

// RunAll runs definitions side by side. Results come in the order of the definitions, nil for those that were never
// started. The error is the first one of [Runner.Run], after all ended.
func (r *Runner) RunAll(ctx context.Context, ds []*runfile.Definition, m Many) ([]*result.Result, error) {
	return nil, errNotImplemented
}

// Plan says what would run where and why, without making anything.
func (r *Runner) Plan(ctx context.Context, d *runfile.Definition) (*Plan, error) {
	return nil, errNotImplemented
}
