package runfile

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/sdk"
)

// Bounds and defaults of a cycle block.
const (
	DefaultToolCalls   = 500
	MaxToolCalls       = 100_000
	DefaultCommandTime = 10 * time.Minute
	MaxSpec            = 256 << 10 // bytes
	maxInstructions    = 64 << 10  // bytes
)

// Cycle is a cycle block: a model that works a specification with tools in a sandbox. Its JSON is fit to be stored and
// printed, as that of [Definition.MarshalJSON] is.
type Cycle struct {
	Name string `json:"cycle"`
	// SpecFile is the specification, absolute on this host, and SpecText what is in it; both are empty where the block
	// names none, which leaves it to the convention dev_documents/CYCLE<ID>/SPEC.md.
	SpecFile     string   `json:"spec,omitempty"`
	SpecText     string   `json:"-"`
	Instructions string   `json:"instructions,omitempty"` // for the model, beside the specification
	Model        *Model   `json:"model,omitempty"`
	Setup        []string `json:"setup,omitempty"` // command that prepares the sandbox; nil for none
	Check        []string `json:"check,omitempty"` // command that must succeed when the model says that it is done; nil for none
	ToolCalls    int      `json:"tool_calls"`      // of the model
	Apply        string   `json:"apply,omitempty"` // never, ask or on-success; "" when the block does not say

	// Box is the sandbox. It has a private workspace, and nothing to run.
	Box *Definition `json:"sandbox"`

	secrets []string
}

// Secrets are the strings that must not be written: those of the sandbox, the key of the model, and every sensitive
// variable.
func (c *Cycle) Secrets() []string {
	return slices.Concat(c.secrets, c.Box.Secrets(), []string{c.Model.Config.APIKey})
}

// BareCycle is the cycle of a project that has no run file: m works the specification that the convention names, in the
// directory dir, without network.
func BareCycle(dir string, m model.Config) *Cycle {
	const name = "cycle"
	return &Cycle{Name: name, Model: &Model{Config: m}, ToolCalls: DefaultToolCalls, Box: &Definition{
		Name: name, Instance: name, Env: map[string]string{}, Network: network.Network{Mode: sdk.NetworkNone},
		Workspace: &Workspace{Source: dir, Mode: string(sdk.WorkspacePrivate)},
	}}
}

// CommandTime is the wall time of each command.
func (c *Cycle) CommandTime() time.Duration {
	return cmp.Or(time.Duration(c.Box.Limits.Timeout), DefaultCommandTime)
}

var cycleSchema = schemaOf("description spec instructions model setup check tool_calls apply env workdir language "+
	"dependencies lock_file min_age "+
	"min_isolation",
	"backend name", "file path", "files", "home path", "workspace", "limits", "network")

// cycleHabits are names that users type in a cycle block, with where the thing is here.
var cycleHabits = map[string]string{
	"specification": `did you mean "spec"?`, "plan": `did you mean "spec"?`,
	"task": `write it into a file, and name that with spec`, "prompt": `did you mean "instructions"?`,
	"verify": `did you mean "check"?`, "test": `did you mean "check"?`, "command": `did you mean "check"?`,
	"turns":   "it is the model's: budget { turns = 20 } in the model block",
	"tokens":  "it is the model's: budget { tokens = 100000 } in the model block",
	"time":    "it is the model's: budget { time = \"10m\" } in the model block",
	"budget":  "it is the model's: put it into the model block",
	"timeout": "put it into limits: limits { timeout = \"5m\" } bounds each command",
}

// cycles decodes all cycle blocks.
func (l *loader) cycles() {
	l.named("cycle", "cycle", "", func(b *hcl.Block) {
		l.file.Cycles = append(l.file.Cycles, l.cycleBlock(b))
	})
}

// cycleBlock decodes one block. What is wrong with it is reported; it is then not complete.
func (l *loader) cycleBlock(hb *hcl.Block) *Cycle {
	d, s := l.definition(hb, "", l.ctx, fmt.Sprintf("cycle %q", hb.Labels[0]))
	s.owner = "a cycle"
	y := &Cycle{Name: d.Name, Box: d, ToolCalls: DefaultToolCalls}
	b := s.open(hb.Body, cycleSchema, "", s.owner, hb.DefRange)
	b.parts(d)
	switch w := d.Workspace; {
	case w == nil && len(b.nested.OfType("workspace")) == 0:
		d.Workspace = &Workspace{Source: s.file.Dir, Mode: string(sdk.WorkspacePrivate)}
	case w != nil && w.Mode != string(sdk.WorkspacePrivate):
		b.errorf(b.workspaceMode(), "a cycle needs a private workspace").
			detail("What a model changes stays in the sandbox until it was reviewed.").
			fix(`write mode = "private", or leave mode out`)
	}
	b.spec(y)
	if y.Model = b.model(); y.Model != nil {
		y.secrets = d.Secrets()
		// Secrets of a sandbox are kept in clear as long as it exists, and the key is not used in this one.
		d.origin.forget(y.Model.Config.APIKey)
	}
	y.Instructions = b.instructions()
	y.Setup, y.Check = b.fixedCommand("setup"), b.fixedCommand("check")
	b.integerInto(&y.ToolCalls, "tool_calls", 1, MaxToolCalls)
	y.Apply, _ = b.oneOf("apply", "never", "ask", "on-success")
	return y
}

// spec reads the specification.
func (b *block) spec(y *Cycle) {
	name, ok := b.text("spec")
	if !ok {
		return
	}
	rel, _, err := b.tree.Find(name, MaxSpec)
	var text []byte
	if err == nil {
		text, err = b.tree.ReadFile(rel, MaxSpec)
	}
	if err != nil {
		b.unusable("spec", "the specification", err)
		return
	}
	if summary := BadSpec(text); summary != "" {
		b.errorf(b.at("spec"), "%s", summary)
		return
	}
	y.SpecFile, y.SpecText = filepath.Join(b.file.Dir, filepath.FromSlash(rel)), string(text)
}

// BadSpec says why a text cannot be a specification; "" when it can.
func BadSpec(text []byte) string {
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return "the specification is empty"
	case !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0:
		return "the specification is not a text in UTF-8"
	}
	return ""
}

// instructions reads a text that goes to the provider of the model, so that nothing sensitive may be in it.
func (b *block) instructions() string {
	text, _ := b.text("instructions")
	if len(text) > maxInstructions {
		b.errorf(b.at("instructions"), "instructions is larger than %s", units.Size(maxInstructions)).
			fix("put it into the specification, or into a file of the workspace")
		return ""
	}
	return text
}

// fixedCommand reads a command of the user's, which the model is shown.
func (b *block) fixedCommand(name string) []string {
	argv, ok := b.texts(name)
	if !ok {
		return nil
	}
	if len(argv) == 0 || argv[0] == "" {
		b.errorf(b.at(name), "%s names no program", name).
			fix(`write a list, such as ["go", "test", "./..."], or leave it out`)
		return nil
	}
	b.noNUL(name, argv...)
	return argv
}
