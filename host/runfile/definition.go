package runfile

import (
	"io"
	"io/fs"
	"regexp"

	"github.com/hashicorp/go-version"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/runfile/internal/tree"
	"github.com/hutch-run/hutch/host/units"
)

// Config is all that the run files of one call say.
type Config struct {
	Files []*RunFile // in the order given
}

// Runs returns the definitions of all files in order.
func (c *Config) Runs() []*Definition {
	var all []*Definition
	for _, f := range c.Files {
		all = append(all, f.Runs...)
	}
	return all
}

// Generates returns the generate blocks of all files in order.
func (c *Config) Generates() []*Generate {
	var all []*Generate
	for _, f := range c.Files {
		all = append(all, f.Generates...)
	}
	return all
}

// Cycles returns the cycle blocks of all files in order.
func (c *Config) Cycles() []*Cycle {
	var all []*Cycle
	for _, f := range c.Files {
		all = append(all, f.Cycles...)
	}
	return all
}

// RunFile is one evaluated run file.
type RunFile struct {
	Path string // as given
	Dir  string // absolute directory of the file: what its relative paths are relative to

	RequiredBackends []RequiredBackend // in the order of the file
	MinIsolation     string            // "" when the file does not say
	Variables        []Variable        // in the order of the file
	Models           []*Model          // in the order of the file
	Runs             []*Definition     // in the order of the file; for_each instances in the order of their keys
	Generates        []*Generate       // in the order of the file
	Cycles           []*Cycle          // in the order of the file
}

// RequiredBackend is one entry of required_backends.
type RequiredBackend struct {
	Name        string
	Source      string              // "" when not given
	Version     string              // constraint as written, "" when not given
	Constraints version.Constraints // Version, parsed; empty accepts any version
	Range       diag.Range
}

// Variable is one declared variable with the value it got.
type Variable struct {
	Name        string
	Type        string // as a type constraint, such as list(string)
	Description string
	Sensitive   bool
	Origin      string // "default", "--var", "HUTCH_VAR_x", or the file the value came from; "missing" without a value
	Value       string // as an HCL expression; "(sensitive)" when it is, "(unknown)" without a value
}

// Definition is one run, ready to be run: a run block, or one instance of it by for_each. All values are plain and
// checked; those that hold secrets hold them in clear.
type Definition struct {
	Name     string // label of the run block
	Key      string // each.key, "" without for_each
	Instance string // Name, or Name["key"]

	File             string            // the run file as it was given; "" without one
	Dir              string            // absolute directory of the run file; "" without one
	RequiredBackends []RequiredBackend // of the run file

	Description  string
	Backends     []*Backend // in the order in which they are tried; may be empty: then the caller has to name one
	MinIsolation string     // the stronger one of the file's and the run's; "" when neither says

	Files        []File            // sorted by path
	Home         []HomeFile        // in the order of the file
	Language     string            // "" to go by the entrypoint
	Interpreter  []string          // empty unless given
	Entrypoint   string            // "" with Command
	EntrypointIn Place             // where Entrypoint lies
	Command      []string          // empty with Entrypoint
	Args         []string          // for either
	Env          map[string]string // never nil
	Dependencies []string
	Workdir      string // absolute inside the sandbox, or relative to /workspace; "" means the default
	Stdin        *string

	Workspace *Workspace // nil for an empty directory
	Mounts    []Mount    // in the order of the file
	Limits    Limits
	Network   network.Network
	Outputs   []string // globs below the output directory; empty for everything
	Expect    *Expect  // nil when the block is missing

	// Parent is the id of the loop of a model that the run is part of, or of the run that it repeats; "" for none. No file
	// says it.
	Parent string

	// Given reports values that did not come from the run file where they came from, such as --memory, by their path as
	// for [Definition.RangeOf].
	Given map[string]string

	origin *origin // nil for a run that comes from flags
}

// Place is where a run finds something.
type Place string

// The places.
const (
	InInput     Place = "input"     // among the declared files
	InWorkspace Place = "workspace" // in the workspace
)

// File is one file that the sandbox sees below its input directory.
type File struct {
	Path      string      // clean, slash-separated, relative
	Mode      fs.FileMode // permission bits: 0644 or 0755 where the file does not say
	Size      int64       // bytes
	Content   []byte      // nil when the file comes from disk
	Source    string      // slash-separated and relative to the run file's directory; "" when Content is set
	Sensitive bool        // Content holds a secret: do not store it

	tree *tree.Root                    // where Source is
	open func() (io.ReadCloser, error) // in its stead, for a file of a recorded run
}

// Workspace is the project directory of a run.
type Workspace struct {
	Source  string // absolute host directory
	Project string // name of the shared project that Source belongs to; "" for any other directory
	Mode    string // "private", "shared" or "readonly"
}

// Mount is a directory of this machine that the sandbox sees beside its workspace. What is written to a writable one
// lands there at once, without review.
type Mount struct {
	Target string `json:"target"` // absolute and clean, in the sandbox
	Source string `json:"source"` // absolute host directory
	Mode   string `json:"mode"`   // MountReadOnly or MountWritable
}

// The modes of mounts.
const (
	MountReadOnly = "readonly"
	MountWritable = "writable"
)

// Expect is what has to be so for the run to count as good.
type Expect struct {
	ExitCodes []int         // any of them; empty means not said
	Causes    []string      // any of them; empty means not said
	Stdout    *ExpectStream // nil means not said
	Stderr    *ExpectStream
	Outputs   []string       // globs, each of which must match an output
	Within    units.Duration // wall time that must not be passed; 0 means not said
}

// ExpectStream is what has to be so for the kept bytes of a stream.
type ExpectStream struct {
	Equals   *string
	Empty    *bool
	Contains []string
	Excludes []string
	Matches  []*regexp.Regexp // RE2; ^ and $ match at lines
}
