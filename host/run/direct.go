package run

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"

	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/sdk"
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
func (d Direct) Definition() (*runfile.Definition, error) {
	if len(d.Command) == 0 || d.Command[0] == "" {
		return nil, errors.New("there is no command to run: give it after --")
	}
	if d.Backend == "" {
		return nil, errors.New("there is no backend to run it on: name one with --backend")
	}
	def := &runfile.Definition{
		Name: d.Name, Backends: []*runfile.Backend{runfile.NewBackend(d.Backend)},
		Command: slices.Clone(d.Command), Env: maps.Clone(d.Env), Workdir: d.Workdir, Limits: d.Limits,
		Network: d.Network, Outputs: slices.Clone(d.Outputs),
	}
	if def.Name == "" {
		def.Name = path.Base(d.Command[0])
	}
	def.Instance = def.Name
	if def.Env == nil {
		def.Env = map[string]string{}
	}
	switch def.Network {
	case "":
		def.Network = string(sdk.NetworkNone)
	case string(sdk.NetworkNone), string(sdk.NetworkFull):
	default:
		return nil, fmt.Errorf("network %q is neither none nor full", def.Network)
	}
	if d.Workspace != "" {
		if !filepath.IsAbs(d.Workspace) {
			return nil, fmt.Errorf("workspace %q is not absolute", d.Workspace)
		}
		mode := sdk.WorkspaceMode(d.Mode)
		switch mode {
		case "":
			mode = sdk.WorkspacePrivate
		case sdk.WorkspacePrivate, sdk.WorkspaceShared, sdk.WorkspaceReadOnly:
		default:
			return nil, fmt.Errorf("workspace mode %q is none of private, shared, readonly", d.Mode)
		}
		def.Workspace = &runfile.Workspace{Source: filepath.Clean(d.Workspace), Mode: string(mode)}
	}
	return def, nil
}

// Overrides are flags that change what a run file says. Zero fields leave it as it is.
type Overrides struct {
	Backends []string // tried in order instead of those in the file; blocks of the same name keep their body
	Limits   runfile.Limits
	Network  string
	Env      map[string]string
	Args     []string // appended to args
}

// Apply returns a copy of d with the overrides in place.
func (o Overrides) Apply(d *runfile.Definition) *runfile.Definition {
	c := *d
	if len(o.Backends) > 0 {
		c.Backends = nil
		for _, name := range o.Backends {
			i := slices.IndexFunc(d.Backends, func(b *runfile.Backend) bool { return b.Name == name })
			if i < 0 {
				c.Backends = append(c.Backends, runfile.NewBackend(name))
			} else {
				c.Backends = append(c.Backends, d.Backends[i])
			}
		}
	}
	l := &c.Limits
	set(&l.Timeout, o.Limits.Timeout)
	set(&l.Memory, o.Limits.Memory)
	set(&l.CPUs, o.Limits.CPUs)
	set(&l.PIDs, o.Limits.PIDs)
	set(&l.Disk, o.Limits.Disk)
	set(&l.Files, o.Limits.Files)
	set(&l.Output, o.Limits.Output)
	set(&l.OutputTotal, o.Limits.OutputTotal)
	set(&c.Network, o.Network)
	if len(o.Env) > 0 {
		c.Env = maps.Clone(d.Env)
		if c.Env == nil {
			c.Env = map[string]string{}
		}
		maps.Copy(c.Env, o.Env)
	}
	c.Args = append(slices.Clone(d.Args), o.Args...)
	return &c
}

func set[T comparable](to *T, v T) {
	var zero T
	if v != zero {
		*to = v
	}
}

// EachBackend returns one copy of d per backend that it names, for --all-backends: their instance names end in
// " on NAME".
func EachBackend(d *runfile.Definition) []*runfile.Definition {
	var l []*runfile.Definition
	for _, b := range d.Backends {
		c := *d
		c.Backends = []*runfile.Backend{b}
		c.Instance = d.Instance + " on " + b.Name
		l = append(l, &c)
	}
	return l
}
