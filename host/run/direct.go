package run

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/sdk"
)

// Direct describes a run that has no run file: `hutch run --backend B -- CMD…`.
type Direct struct {
	Backend   string // "" takes the default ones
	Command   []string
	Script    *runfile.File     // runs in the place of Command
	Language  string            // of Script; "" goes by its name
	Args      []string          // of Script
	Env       map[string]string // whose values are not recorded
	Passed    []string          // names in Env whose values came from the caller's environment, and are secrets
	Workdir   string
	Workspace string // host directory, absolute; "" for none
	Mode      string // of the workspace; "" means private
	Mounts    []runfile.Mount
	Network   network.Network
	Limits    runfile.Limits
	Outputs   []string
	Name      string // "" takes the base name of the command
}

// flags are the flags of `hutch run` by the paths of the values that they give.
var flags = func() map[string]string {
	m := map[string]string{
		"backend[0]": "--backend", "network.mode": "--network", "network.allow": "--allow-host",
		"network.publish": "--publish",
		"workdir":         "--workdir", "min_age": "--min-age", "workspace.source": "--workspace",
		"workspace.mode": "--workspace",
	}
	for _, l := range runfile.AllLimits {
		m[l.Path()] = l.Flag
	}
	return m
}()

// Definition makes the definition, the same as a run file would give.
func (d Direct) Definition() (*runfile.Definition, error) {
	if d.Script == nil && (len(d.Command) == 0 || d.Command[0] == "") {
		return nil, errors.New("there is no command to run: give it after --")
	}
	def := &runfile.Definition{
		Name:    d.Name,
		Command: slices.Clone(d.Command), Env: maps.Clone(d.Env), Workdir: d.Workdir, Limits: d.Limits,
		Network: d.Network.OrNone(), Outputs: slices.Clone(d.Outputs), Mounts: slices.Clone(d.Mounts), Given: flags,
	}
	if d.Script != nil {
		def.Entrypoint, def.EntrypointIn, def.Language, def.Args = d.Script.Path, runfile.InInput, d.Language,
			slices.Clone(d.Args)
		def.Files = []runfile.File{*d.Script}
	}
	if def.Name == "" && d.Script != nil {
		def.Name = path.Base(d.Script.Path)
	}
	if def.Name == "" {
		def.Name = path.Base(d.Command[0])
	}
	def.Instance = def.Name
	if d.Backend != "" {
		def.Backends = []*runfile.Backend{runfile.NewBackend(d.Backend)}
	}
	if def.Env == nil {
		def.Env = map[string]string{}
	}
	def.HideEnv(slices.Collect(maps.Keys(d.Env)), d.Passed)
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
			return nil, fmt.Errorf("workspace mode %q is not one of private, shared, readonly", d.Mode)
		}
		def.Workspace = &runfile.Workspace{Source: filepath.Clean(d.Workspace), Mode: string(mode)}
	}
	return def, nil
}

// Overrides are flags that change what a run file says. Zero fields leave it as it is.
type Overrides struct {
	Backends []string // tried in order instead of those in the file; blocks of the same name keep their body
	Limits   runfile.Limits
	Network  network.Network   // see [network.Network.With]
	Env      map[string]string // whose values are not recorded
	Passed   []string          // names in Env whose values came from the caller's environment, and are secrets
	Args     []string          // appended to args
	Mounts   []runfile.Mount   // replace those of the same target
	MinAge   units.Duration    // of releases of dependencies
}

// Apply returns a copy of d with the overrides in place.
func (o Overrides) Apply(d *runfile.Definition) *runfile.Definition {
	c := *d
	c.Given = maps.Clone(d.Given)
	given := func(path string) {
		if c.Given == nil {
			c.Given = map[string]string{}
		}
		c.Given[path] = flags[path]
	}
	if len(o.Backends) > 0 {
		c.Backends = nil
		for n, name := range o.Backends {
			i := slices.IndexFunc(d.Backends, func(b *runfile.Backend) bool { return b.Name == name })
			if at := fmt.Sprintf("backend[%d]", n); flags[at] != "" {
				given(at)
			}
			if i < 0 {
				c.Backends = append(c.Backends, runfile.NewBackend(name))
			} else {
				c.Backends = append(c.Backends, d.Backends[i])
			}
		}
	}
	for _, l := range c.Limits.Override(o.Limits) {
		given(l.Path())
	}
	if o.Network.Mode != "" {
		given("network.mode")
	}
	if len(o.Network.Allow) > 0 {
		given("network.allow")
	}
	if len(o.Network.Publish) > 0 {
		given("network.publish")
	}
	c.Network = c.Network.With(o.Network)
	if len(o.Env) > 0 {
		c.Env = maps.Clone(d.Env)
		if c.Env == nil {
			c.Env = map[string]string{}
		}
		maps.Copy(c.Env, o.Env)
		c.HideEnv(slices.Collect(maps.Keys(o.Env)), o.Passed)
	}
	c.Args = append(slices.Clone(d.Args), o.Args...)
	if o.MinAge > 0 {
		c.MinAge = o.MinAge
		given("min_age")
	}
	c.Mounts = slices.DeleteFunc(slices.Clone(d.Mounts), func(m runfile.Mount) bool {
		return slices.ContainsFunc(o.Mounts, func(over runfile.Mount) bool { return over.Target == m.Target })
	})
	c.Mounts = append(c.Mounts, o.Mounts...)
	return &c
}

// set overrides a value, unless the other one is zero, and reports whether it did.
func set[T comparable](to *T, v T) bool {
	var zero T
	if v != zero {
		*to = v
	}
	return v != zero
}
