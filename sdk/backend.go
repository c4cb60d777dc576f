package sdk

import (
	"context"
	"encoding/json"
	"io"
	"net"

	"github.com/hutch-run/hutch/sdk/contract"
)

// Backend makes sandboxes of one kind. Its methods are called concurrently.
type Backend interface {
	// Describe returns facts that never change while the binary stays the same.
	// It must have no side effects and take no time: the host may cache it by the
	// binary's hash.
	Describe() Description

	// Check probes, by doing, whether this machine can run the backend, and says
	// for each thing it looked at what it found and how to mend it. It may take
	// seconds; `hutch doctor` calls it, `hutch run` does not. An error means that
	// the probe itself broke.
	Check(ctx context.Context) ([]Finding, error)

	// Create makes a sandbox. It must call [CreateRequest.Allocated] before
	// anything exists outside the plugin process, and must be idempotent on
	// [CreateRequest.ID]: a second call with the same id and spec returns the same
	// sandbox; the SDK answers it while the process lives. When it fails it leaves
	// nothing behind; the SDK then calls Destroy with the last handle, to be sure.
	Create(ctx context.Context, req *CreateRequest) (Sandbox, error)

	// Destroy removes all that Create made, from any process: h is what Create
	// gave to Allocated, in this process or in one that is long dead. A sandbox
	// that is unknown or already gone is success.
	Destroy(ctx context.Context, h Handle) error
}

// Sandbox is one isolated place with a workspace.
type Sandbox interface {
	// Exec runs one command and returns how it ended. It returns an error only
	// when the command could not be run for a reason that lies in the backend.
	//
	// When ctx ends the whole process tree of the command must die, descendants
	// that made their own session too: first SIGTERM, after cmd.Grace SIGKILL.
	// context.Cause(ctx) says why: [ErrTimeout], [ErrCancelled], [ErrOutputLimit] or [ErrHostGone];
	// [CauseOf] turns it into a [Cause].
	//
	// Exec is called concurrently on one sandbox.
	Exec(ctx context.Context, cmd *Command) (*Exit, error)

	// Ready says what the sandbox really is. It is called once, after Create or Attach.
	Ready() Ready
}

// Preparer is a [Backend] that can have something ready for its first sandbox.
type Preparer interface {
	// Prepare is called once when a host has started the process, beside the work of answering its first calls. It must
	// make nothing that outlives the process.
	Prepare()
}

// Planner is a [Backend] that can tell, without making anything, how it would
// hold the limits of a spec on this machine. A backend without it holds exactly
// the limits listed in [Description.Limits].
type Planner interface {
	// Plan must be quick (below 5 ms) and free of side effects. Each limit that
	// the spec asks for, and each default the backend would apply, gets one [Hold].
	// Diagnostics are about the spec's values: a path in [Diagnostic.Path] leads
	// to the attribute of the backend block. An error without a path says that the
	// backend is not able on this machine, as does the error of Plan itself; the
	// run's next backend is looked at then.
	Plan(ctx context.Context, spec *Spec) (*Plan, error)
}

// Plan is the answer of a [Planner].
type Plan struct {
	// Holds has one entry for each limit that was asked for, timeout among them, with the same HeldBy as Ready.Holds will
	// have; one that cannot be held here has Reason and Fix instead.
	Holds       []Hold
	Diagnostics []Diagnostic
	Notes       []string // what a careful user should know, one sentence each
}

// Attacher is a [Backend] whose sandboxes outlive the plugin process.
type Attacher interface {
	// Attach finds a sandbox again by its handle alone. A sandbox that is gone is
	// an [Error] with [ReasonNotFound]. Commands of a plugin process that was killed
	// have ended when Attach returns; those of a process that lives go on.
	Attach(ctx context.Context, h Handle) (Sandbox, error)
}

// Lister is a [Backend] that can find what it made.
type Lister interface {
	// List returns the handles of all sandboxes which carry the owner given at
	// Create, whichever process made them. An empty owner means all of them.
	List(ctx context.Context, owner string) ([]Handle, error)
}

// Inspector is a [Sandbox] that can say how it is.
type Inspector interface {
	Inspect(ctx context.Context) (Status, error)
}

// State is where a sandbox is in its life.
type State string

// The states of a sandbox.
const (
	StateReady   State = "ready"   // Exec works
	StateStopped State = "stopped" // exists, but must be started before Exec works
	StateAsleep  State = "asleep"  // Exec works and starts it first, which may take long
	StateGone    State = "gone"    // nothing is left of it
)

// Status is the answer of an [Inspector].
type Status struct {
	State   State
	Details map[string]string // free facts for a person: image, overlay strategy, address; and [DetailPID]
}

// DetailPID is the name of the detail with the id of a process of this machine below which all commands of the sandbox
// run. The host shows what these use. A backend whose commands run elsewhere has no such detail.
const DetailPID = "pid"

// Format says how bytes in [Putter] and [Getter] represent files.
type Format = contract.Format

// The formats. A backend lists those it takes in [Description.Formats].
const (
	FormatTar    = contract.FormatTar    // a directory tree as an uncompressed tar stream
	FormatFile   = contract.FormatFile   // the content of one regular file
	FormatBundle = contract.FormatBundle // a git bundle
)

// Putter is a [Sandbox] that takes files in.
type Putter interface {
	// Put writes what r holds at path inside the sandbox. A tree is merged into
	// path, which is made when missing; a file replaces the one that was there, in one step, and takes its permissions;
	// a new one has mode 0644.
	Put(ctx context.Context, path string, format Format, r io.Reader) error
}

// Getter is a [Sandbox] that gives files out. The host collects outputs with it,
// and treats every byte of them as hostile.
type Getter interface {
	// Get writes what is at path inside the sandbox to w. A path that does not
	// exist is an [Error] with [ReasonNotFound]. Of a file it first gives [Progress] the
	// size as total, holes included, before the first byte is read: the host then ends a
	// Get of more than it takes.
	Get(ctx context.Context, path string, format Format, w io.Writer) error
}

// Remover is a [Sandbox] that removes files.
type Remover interface {
	// Remove removes what is at path inside the sandbox: a file, a symbolic link and not what it points to, and with
	// recursive a directory and all that is in it, also where their modes forbid it. A directory without recursive is an
	// [Error] with [ReasonConfig], even an empty one; so are a relative path, and the directories that the sandbox
	// itself is made of: its root, the workspace, input and output. A path that does not exist is [ReasonNotFound]. No
	// link leads it out of the sandbox. It does no more than a command of the sandbox could.
	Remove(ctx context.Context, path string, recursive bool) error
}

// Dialer is a [Sandbox] whose servers the host can connect to, and nobody else.
type Dialer interface {
	// Dial connects to a TCP port, 1 to 65535, of the sandbox's loopback: 127.0.0.1 or, where nothing listens there, ::1.
	// Where commands have a loopback each, it tries those of the commands that run, the newest first. Where nothing
	// listens it returns an [Error] with [ReasonNotFound]. It works whatever [Spec.Network] is, and gives the sandbox no
	// network. The caller closes the connection. Package network/loopback helps on Linux. Dial is called concurrently.
	Dial(ctx context.Context, port int) (net.Conn, error)
}

// ChangeLister is a [Sandbox] that knows what differs between its workspace and
// the host directory the workspace was made from.
type ChangeLister interface {
	// Changes returns the differences in path order.
	Changes(ctx context.Context) ([]Change, error)
}

// Resetter is a [Sandbox] that can be recreated.
type Resetter interface {
	// Reset ends every process of the sandbox and recreates its surroundings. The
	// writes to the workspace stay, unless hard.
	Reset(ctx context.Context, hard bool) error
}

// Stopper is a [Sandbox] that can be put to rest and taken up again. Only one that was made with [CreateRequest.Keep]
// is.
type Stopper interface {
	// Stop ends every process of the sandbox and gives back what it holds besides its files: memory, processors, a
	// virtual machine, what a service bills. The writes to the workspace and the output stay. Afterwards Inspect says
	// [StateStopped] or [StateAsleep], in other processes too; Reset and Destroy work as ever. A sandbox that is stopped
	// is success.
	Stop(ctx context.Context) error

	// Start makes the sandbox [StateReady] again. progress, which is never nil, may be called with how far that is, as
	// [CreateRequest.Progress] is. A sandbox that is ready is success, and what runs in it is left alone.
	Start(ctx context.Context, progress func(step string, done, total int64)) error
}

// Handle finds a sandbox again. The host keeps it on disk.
type Handle struct {
	ID   string          `json:"id"`             // the id the host chose at Create
	Data json.RawMessage `json:"data,omitempty"` // whatever the backend needs to find the sandbox; at most 64 KiB, no secrets

	// StateDir is where [CreateRequest.StateDir] is now, in Attach and Destroy; "" when the host does not know. The host's
	// store may have been moved or copied since Create: a path in Data may be another sandbox's by now.
	StateDir string `json:"-"`
}
