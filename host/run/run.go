package run

import (
	"context"
	"io"
	"time"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/supervise/descendants"
)

// DefaultOutput is how many bytes of each stream are kept when the run does not say: 16 MiB.
const DefaultOutput = 16 << 20

// DefaultTimeout is the timeout of a run that has none, unless it has a terminal.
const DefaultTimeout = 10 * time.Minute

// Options are what all runs of one call share.
type Options struct {
	Store    *store.Store
	Backends Backends

	// MinIsolation is the user's own minimum; the stronger one of it and the run's counts. It may be "".
	MinIsolation sdk.Isolation
	// Defaults are the names of the backends of a run that names none, in the order in which they are tried; DefaultsFrom
	// says in a diagnostic where they come from.
	Defaults     []string
	DefaultsFrom string
	// Environ is the environment of the user, as NAME=VALUE: where the registry configuration of installers comes
	// from. Nothing else of it reaches a sandbox.
	Environ []string
	// Keep leaves the sandboxes in place after the command ended, as persistent ones.
	Keep bool
	// Name is the name of the sandbox that Keep leaves; "" lets hutch choose one. It is for one run.
	Name string
	// ID is that of the run, for one run; "" lets hutch choose one.
	ID string
	// EndsWith is the process that a sandbox which Keep leaves must not outlive; nil lets it stay until it is removed.
	EndsWith *store.Process
	// TakeBase writes down what the source of a private workspace looks like, just before a persistent sandbox is made on
	// it. Nil writes nothing.
	TakeBase func(ctx context.Context, dir string, w io.Writer) error
	// Progress is called with what a run is doing, by its id; it may be nil and may be called concurrently.
	Progress func(p Progress)
	// Processes has Progress get the PID of each run.
	Processes bool
	// Ahead has sandboxes that were made before they were asked for; nil has none.
	Ahead *Ahead
	// Trace records the spans of the runs; nil records nothing.
	Trace *Trace
}

// Progress is one thing that a run is doing now; without a Step, the previous step is over.
type Progress struct {
	Run, Name   string // id and instance name
	Step        string // such as "dependencies: npm install"
	Done, Total int64  // Total 0 means unknown
	PID         string // of a process of this machine below which the run's commands are, once they are; see [sdk.DetailPID]
}

// Memory is what the processes below one have for themselves, in bytes: see [Progress].
func Memory(pid int) uint64 { return descendants.UsageOf(pid).Memory }

// Runner runs definitions. It is safe for concurrent use.
type Runner struct {
	opt      Options
	patience patience
}

// New returns a Runner.
func New(o Options) *Runner { return &Runner{opt: o, patience: usualPatience} }

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
	// Published is called with the ports of the network block once this machine listens on them, before the command
	// starts; nil is fine.
	Published func(ports []*network.Published)
}
