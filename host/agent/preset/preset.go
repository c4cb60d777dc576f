// Package preset describes coding agents: how each is found on this machine, started in a sandbox, and what it needs
// there. Presets are data: HCL files that hutch brings, and those of the user, which win.
//
// [Load] reads a preset, [Find] finds its program, and [Preset.Definition] makes the definition of its sandbox. Package
// preset starts nothing.
package preset

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclparse"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/diag/hcldiag"
	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/run/language"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/safepath"
)

//go:embed presets/*.hcl
var shipped embed.FS

// Preset is one coding agent.
type Preset struct {
	Name         string            // of its file
	File         string            // that it was read from; "" for one that hutch brings
	Description  string            `hcl:"description"`           // its name, for people
	Program      string            `hcl:"program"`               // what it is called in PATH
	Install      string            `hcl:"install,optional"`      // the command that installs it, for people
	Language     string            `hcl:"language,optional"`     // of the dependencies, as in a run
	Dependencies []string          `hcl:"dependencies,optional"` // packages that bring a program not in PATH
	Args         []string          `hcl:"args,optional"`         // always; they skip its own questions
	Prompt       []string          `hcl:"prompt,optional"`       // before a prompt that it works on unattended
	Continue     []string          `hcl:"continue,optional"`     // to go on with the last session
	Hosts        []string          `hcl:"hosts,optional"`        // rules: what it reaches, see package network
	Env          map[string]string `hcl:"env,optional"`
	Omit         []string          `hcl:"omit,optional"` // paths of the project that are in no review
	Keys         []Key             `hcl:"key,block"`
	Prices       []Price           `hcl:"price,block"`
	Home         []File            `hcl:"home,block"`
	ACP          *ACP              `hcl:"acp,block"` // nil for one that does not speak the Agent Client Protocol
}

// ACP is what speaks the Agent Client Protocol for an agent, on stdin and stdout.
type ACP struct {
	Program string   `hcl:"program,optional"` // what it is called in PATH, where it is not the agent itself
	Install string   `hcl:"install,optional"` // the command that installs it, for people
	Args    []string `hcl:"args,optional"`
}

// Key is an API key, which stays outside of the sandbox.
type Key struct {
	Name  string   `hcl:"name,label"`    // variable that the agent reads it from
	From  []string `hcl:"from,optional"` // variables of this machine that have it, the first that is set; default Name
	Hosts []string `hcl:"hosts"`         // that it is sent to
	Args  []string `hcl:"args,optional"` // of the agent, where the key is set
	// BaseURL is the variable of another address of the service, on this machine and in the sandbox, or "".
	BaseURL string `hcl:"base_url,optional"`
	// BaseURLArgs give the agent that address where it reads no variable; {url} stands for it.
	BaseURLArgs []string `hcl:"base_url_args,optional"`
}

// Price is what a model costs for a million tokens, as in [sdk.Price].
type Price struct {
	Model      string  `hcl:"model,label"`
	Input      float64 `hcl:"input"`
	Output     float64 `hcl:"output"`
	CacheRead  float64 `hcl:"cache_read,optional"`
	CacheWrite float64 `hcl:"cache_write,optional"`
}

// SDKPrices are the prices as a budget takes them.
func (p *Preset) SDKPrices() (out []sdk.Price) {
	for _, x := range p.Prices {
		out = append(out, sdk.Price(x))
	}
	return out
}

// File is a file of the agent's home directory that is written when it is not there.
type File struct {
	Path    string `hcl:"path,label"` // relative to the home directory
	Content string `hcl:"content"`
}

// UnknownError says that there is no preset of a name.
type UnknownError struct {
	Name  string
	Known []string // sorted
	Dir   string   // of the user's presets
}

func (e *UnknownError) Error() string { return fmt.Sprintf("no preset of an agent %q", e.Name) }

var namePattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// Names returns the presets that there are, sorted. dir has those of the user; it may be missing.
func Names(dir string) ([]string, error) {
	var out []string
	mine, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	all, err := shipped.ReadDir("presets")
	if err != nil {
		return nil, err
	}
	for _, e := range append(all, mine...) {
		if name, ok := strings.CutSuffix(e.Name(), ".hcl"); ok && namePattern.MatchString(name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Load reads a preset: that of the user in dir, the one that hutch brings, an agent block of the run files in project,
// or the file that name is the path of, which ends in .hcl. Such a block or file may not have the name of another
// preset, whose home directory and keys it would share. The error is an [*UnknownError], or has diagnostics
// ([diag.Diagnostics]) when the file is wrong.
func Load(dir, project, name string) (*Preset, error) {
	known, err := Names(dir)
	if err != nil {
		return nil, err
	}
	if base, isFile := strings.CutSuffix(filepath.Base(name), ".hcl"); isFile {
		if !namePattern.MatchString(base) || slices.Contains(known, base) {
			return nil, fmt.Errorf("%s: want another name for the file: up to 32 of a-z, 0-9 and -, and none of %s", name,
				strings.Join(known, ", "))
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		p := &Preset{Name: base, File: name}
		return p, p.parse(name, data)
	}
	if !slices.Contains(known, name) {
		mine, err := OfProject(dir, project)
		if err != nil {
			return nil, err
		}
		for _, p := range mine {
			if known = append(known, p.Name); p.Name == name {
				return p, nil
			}
		}
		return nil, &UnknownError{name, known, dir}
	}
	file := filepath.Join(dir, name+".hcl")
	data, err := os.ReadFile(file)
	p := &Preset{Name: name, File: file}
	if errors.Is(err, fs.ErrNotExist) {
		p.File, file = "", name+".hcl"
		data, err = shipped.ReadFile("presets/" + name + ".hcl")
	}
	if err != nil {
		return nil, err
	}
	if err := p.parse(file, data); err != nil {
		return nil, err
	}
	return p, nil
}

// OfProject returns the agents that the run files in the directory project describe. dir is as in [Names].
func OfProject(dir, project string) (out []*Preset, err error) {
	blocks, diags := runfile.Agents(project)
	if diags.HasErrors() {
		return nil, diags.Err()
	}
	for _, b := range blocks {
		p, diags := Block(dir, b)
		if diags.HasErrors() {
			return nil, diags.Err()
		}
		if slices.ContainsFunc(out, func(x *Preset) bool { return x.Name == p.Name }) {
			return nil, fmt.Errorf("%s:%d: agent %q is in another run file as well", p.File, b.Range.Start.Line, p.Name)
		}
		out = append(out, p)
	}
	return out, nil
}

// Block is the preset that an agent block describes. dir is as in [Names].
func Block(dir string, b *runfile.Agent) (*Preset, diag.Diagnostics) {
	wrong := func(format string, args ...any) diag.Diagnostics {
		d := diag.Errorf(format, args...)
		d.Range = &b.Range
		return diag.Diagnostics{d}
	}
	known, err := Names(dir)
	if err != nil {
		return nil, wrong("%v", err)
	}
	if !namePattern.MatchString(b.Name) || slices.Contains(known, b.Name) {
		return nil, wrong("agent %q needs another name: up to 32 of a-z, 0-9 and -, and none of %s", b.Name,
			strings.Join(known, ", "))
	}
	p := &Preset{Name: b.Name, File: b.Range.File}
	if diags := b.Decode(p); diags.HasErrors() {
		return nil, diags
	}
	if err := p.check(); err != nil {
		return nil, wrong("%v", err)
	}
	return p, nil
}

func (p *Preset) parse(file string, data []byte) error {
	f, diags := hclparse.NewParser().ParseHCL(data, file)
	if !diags.HasErrors() {
		diags = append(diags, gohcl.DecodeBody(f.Body, nil, p)...)
	}
	if diags.HasErrors() {
		return hcldiag.Diagnostics(diags).Err()
	}
	return p.check()
}

// check refuses what the schema cannot, and fills in defaults.
func (p *Preset) check() error {
	for i, k := range p.Keys {
		if len(k.From) == 0 {
			p.Keys[i].From = []string{k.Name}
		}
	}
	for _, h := range p.Home {
		if err := safepath.Check(h.Path); err != nil {
			return fmt.Errorf("preset %s: home %q: %w", p.Name, h.Path, err)
		}
	}
	for _, path := range p.Omit {
		if err := safepath.Check(path); err != nil {
			return fmt.Errorf("preset %s: omit %q: %w", p.Name, path, err)
		}
	}
	for _, x := range p.SDKPrices() {
		if err := network.CheckPrice(x); err != nil {
			return fmt.Errorf("preset %s: price: %w", p.Name, err)
		}
	}
	if p.ACP != nil && p.ACP.Program == "" {
		p.ACP.Program, p.ACP.Install = p.Program, p.Install
	}
	if l, ok := language.ByName(p.Language); len(p.Dependencies) > 0 && (!ok || l.Deps == nil) {
		return fmt.Errorf("preset %s: hutch installs no dependencies for the language %q", p.Name, p.Language)
	}
	if p.Program == "" || strings.ContainsRune(p.Program, '/') {
		return fmt.Errorf("preset %s: program %q is not a name in PATH", p.Name, p.Program)
	}
	return nil
}
