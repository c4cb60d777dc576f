package store

import (
	"encoding/json"
	"errors"
	"time"
)

// SandboxSchema is the schema of sandbox.json.
const SandboxSchema = "hutch.sandbox/v1"

// SandboxState is where the record of a persistent sandbox is in its life. How the sandbox itself is, only its backend
// can tell.
type SandboxState string

// The states of a sandbox's record.
const (
	SandboxCreating SandboxState = "creating" // its host process is making it, or died while it did
	SandboxReady    SandboxState = "ready"    // it is there, until somebody removes it
	// SandboxRemoving says that it is to be removed: somebody began to, or the process that it belongs to is gone. Its
	// name is free. The next command finishes it: [Store.FinishSandboxes].
	SandboxRemoving SandboxState = "removing"
	SandboxDamaged  SandboxState = "damaged" // its record cannot be read
)

// Errors about persistent sandboxes that callers tell apart with errors.Is.
var (
	// ErrNoSandbox says that there is no such sandbox.
	ErrNoSandbox = errors.New("no such sandbox")
	// ErrInUse says that another process works in the sandbox, or that one has it for itself.
	ErrInUse = errors.New("it is in use")
	// ErrNameTaken says that a sandbox has the name already.
	ErrNameTaken = errors.New("the name is taken")
	// ErrHalf says that the sandbox was never finished or is half removed, and that nobody is about to change that.
	ErrHalf = errors.New("it is no whole sandbox (`hutch gc` removes what is left of it)")
)

// SandboxInfo is the record of a sandbox that outlives its command: sandbox.json in its directory.
type SandboxInfo struct {
	Schema string       `json:"schema"`
	ID     string       `json:"id"`   // sorts by time, like the id of a run
	Name   string       `json:"name"` // unique among the sandboxes that are not being removed
	State  SandboxState `json:"state"`

	Backend        string `json:"backend"`
	BackendVersion string `json:"backend_version,omitempty"`
	Binary         string `json:"binary"`                  // path of the plugin that made it
	BinarySHA256   string `json:"binary_sha256,omitempty"` // hex
	Owner          string `json:"owner,omitempty"`         // what the backend marked its parts with
	Home           string `json:"home,omitempty"`          // Paths.Data of the store that it belongs to; see [Store.Original]

	File    string `json:"file,omitempty"`    // run file that it was made from
	Run     string `json:"run,omitempty"`     // label of the run block in it
	MadeBy  string `json:"made_by,omitempty"` // id of the run that left it, see hutch run --keep
	Project string `json:"project,omitempty"` // shared project directory that is its workspace

	Workspace SandboxWorkspace `json:"workspace"`
	Network   string           `json:"network,omitempty"`
	Limits    json.RawMessage  `json:"limits,omitempty"`  // as asked for and held: a list of result limits
	Mounts    []string         `json:"mounts,omitempty"`  // host directories besides the workspace that it needs
	Workdir   string           `json:"workdir,omitempty"` // where commands start
	EnvNames  []string         `json:"env,omitempty"`     // names of the variables that its commands get

	Push *SandboxPush `json:"push,omitempty"` // nil unless hutch push made it

	Created time.Time  `json:"created"`
	Started *time.Time `json:"started,omitempty"` // when it was last made again; nil for never
	Host    Process    `json:"host"`              // that made it
	// EndsWith is the process that the sandbox must not outlive, such as an MCP server; nil for a sandbox that stays.
	EndsWith *Process        `json:"ends_with,omitempty"`
	Handle   json.RawMessage `json:"handle,omitempty"` // what the backend needs to find it again

	// Damage says why the record cannot be read, for [SandboxDamaged].
	Damage string `json:"damage,omitempty"`
}

// SandboxPush is what hutch push sent into a sandbox, and where it is there.
type SandboxPush struct {
	Repository string `json:"repository"` // work tree on this host, absolute
	Branch     string `json:"branch"`     // that was checked out
	Head       string `json:"head"`       // its commit then
	Base       string `json:"base"`       // the commit that was sent: Head, or one on top of it with what was not committed
	Plan       string `json:"plan"`       // relative to the repository
	Sent       int64  `json:"sent"`       // bytes of the bundle that was sent last; 0 where nothing was missing

	// As commands see it:
	Clone    string `json:"clone"`             // directory of the clone
	Exchange string `json:"exchange"`          // directory of the bundles
	PlanPath string `json:"plan_path"`         // file with the plan
	Workdir  string `json:"workdir,omitempty"` // where the command starts; empty for the clone

	Timeout time.Duration `json:"timeout_ns"`    // of the command
	Run     string        `json:"run,omitempty"` // of the command that works on it, the last one
}

// SandboxLayers are the directories of this host that a workspace is made of; the fields are those of sdk.Layers.
type SandboxLayers struct {
	Lower   string `json:"lower,omitempty"`
	Upper   string `json:"upper,omitempty"`
	Trusted bool   `json:"trusted,omitempty"`
}

// SandboxWorkspace is what a sandbox has as its workspace.
type SandboxWorkspace struct {
	Source string `json:"source,omitempty"` // host directory, absolute; empty for a directory of the sandbox's own
	Mode   string `json:"mode"`             // private, shared or readonly
	Path   string `json:"path,omitempty"`   // as commands see it
	Input  string `json:"input,omitempty"`  // where commands see the input, if there is one
	Output string `json:"output,omitempty"` // where commands see the output directory
	// Layers are the directories of this host that it can be read in, as its backend told; nil when there are none.
	Layers *SandboxLayers `json:"layers,omitempty"`
}
