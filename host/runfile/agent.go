package runfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/diag/hcldiag"
)

// Agent is an agent block: a coding agent, of which only host/agent/preset knows the schema.
type Agent struct {
	Name  string
	Range diag.Range // of the block's header

	loader *loader
	body   *hclsyntax.Body
}

// Decode puts the block's arguments and blocks into a struct with tags of gohcl.
func (a *Agent) Decode(into any) diag.Diagnostics {
	a.loader.evaluating.Lock()
	defer a.loader.evaluating.Unlock()
	l := *a.loader
	l.diags = nil
	context := "agent " + quote(a.Name)
	_ = hclsyntax.VisitAll(a.body, func(n hclsyntax.Node) (none hcl.Diagnostics) {
		if x, ok := n.(*hclsyntax.Attribute); ok {
			if v, ok := l.eval(x.Expr, l.ctx, context); ok && v.ContainsMarked() {
				l.failf(x.SrcRange, context, "%s is made of a sensitive value", x.Name).withhold().
					fix("name the variable of the environment that has it in a key block")
			}
		}
		return none
	})
	if !l.diags.HasErrors() {
		l.report(gohcl.DecodeBody(a.body, l.ctx, into), context)
	}
	if _, reason := l.budget.Spent(); reason != "" {
		l.spent()
	}
	return inOrder(l.diags)
}

// agents finds all agent blocks.
func (l *loader) agents() {
	l.named("agent", "agent block", "", func(b *hcl.Block) {
		if body, ok := b.Body.(*hclsyntax.Body); ok {
			l.file.Agents = append(l.file.Agents, &Agent{b.Labels[0], hcldiag.Range(b.DefRange), l, body})
		}
	})
}

// Agents reads the agent blocks of the run files in dir, without the directories below it. Variables without a value
// are unknown, and nothing else of the files is evaluated. Files without such blocks may be wrong.
func Agents(dir string) ([]*Agent, diag.Diagnostics) {
	var out []*Agent
	o := &Options{AllowMissing: true}
	given, diags := o.read()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, append(diags, diag.Errorf("%v", err))
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !strings.HasSuffix(e.Name(), ".hcl") {
			continue
		}
		l := newLoader(filepath.Join(dir, e.Name()), o, given)
		l.open()
		if !bytes.Contains(l.sources[l.path], []byte("agent \"")) {
			continue
		}
		if !l.broken && l.setVariables() && l.setLocals() {
			l.agents()
		}
		l.spent()
		out, diags = append(out, l.file.Agents...), append(diags, inOrder(l.diags)...)
	}
	return out, diags
}
