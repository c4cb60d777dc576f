package runfile

import (
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"

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
	return collect(c, func(f *RunFile) []*Definition { return f.Runs })
}

// Generates returns the generate blocks of all files in order.
func (c *Config) Generates() []*Generate {
	return collect(c, func(f *RunFile) []*Generate { return f.Generates })
}

// Cycles returns the cycle blocks of all files in order.
func (c *Config) Cycles() []*Cycle { return collect(c, func(f *RunFile) []*Cycle { return f.Cycles }) }

// Agents returns the agent blocks of all files in order.
func (c *Config) Agents() []*Agent { return collect(c, func(f *RunFile) []*Agent { return f.Agents }) }

func collect[T any](c *Config, of func(*RunFile) []T) (all []T) {
	for _, f := range c.Files {
		all = append(all, of(f)...)
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
	Agents           []*Agent          // in the order of the file
}

// RequiredBackend is one entry of required_backends.
type RequiredBackend struct {
	Name        string              `json:"name"`
	Source      string              `json:"source,omitempty"`  // "" when not given
	Version     string              `json:"version,omitempty"` // constraint as written, "" when not given
	Constraints version.Constraints `json:"-"`                 // Version, parsed; empty accepts any version
	Range       diag.Range          `json:"-"`
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
// checked; those that hold secrets hold them in clear. Its JSON form is stable, see [Definition.MarshalJSON] and
// [Recall].
type Definition struct {
	Name     string `json:"run"`           // label of the run block
	Key      string `json:"key,omitempty"` // each.key, "" without for_each
	Instance string `json:"instance"`      // Name, or Name["key"]

	// Parent is the id of the loop of a model that the run is part of, or of the run that it repeats; "" for none. No file
	// says it.
	Parent string `json:"parent,omitempty"`

	File             string            `json:"file,omitempty"` // the run file as it was given; "" without one
	Dir              string            `json:"dir,omitempty"`  // absolute directory of the run file; "" without one
	Description      string            `json:"description,omitempty"`
	RequiredBackends []RequiredBackend `json:"required_backends,omitempty"` // of the run file
	Backends         []*Backend        `json:"-"`                           // in the order in which they are tried; may be empty: then the caller has to name one
	MinIsolation     string            `json:"min_isolation,omitempty"`     // the stronger one of the file's and the run's; "" when neither says

	Files        []File            `json:"files,omitempty"`         // sorted by path
	Home         []HomeFile        `json:"home,omitempty"`          // in the order of the file
	Language     string            `json:"language,omitempty"`      // "" to go by the entrypoint
	Interpreter  []string          `json:"interpreter,omitempty"`   // empty unless given
	Entrypoint   string            `json:"entrypoint,omitempty"`    // "" with Command
	EntrypointIn Place             `json:"entrypoint_in,omitempty"` // where Entrypoint lies
	Command      []string          `json:"command,omitempty"`       // empty with Entrypoint
	Args         []string          `json:"args,omitempty"`          // for either
	Env          map[string]string `json:"env,omitempty"`           // never nil
	Dependencies []string          `json:"dependencies,omitempty"`
	LockFile     string            `json:"lock_file,omitempty"` // text of the dependencies' lock file; "" for none
	MinAge       units.Duration    `json:"min_age,omitempty"`   // of each release of a dependency; 0 for any
	Workdir      string            `json:"workdir,omitempty"`   // absolute inside the sandbox, or relative to /workspace; "" means the default
	Stdin        *string           `json:"stdin,omitempty"`

	Workspace *Workspace      `json:"workspace,omitempty"` // nil for an empty directory
	Mounts    []Mount         `json:"mounts,omitempty"`    // further directories of this machine
	Limits    Limits          `json:"limits,omitzero"`
	Network   network.Network `json:"network"`
	Outputs   []string        `json:"outputs,omitempty"` // globs below the output directory; empty for everything
	Expect    *Expect         `json:"expect,omitempty"`  // nil when the block is missing

	// Given reports values that did not come from the run file where they came from, such as --memory, by their path as
	// for [Definition.RangeOf].
	Given map[string]string `json:"-"`

	// Observe has the result say which files of this machine the command names, on a backend that can tell.
	Observe bool `json:"-"`

	origin *origin // nil for a run that comes from flags
}

// Place is where a run finds something.
type Place string

// The places.
const (
	InInput     Place = "input"     // among the declared files
	InWorkspace Place = "workspace" // in the workspace
)

// Installs reports whether packages are installed before the run.
func (d *Definition) Installs() bool { return len(d.Dependencies) > 0 || d.LockFile != "" }

// File is one file that the sandbox sees below its input directory.
type File struct {
	Path      string `json:"path"`                // clean, slash-separated, relative
	Mode      Mode   `json:"mode"`                // 0644 or 0755 where the file does not say
	Size      int64  `json:"size,omitempty"`      // bytes
	Content   []byte `json:"-"`                   // nil when the file comes from disk
	Source    string `json:"source,omitempty"`    // slash-separated and relative to the run file's directory; "" when Content is set
	Sensitive bool   `json:"sensitive,omitempty"` // Content holds a secret: do not store it

	tree *tree.Root                    // where Source is
	open func() (io.ReadCloser, error) // in its stead, for a file of a recorded run
}

// Workspace is the project directory of a run.
type Workspace struct {
	Source  string `json:"source"`            // absolute host directory
	Project string `json:"project,omitempty"` // name of the shared project that Source belongs to; "" for any other directory
	Mode    string `json:"mode"`              // "private", "shared" or "readonly"
	// Omit are paths in it whose changes are for no review: what git and tools keep there for themselves. No run file says
	// it.
	Omit []string `json:"omit,omitempty"`
}

// Mount is a directory of this machine that the sandbox sees beside its workspace. What is written to a writable one
// lands there at once, without review.
type Mount struct {
	Target string `json:"target"` // absolute and clean, in the sandbox
	Source string `json:"source"` // absolute host directory
	Mode   string `json:"mode"`   // MountReadOnly or MountWritable
}

// CheckMountTarget reports why no directory can be mounted at target.
func CheckMountTarget(target string) error {
	if !path.IsAbs(target) || path.Clean(target) != target || target == "/" || strings.ContainsRune(target, 0) {
		return fmt.Errorf("nothing can be mounted at %s", quote(target))
	}
	return nil
}

// The modes of mounts.
const (
	MountReadOnly = "readonly"
	MountWritable = "writable"
)

// Expect is what has to be so for the run to count as good.
type Expect struct {
	ExitCodes []int          `json:"exit_codes,omitempty"` // any of them; empty means not said
	Causes    []string       `json:"causes,omitempty"`     // any of them; empty means not said
	Stdout    *ExpectStream  `json:"stdout,omitempty"`     // nil means not said
	Stderr    *ExpectStream  `json:"stderr,omitempty"`
	Outputs   []string       `json:"outputs,omitempty"` // globs, each of which must match an output
	Within    units.Duration `json:"within,omitzero"`   // wall time that must not be passed; 0 means not said
}

// ExpectStream is what has to be so for the kept bytes of a stream.
type ExpectStream struct {
	Equals   *string  `json:"equals,omitempty"`
	Empty    *bool    `json:"empty,omitempty"`
	Contains []string `json:"contains,omitempty"`
	Excludes []string `json:"excludes,omitempty"`
	Matches  []string `json:"matches,omitempty"` // for [CompilePattern]
}

// CompilePattern compiles a pattern of an expect block: RE2, in which ^ and $ match at lines.
func CompilePattern(text string) (*regexp.Regexp, error) { return regexp.Compile("(?m)" + text) }
