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
	case CauseExited, CauseSignaled, CauseTimeout, CauseOOM, CausePIDs, CauseDisk, CauseOutput, CauseCancelled,
		CauseSetupFailed, CauseBackend:
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

	// NetworkMissed says that the sandbox has no network, and that the command, or another one in it at that time, looked
	// for one. A backend may leave it out.
	NetworkMissed bool

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

	// Requests are the HTTP requests to a host of a secret, in the order of their ends: at most [MaxRequests] of a
	// command; RequestsMore counts those beyond. Used is the sum of all. In a record, each request is an event, and
	// Requests is empty.
	Requests     []HTTPRequest `json:"-"`
	RequestsMore int64         `json:"requests_more,omitempty"`
	Used         *Used         `json:"used,omitempty"` // nil where there were no such requests
}

// MaxRequests bounds the requests of one command that are recorded one by one.
const MaxRequests = 10_000

// HTTPRequest is one request of a command to a host of a secret.
type HTTPRequest struct {
	Time     string        `json:"time"` // of its beginning, as in RFC 3339
	Took     time.Duration `json:"took_ns"`
	Method   string        `json:"method"`
	Path     string        `json:"path"`              // without the query
	Status   int           `json:"status,omitempty"`  // of the answer; 0: none came
	Sent     int64         `json:"sent"`              // bytes of its body
	Received int64         `json:"received"`          // bytes of the answer's body
	Refused  bool          `json:"refused,omitempty"` // answered by the backend: the request did not leave
	Model    string        `json:"model,omitempty"`   // that the answer names
	Tokens   *Tokens       `json:"tokens,omitempty"`  // nil: the answer says nothing of tokens
	Cost     float64       `json:"cost,omitempty"`    // by the prices of the budget
}

// Tokens are what a model used for one answer.
type Tokens struct {
	Input      int64 `json:"input"` // without those of the cache
	Output     int64 `json:"output"`
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
	Estimated  bool  `json:"estimated,omitempty"` // from the size, for a budget of tokens: the answer did not say
}

// Total is the number of all tokens.
func (t Tokens) Total() int64 { return t.Input + t.Output + t.CacheRead + t.CacheWrite }

// Used is what requests used together.
type Used struct {
	Requests int64   `json:"requests"` // that left
	Refused  int64   `json:"refused,omitempty"`
	Tokens   Tokens  `json:"tokens"`
	Cost     float64 `json:"cost,omitempty"`
}

// Add counts a request.
func (u *Used) Add(r HTTPRequest) {
	if r.Refused {
		u.Refused++
		return
	}
	u.Requests++
	u.Cost += r.Cost
	if t := r.Tokens; t != nil {
		u.Tokens.Input += t.Input
		u.Tokens.Output += t.Output
		u.Tokens.CacheRead += t.CacheRead
		u.Tokens.CacheWrite += t.CacheWrite
		u.Tokens.Estimated = u.Tokens.Estimated || t.Estimated
	}
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
