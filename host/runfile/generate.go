package runfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/sdk"
)

// Bounds and defaults of a generate block.
const (
	DefaultAttempts = 5
	MaxAttempts     = 50
	MaxTask         = 256 << 10 // bytes
)

// Policy says what becomes of dependencies that a model asks for.
type Policy string

// The policies.
const (
	DependenciesAllowed Policy = "allowed" // they are installed, as those of a run are
	DependenciesAsk     Policy = "ask"     // the user is asked; where nobody can be, they are refused
	DependenciesBlocked Policy = "blocked" // they are refused, and the model learns that
)

// Generate is a generate block: what a model is to write, and the run that each of its attempts becomes. Its JSON is
// fit to be stored and printed, as that of [Definition.MarshalJSON] is.
type Generate struct {
	Name     string `json:"generate"`
	Task     string `json:"task"`            // in words
	Model    *Model `json:"model,omitempty"` // the block that it refers to, or the only one of the file
	Attempts int    `json:"attempts"`        // from 1 to [MaxAttempts]
	Policy   Policy `json:"dependency_policy"`

	// Run is what all attempts have in common. Its Files are the inputs; what is run is missing from it. See Attempt.
	Run *Definition `json:"run"`
}

// Attempt is what one attempt adds to the run.
type Attempt struct {
	Number       int    // from 1
	Files        []File // beside the inputs, with content
	Entrypoint   string // one of Files
	Language     string // "" to go by the entrypoint
	Dependencies []string
}

// Definition is the run of one attempt. Paths of a that an input has already must have been refused before.
func (g *Generate) Definition(a Attempt) *Definition {
	d := *g.Run
	d.Instance = fmt.Sprintf("%s attempt %d", g.Name, a.Number)
	d.Files = append(slices.Clone(d.Files), a.Files...)
	slices.SortFunc(d.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	d.Entrypoint, d.EntrypointIn, d.Language = a.Entrypoint, InInput, a.Language
	d.Dependencies = append(slices.Clone(d.Dependencies), a.Dependencies...)
	return &d
}

var generateSchema = func() *hcl.BodySchema {
	s := schemaOf("task! model attempts dependency_policy")
	for _, a := range runSchema.Attributes { // what a run has, but for what the model says
		if !slices.Contains([]string{"for_each", "interpreter", "entrypoint", "command"}, a.Name) {
			s.Attributes = append(s.Attributes, a)
		}
	}
	s.Blocks = runSchema.Blocks
	return s
}()

// generates decodes all generate blocks.
func (l *loader) generates() {
	l.named("generate", "generate block", "", func(b *hcl.Block) {
		l.file.Generates = append(l.file.Generates, l.generate(b))
	})
}

// generate decodes one block. What is wrong with it is reported; it is then not complete.
func (l *loader) generate(hb *hcl.Block) *Generate {
	d, s := l.definition(hb, "", l.ctx, fmt.Sprintf("generate %q", hb.Labels[0]))
	s.owner = "a generate block"
	g := &Generate{Name: d.Name, Attempts: DefaultAttempts, Policy: DependenciesAsk, Run: d}
	b := s.open(hb.Body, generateSchema, "", s.owner, hb.DefRange)
	b.parts(d)
	b.task(g)
	g.Model = b.model()
	b.integerInto(&g.Attempts, "attempts", 1, MaxAttempts)
	policies := []string{string(DependenciesAllowed), string(DependenciesAsk), string(DependenciesBlocked)}
	if p, ok := b.oneOf("dependency_policy", policies...); ok {
		g.Policy = Policy(p)
	}
	if w := d.Workspace; w != nil && w.Mode == string(sdk.WorkspaceShared) {
		b.errorf(b.workspaceMode(), "a generate block cannot share its workspace").
			detail("Every attempt would write to your directory, the ones that fail too.").
			fix(`write mode = "private", which keeps writes in the sandbox, or mode = "readonly"`)
	}
	return g
}

// workspaceMode is where the mode of the workspace is written.
func (s *scope) workspaceMode() hcl.Range {
	r, _, _ := s.origin.ranges.find([]string{"workspace", "mode"})
	return r
}

// task reads what is to be written. It goes to the provider of the model, so that nothing sensitive may be in it.
func (b *block) task(g *Generate) {
	v, ok := b.text("task")
	switch {
	case !ok:
	case strings.TrimSpace(v) == "":
		b.errorf(b.at("task"), "task is empty").
			fix(`say in words what is to be written: task = "…", or task = file("task.md")`)
	case len(v) > MaxTask:
		b.errorf(b.at("task"), "task is larger than %s", units.Size(MaxTask)).
			fix("give large data as an input, with a file block")
	default:
		g.Task = v
	}
}
