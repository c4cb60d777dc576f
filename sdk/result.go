package sdk

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/supervise"
)

// File is an open stream of a command: a FIFO that the host made.
type File = *os.File

// Change is one difference between a workspace and the directory it was made from.
type Change = overlay.Change

// ChangeKind names a kind of [Change].
type ChangeKind = overlay.Kind

// The kinds of changes.
const (
	ChangeAdded    = overlay.Added
	ChangeModified = overlay.Modified // content, and perhaps mode
	ChangeDeleted  = overlay.Deleted
	ChangeMode     = overlay.Mode    // permissions only
	ChangeSymlink  = overlay.Symlink // a symbolic link that points elsewhere
	ChangeType     = overlay.Type    // something of another type stands there
)

// Cause says why a command ended.
type Cause string

// The causes. Exit carries the evidence.
const (
	CauseExited      Cause = "exited"        // by itself, with a code
	CauseSignaled    Cause = "signaled"      // by a signal that hutch did not send
	CauseTimeout     Cause = "timeout"       // it timed out
	CauseOOM         Cause = "oom"           // it used more memory than allowed
	CausePIDs        Cause = "pids"          // it failed after being refused further processes
	CauseDisk        Cause = "disk"          // it failed after being refused further disk space
	CauseOutput      Cause = "output"        // it wrote more output than allowed
	CauseCancelled   Cause = "cancelled"     // the user or the host stopped it
	CauseSetupFailed Cause = "setup_failed"  // it never started: the sandbox or the run's preparation failed
	CauseBackend     Cause = "backend_error" // the backend broke
)

// Valid reports whether c is one of the causes.
func (c Cause) Valid() bool {
	switch c {
	case CauseExited, CauseSignaled, CauseTimeout, CauseOOM, CausePIDs, CauseDisk, CauseOutput, CauseCancelled, CauseSetupFailed, CauseBackend:
		return true
	}
	return false
}

// Exit says how a command ended.
type Exit struct {
	Cause    Cause
	Code     int    // 0-255; 128+n after signal n; 126 and 127 with NotStarted set when it could not be executed or found
	Signal   string // "SIGKILL"; empty without a signal
	Evidence string // what the cause was read from, e.g. "memory.events oom_kill 1"
	Usage    Usage

	// NotStarted says that the command itself was never executed; Code is then 126
	// (not executable) or 127 (not found).
	NotStarted bool

	// OutputLost says why a part of what the command wrote may never have come, as over a connection that broke. It is
	// empty when every byte did.
	OutputLost string

	// Traffic is what the command did with its filtered network, at most [MaxTraffic] destinations; TrafficMore counts
	// those beyond.
	Traffic     []Traffic
	TrafficMore int64

	// Files is what an observed command opened outside of what every sandbox has, at most [MaxFiles].
	Files []FileUse
}

// MaxFiles bounds [Exit.Files].
const MaxFiles = 1000

// FileUse is a file or directory of the host that an observed command named, by whatever call: outside of /usr and its
// like, of the workspace, input, output and temporary directories.
type FileUse struct {
	Path  string `json:"path"`  // absolute; without symbolic links where it is Found
	Found bool   `json:"found"` // the sandbox has it, by a mount; else only the host does
	Write bool   `json:"write"` // it was to be written, made or removed
}

// MaxTraffic bounds [Exit.Traffic].
const MaxTraffic = 1000

// Traffic is what one command did with one destination of a filtered network.
type Traffic struct {
	Name        string   `json:"name"`           // as the command asked for it: a name, or an IPv4 address
	Port        int      `json:"port,omitempty"` // 0: a name that was looked up only
	Allowed     bool     `json:"allowed"`
	Rule        string   `json:"rule,omitempty"`    // that decided, or the secret whose rules did, as in "secret TOKEN"; empty: no rule is about it
	Reason      string   `json:"reason,omitempty"`  // why an allowed destination was not reached, or a denied one is denied
	Connections int64    `json:"connections"`       // or lookups, when Port is 0
	Sent        int64    `json:"sent"`              // bytes by the command
	Received    int64    `json:"received"`          // bytes by the other end
	Secrets     []string `json:"secrets,omitempty"` // names of the secrets that were put in
	Add         string   `json:"add,omitempty"`     // the rule of allow that would allow a denied destination; "" when none alone does
}

// Usage is what a command used; zero means unknown. Only a backend whose commands run on another machine may leave
// User, Sys and PeakMemory unknown: elsewhere the kernel reports them of every child (wait4).
type Usage struct {
	Wall       time.Duration
	User, Sys  time.Duration
	PeakMemory int64 // bytes, of the whole tree where a cgroup counts it, else of the largest process
	PIDs       int64 // most processes and threads at once
}

// The reasons for which the SDK ends the context of an Exec.
var (
	ErrTimeout     = errors.New("the command timed out")
	ErrCancelled   = errors.New("the command was cancelled")
	ErrOutputLimit = errors.New("the command wrote more output than allowed")
	ErrHostGone    = supervise.ErrHostGone
)

// CauseOf maps the end of an Exec's context to a cause; it returns "" while the
// context lives.
func CauseOf(ctx context.Context) Cause {
	if ctx.Err() == nil {
		return ""
	}
	switch err := context.Cause(ctx); {
	case errors.Is(err, ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return CauseTimeout
	case errors.Is(err, ErrOutputLimit):
		return CauseOutput
	default:
		return CauseCancelled
	}
}
