package backendtest

import (
	"regexp"
	"time"

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
	// Progress, when set, is told of each result as it comes, in the order of
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
