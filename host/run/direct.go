package run

import (
	"github.com/hutch-run/hutch/host/runfile"
)

// Direct describes a run that has no run file: `hutch run --backend B -- CMD…`.
type Direct struct {
	Backend   string
	Command   []string
	Env       map[string]string
	Workdir   string
	Workspace string // host directory, absolute; "" for none
	Mode      string // of the workspace; "" means private
	Network   string // "" means none
	Limits    runfile.Limits
	Outputs   []string
	Name      string // "" takes the base name of the command
}

// Definition makes the definition, the same as a run file would give.
func (d Direct) Definition() (*runfile.Definition, error) { return nil, errNotImplemented }

// Overrides are flags that change what a run file says. Zero fields leave it as it is.
type Overrides struct {
	Backends []string // tried in order instead of those in the file; blocks of the same name keep their body
	Limits   runfile.Limits
	Network  string
	Env      map[string]string
	Args     []string // appended to args
}

// Apply returns a copy of d with the overrides in place.
func (o Overrides) Apply(d *runfile.Definition) *runfile.Definition { return d }

// EachBackend returns one copy of d per backend that it names, for --all-backends: their instance names end in
// " on NAME".
func EachBackend(d *runfile.Definition) []*runfile.Definition { return []*runfile.Definition{d} }
