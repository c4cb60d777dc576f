// Package backendtest is the conformance suite: one table of named checks that
// every backend has to pass for what it claims.
//
// There are two doors to the same table. A backend written in Go calls [Run]
// from a test; it serves the backend over real gRPC inside the test process:
//
//	func TestConformance(t *testing.T) {
//		backendtest.Run(t, backendtest.Suite{
//			New:    func() sdk.Backend { return newBackend() },
//			Config: map[string]any{"image": "alpine"},
//		})
//	}
//
// A compiled plugin in any language is tested by `hutch backend test PATH`,
// which gives a [Runner] a [Target] that starts processes. Only there do the
// checks run which kill, stop or abandon the plugin's process.
//
// A check is skipped when the backend does not claim what the check is about, when
// its Plan says that this machine lacks what a limit or the network needs, or when
// the door has no process to kill. Every skip is reported with its reason. What a
// backend claims is what its Describe says, whatever the machine; what its Plan
// says cannot be had here, its Create has to refuse (plan/refusals).
//
// Inside the sandbox the checks use a POSIX shell and coreutils, nothing else.
package backendtest

import (
	"context"
	"regexp"
	"time"

	"google.golang.org/grpc"

	"github.com/hutch-run/hutch/sdk"
)

// Suite says what to test from a Go test. See [Run].
type Suite struct {
	// New makes a backend that shares no memory with the ones made before, as a
	// new plugin process would. It is called several times.
	New func() sdk.Backend

	// Config is the backend block: what marshals to the JSON that the host would send,
	// as map[string]any{"image": "alpine"} does. Nil means an empty block.
	Config any

	// BadConfigs are blocks that the backend must refuse.
	BadConfigs []BadConfig

	// Target, when set, is tested instead of New: &Process{Path: "…"} tests a
	// compiled plugin, with the checks that need a process.
	Target Target

	// StandIn says that the machines of a vm or remote-vm backend are stand-ins that share this host's kernel, in a test
	// of the backend: what their own kernel would show is not looked at.
	StandIn bool

	// CheckTime is as in [Runner].
	CheckTime time.Duration

	// Only, when set, picks checks by their ids.
	Only *regexp.Regexp
}

// BadConfig is a block that must be refused.
type BadConfig struct {
	Name   string // for the report
	Config any    // marshalled to JSON
	Path   string // where the complaint must point, e.g. `bind[1].from`; "" for anywhere
}

// Runner runs the table against a [Target] without package testing.
type Runner struct {
	Target     Target
	Config     any         // as in [Suite]
	BadConfigs []BadConfig // as in [Suite]

	// Only, when set, picks checks by their ids.
	Only *regexp.Regexp
	// CheckTime is how long one check may take; 0 means two minutes. A check that takes longer has failed, and its message
	// names the calls that the backend had not answered. After three that hung in the same call no others are begun, and
	// the report is of those that ran.
	CheckTime time.Duration
	// Parallel is how many checks run at once; 0 means 4.
	Parallel int
	// Progress, when set, gets each result as it comes, in the order of
	// completion, never concurrently.
	Progress func(Result)
}

// Outcome is how a check ended.
type Outcome string

// The outcomes.
const (
	Passed  Outcome = "pass"
	Failed  Outcome = "fail"
	Skipped Outcome = "skip" // Message says what is not claimed, or why the check was not run
)

// Result is the outcome of one check.
type Result struct {
	ID       string        `json:"id"`
	Outcome  Outcome       `json:"outcome"`
	Proves   string        `json:"proves"`
	Message  string        `json:"message,omitempty"` // why it failed or was skipped
	Fix      string        `json:"fix,omitempty"`     // what to do, only after a failure
	Duration time.Duration `json:"duration_ns"`
}

// Report is the outcome of the suite. It is what every output format is made from.
type Report struct {
	Schema   string        `json:"schema"` // "hutch.conformance/v1"
	Backend  string        `json:"backend"`
	Version  string        `json:"version"`
	Results  []Result      `json:"results"` // in the order of the table
	Passed   int           `json:"passed"`
	Failed   int           `json:"failed"`
	Skipped  int           `json:"skipped"`
	Duration time.Duration `json:"duration_ns"`
}

// OK reports whether nothing failed and something passed.
func (r *Report) OK() bool { return r.Failed == 0 && r.Passed > 0 }

// Format names a form of a written report.
type Format string

// The forms.
const (
	Text  Format = "text"  // TAP version 14, grouped, for people and TAP readers
	JSON  Format = "json"  // the Report itself
	JUnit Format = "junit" // for CI
)

// Target starts the backend under test. Both doors implement it.
type Target interface {
	// Start gives a fresh instance, which shares no memory with any other: a new
	// process, or in a test process a new value of the backend. The context bounds
	// the start alone.
	Start(ctx context.Context, opts StartOptions) (Plugin, error)
}

// StartOptions changes how one instance is started. The zero value is an
// ordinary start.
type StartOptions struct {
	// EmptyPath starts the plugin with a PATH that holds no program.
	EmptyPath bool
}

// Plugin is one running instance of the backend. Its methods may be called
// concurrently.
type Plugin interface {
	// Conn is where the service hutch.backend.v1.Backend answers.
	Conn() grpc.ClientConnInterface

	// PID is the plugin's process, or 0 when the instance lives in this process.
	PID() int

	// Abandon does what the kernel does when the host gets SIGKILL: the lifeline
	// and the connection are gone at once, and nobody says goodbye. It does not wait.
	Abandon()

	// Stop ends the instance in the ordinary way and releases what belongs to it. It
	// may be called after Abandon and more than once.
	Stop(ctx context.Context) error

	// Done is closed when the instance is gone.
	Done() <-chan struct{}

	// Log returns the last lines the plugin wrote to its standard error, for the
	// message of a failed check.
	Log() string
}
