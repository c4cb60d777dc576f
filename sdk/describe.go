package sdk

import (
	"errors"
	"slices"
)

// Description holds the facts about a backend that never change while its binary
// stays the same.
type Description struct {
	Name    string // ^[a-z][a-z0-9-]*$, the NAME of hutch-backend-NAME and of the block in run files
	Version string // semantic version, without a leading v
	Summary string // one line for `hutch backend list`

	// Isolation is what stands between the code and the host.
	Isolation Isolation

	// Config is a value of the struct that a backend block is decoded into; nil
	// means that the block takes no attributes. Its tags are the schema: see
	// [SchemaOf]. [Spec.Config] holds a pointer to a fresh value of this type.
	Config any

	// Limits lists the limits that the backend can hold on a machine that has all
	// it needs. The host refuses a run which asks for any other.
	Limits []Limit

	// Workspaces lists the modes in which a directory of the host can be the workspace;
	// empty means none. An empty workspace that is private needs no claim.
	Workspaces []WorkspaceMode

	// Networks lists the network modes that work; empty means only [NetworkNone].
	Networks []NetworkMode

	// Formats lists what Put and Get of its sandboxes speak.
	Formats []Format

	// Sandbox is a nil pointer of the type that Create returns, such as
	// (*sandbox)(nil). The SDK reads the optional interfaces of sandboxes from it.
	Sandbox Sandbox

	// TTY says that Exec can give the command a terminal.
	TTY bool

	// Secrets says that Exec puts in [Command.Secrets] at the wall of a filtered network.
	Secrets bool

	// Observe says that Exec reports in [Exit.Files] what a command with [Command.Observe] opens.
	Observe bool
	// Budget says that Exec holds [Command.Budget].
	Budget bool
	// Allow says that Exec holds [Command.Allow].
	Allow bool

	// Fork says that Create copies what [CreateRequest.From] has written.
	Fork bool
	// Ahead says that Create and [Stopper.Start] do what [CreateRequest.Ahead] asks for.
	Ahead bool

	// Environment lists the variables of the host's environment that the plugin
	// process wants to see, for example E2B_API_KEY. All others but a short list
	// (PATH, HOME, USER, LANG, TMPDIR, XDG_*, proxy variables) are withheld.
	Environment []string
}

// Isolation orders backends by what stands between the code and the host.
type Isolation string

// From weakest to strongest.
const (
	IsolationNone      Isolation = "none"      // a plain process: for tests and trusted code only
	IsolationProcess   Isolation = "process"   // the host's kernel and namespaces, and rules for what the process may do
	IsolationNamespace Isolation = "namespace" // the host's kernel, its own view of everything
	IsolationContainer Isolation = "container" // the same with a root file system of its own
	IsolationVM        Isolation = "vm"        // its own kernel
	IsolationRemoteVM  Isolation = "remote-vm" // its own kernel on somebody else's machine
)

// Isolations are all levels, from the weakest to the strongest.
var Isolations = []Isolation{IsolationNone, IsolationProcess, IsolationNamespace, IsolationContainer, IsolationVM,
	IsolationRemoteVM}

// Rank returns 0 for none up to 5 for remote-vm, and -1 for anything else.
func (i Isolation) Rank() int {
	return slices.Index(Isolations, i)
}

// Capability names one optional interface that a backend implements. The SDK
// derives the list; authors never write it.
type Capability string

// The capabilities. A host ignores names it does not know.
const (
	CapPlan    Capability = "plan"
	CapAttach  Capability = "attach"
	CapList    Capability = "list"
	CapInspect Capability = "inspect"
	CapPut     Capability = "put"
	CapGet     Capability = "get"
	CapRemove  Capability = "remove"
	CapChanges Capability = "changes"
	CapReset   Capability = "reset"
	CapStop    Capability = "stop"
	CapTTY     Capability = "tty"
	CapSecrets Capability = "secrets"
	CapDial    Capability = "dial"
	CapObserve Capability = "observe"
	CapFork    Capability = "fork"
	CapBudget  Capability = "budget"
	CapAhead   Capability = "ahead"
	CapAllow   Capability = "allow"
)

// Finding is one thing that Check looked at.
type Finding struct {
	Name   string   // what was probed, e.g. "user namespaces"
	Status Severity // SeverityOK, SeverityWarning (works, but weaker or slower) or SeverityError (will not work)
	Detail string   // what was found
	Fix    string   // the command or the change that mends it; empty when nothing is to be done
}

// Failed is the finding of something that does not work, and says what err says.
func Failed(name string, err error) Finding {
	f := Finding{Name: name, Status: SeverityError, Detail: err.Error()}
	var e *Error
	if errors.As(err, &e) {
		f.Detail, f.Fix = e.Summary, e.Fix
		if e.Detail != "" {
			f.Detail += ": " + e.Detail
		}
	}
	return f
}
