package result

import (
	"fmt"
	"time"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/outputs"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
)

// Schema identifies the object and its major version.
const Schema = "hutch.result/v1"

// Result says how one run ended. It is written once and not changed afterwards.
type Result struct {
	Schema string `json:"schema"`
	ID     string `json:"id"`
	Name   string `json:"name"`             // of the run block, with its key when there is one
	Parent string `json:"parent,omitempty"` // id of the loop that it was part of, or of the run that it repeats
	File   string `json:"file,omitempty"`   // the run file as it was named; empty without one

	Backend Backend  `json:"backend"`
	Command []string `json:"command"` // argv as the sandbox got it
	Workdir string   `json:"workdir"`

	Cause    sdk.Cause `json:"cause"`
	Evidence string    `json:"evidence,omitempty"` // what the cause was read from
	// ExitCode is the program's own; null when it did not end by itself or never started.
	ExitCode *int `json:"exit_code"`
	// Status is the code with which hutch ends after this run alone: see [ExitCode].
	Status     int    `json:"status"`
	Signal     string `json:"signal,omitempty"` // that ended the program, such as SIGKILL
	NotStarted bool   `json:"not_started,omitempty"`

	OK             bool            `json:"ok"` // it did what was expected of it: without an expect block, exit code 0
	TimedOut       bool            `json:"timed_out"`
	Expected       bool            `json:"expected"`        // the run says itself what is expected of it
	ExpectFailures []ExpectFailure `json:"expect_failures"` // never null

	// Attempts are the results of earlier attempts of this call, each with its own record, oldest first: of what
	// --retry repeats. Flaky says that this one is ok after them.
	Attempts []*Result `json:"attempts,omitempty"`
	Flaky    bool      `json:"flaky,omitempty"`

	Stdout Stream `json:"stdout"`
	Stderr Stream `json:"stderr"`
	TTY    bool   `json:"tty,omitempty"` // both streams went to a terminal and are in stdout

	Usage   Usage   `json:"usage"`
	Limits  []Limit `json:"limits"` // in a fixed order; never null
	Network Network `json:"network"`

	Observed bool          `json:"observed,omitempty"` // Files is known: hutch observe recorded it
	Files    []sdk.FileUse `json:"files,omitempty"`    // of this machine that the program named, outside of what every sandbox has; at most 1,000

	Workspace      Workspace         `json:"workspace"`
	Sandbox        *Sandbox          `json:"sandbox,omitempty"` // the persistent sandbox that it ran in, or left
	Dependencies   []Dependencies    `json:"dependencies,omitempty"`
	Outputs        []outputs.Output  `json:"outputs"` // in path order; never null
	Skipped        []outputs.Skipped `json:"outputs_skipped,omitempty"`
	SkippedMore    int               `json:"outputs_skipped_more,omitempty"` // beyond those listed
	Changes        []Change          `json:"changes"`                        // of the workspace, in path order; never null
	ChangesMore    int               `json:"changes_more,omitempty"`         // beyond those listed
	ChangesKnown   bool              `json:"changes_known"`                  // false when the backend cannot tell
	ChangesDropped int               `json:"changes_dropped,omitempty"`      // that went with the sandbox, of a private workspace

	NewRepositories []string `json:"new_repositories,omitempty"` // absolute paths of git repositories that a command made in a shared workspace
	Notes           []string `json:"notes,omitempty"`            // what a careful user should know

	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`

	Dir    string         `json:"dir"`              // the run's directory
	Events store.ChainRef `json:"events,omitzero"`  // where its event chain lies, and the head of it
	Kept   bool           `json:"kept,omitempty"`   // the sandbox was left as a persistent one
	Leaks  []string       `json:"leaks,omitempty"`  // what could not be destroyed; hutch gc tries again
	Error  *Failure       `json:"error,omitempty"`  // why there was nothing to run, or what broke
	Source *diag.Range    `json:"source,omitempty"` // the header of the run block
}

// Backend is what ran it.
type Backend struct {
	Name      string `json:"name"`
	Version   string `json:"version,omitempty"`
	Isolation string `json:"isolation,omitempty"`
	Path      string `json:"path,omitempty"`   // of the plugin's binary
	SHA256    string `json:"sha256,omitempty"` // of it, in hex
}

// Stream is one standard stream.
type Stream struct {
	Text      string `json:"text"`           // the end of what was kept; invalid UTF-8 replaced, secrets redacted
	Bytes     int64  `json:"bytes"`          // written by the program, as far as they came
	Dropped   int64  `json:"dropped"`        // of those, nowhere any more: beyond the output limit, or see Lost
	Lost      string `json:"lost,omitempty"` // why a part is missing: a full disk, or a connection that broke
	Truncated bool   `json:"truncated"`      // Text is shorter than the file at Path
	Path      string `json:"path"`           // of the log, below the run's directory; empty without one
}

// Usage is what the program used; fields are null where the backend cannot tell.
type Usage struct {
	Wall       Seconds  `json:"wall_seconds"`
	User       *Seconds `json:"user_seconds"`
	Sys        *Seconds `json:"sys_seconds"`
	PeakMemory *int64   `json:"peak_memory_bytes"`
	PIDs       *int64   `json:"peak_pids"`
}

// Limit is one limit with what holds it.
type Limit struct {
	Limit  sdk.Limit `json:"limit"`
	Asked  bool      `json:"asked"`   // by the run; otherwise it is a default
	Value  string    `json:"value"`   // with its unit
	HeldBy string    `json:"held_by"` // the mechanism
	// Visible says where the program sees the limit; without it what it looks at describes the machine.
	Visible string `json:"visible,omitempty"`
}

// String says in one line what the limit is, how it is held, and whether the program sees it.
func (l Limit) String() string {
	how, seen := "default", ""
	if l.Asked {
		how = "asked"
	}
	switch {
	case l.Visible != "":
		seen = "; visible in " + l.Visible
	case l.HeldBy != "" && (l.Limit == sdk.LimitMemory || l.Limit == sdk.LimitCPUs):
		seen = "; not visible: the program sees the machine's"
	}
	return fmt.Sprintf("%s = %s (%s): %s%s", l.Limit, l.Value, how, l.HeldBy, seen)
}

// Network is what the run could reach, and what it did with it.
type Network struct {
	Mode  sdk.NetworkMode `json:"mode"`           // none, filtered or full
	Allow []string        `json:"allow,omitzero"` // rules of a filtered network; empty allows nothing
	Deny  []string        `json:"deny,omitempty"` // rules that win over those of allow
	// Publish are the ports of 127.0.0.1 that led to ports of the sandbox, as in 8080:3000.
	Publish []string `json:"publish,omitempty"`
	// Traffic is what became of each destination of a filtered network, at most 1,000 of them.
	Traffic     []sdk.Traffic `json:"traffic,omitempty"`
	TrafficMore int64         `json:"traffic_more,omitempty"` // destinations beyond those
	// Missed says that the program looked for a network, and had none, where the backend can tell.
	Missed bool `json:"missed,omitempty"`
}

// NetworkOf is the network of a run that used nothing of it yet.
func NetworkOf(n network.Network) Network {
	n = n.OrNone()
	return Network{Mode: n.Mode, Allow: n.Allow, Deny: n.Deny, Publish: n.Publish}
}

// Denied are the destinations that were denied.
func (n *Network) Denied() []sdk.Traffic {
	var l []sdk.Traffic
	for _, t := range n.Traffic {
		if !t.Allowed {
			l = append(l, t)
		}
	}
	return l
}

// Workspace is how the project directory was seen.
type Workspace struct {
	Source string `json:"source,omitempty"` // host directory; empty for an empty directory of the sandbox
	Mode   string `json:"mode"`
	Path   string `json:"path,omitempty"` // inside the sandbox
}

// Sandbox names a persistent sandbox.
type Sandbox struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// Change is one difference between the workspace and the host directory.
type Change struct {
	Path    string `json:"path"`
	Kind    string `json:"kind"` // added, modified, deleted, mode, type
	OldMode string `json:"old_mode,omitempty"`
	NewMode string `json:"new_mode,omitempty"`
	Size    int64  `json:"size"`
}

// Dependencies is one list of dependencies that the run had.
type Dependencies struct {
	Language  string   `json:"language"`
	Installer string   `json:"installer"` // such as pip 24.0
	Packages  []string `json:"packages"`
	Locked    bool     `json:"locked,omitempty"` // from a lock file, with its digests
	Cached    bool     `json:"cached"`
	Key       string   `json:"key"` // of the cache entry
	// Fetched is all that is installed, sorted by name: the packages with what they depend on.
	Fetched []Package `json:"fetched,omitempty"`
}

// Package is one installed package.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Digest names the hash and its value: for npm that of the archive, as the registry has it, in base64; for pip and uv
	// that of the package's RECORD, in hex. "" where the installer left none.
	Digest string `json:"digest,omitempty"`
}

// ExpectFailure is one thing that was expected and is not so.
type ExpectFailure struct {
	What string      `json:"what"` // such as exit_code, stdout.contains[0]
	Want string      `json:"want"`
	Got  string      `json:"got"`
	At   *diag.Range `json:"at,omitempty"` // where it was asked for
}

// Failure says why a run had no program's end to report.
type Failure struct {
	Phase       string           `json:"phase"` // plan, dependencies, create, exec, outputs, …
	Summary     string           `json:"summary"`
	Detail      string           `json:"detail,omitempty"`
	Fix         string           `json:"fix,omitempty"`
	Reason      sdk.Reason       `json:"reason,omitempty"`
	Diagnostics diag.Diagnostics `json:"diagnostics,omitempty"`
}

func (f *Failure) Error() string {
	s := f.Summary
	if f.Detail != "" {
		s += ": " + f.Detail
	}
	if f.Fix != "" {
		s += " (" + f.Fix + ")"
	}
	return s
}
