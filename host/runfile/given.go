package runfile

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/json"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/runfile/internal/bound"
)

// Files of variables that are read without being named.
const (
	autoHCL  = ".auto.hutchvars.hcl"
	autoJSON = ".auto.hutchvars.json"
)

// given is what a call brings along for variables.
type given struct {
	lookupEnv func(string) (string, bool)
	sources   sources
	budget    *bound.Budget // for expressions in files of variables
	files     []setting     // of --var-file, in order
	flags     []setting     // of --var, in order
	broken    bool          // a file of variables could not be read
}

// setting gives one variable a value: by text, or by an expression of a file.
type setting struct {
	name   string
	origin string // for a reader: "--var", "HUTCH_VAR_rows" or the file's name
	text   string
	expr   hcl.Expression // nil for text
	where  hcl.Range      // of the name, when it stands in a file
}

// read takes in the options; what is wrong with them is wrong for all run files alike.
func (o *Options) read() (*given, diag.Diagnostics) {
	g := &given{lookupEnv: environ(o.Environ), sources: sources{}, budget: bound.NewBudget()}
	var diags diag.Diagnostics
	for _, kv := range o.Vars {
		name, text, ok := strings.Cut(kv, "=")
		switch {
		case !ok:
			diags = append(diags, diag.Errorf("--var %s has no value", diag.Quote(kv)).WithFix("write --var %s=VALUE", kv))
		case !validVariableName(name):
			diags = append(diags, diag.Errorf("--var sets %s, which cannot be the name of a variable", diag.Quote(name)))
		default:
			g.flags = append(g.flags, setting{name: name, text: text, origin: "--var"})
		}
	}
	for _, path := range o.VarFiles {
		s, ds := g.readFile(path)
		g.files = append(g.files, s...)
		diags = append(diags, ds...)
	}
	return g, diags
}

// readFile reads a file of variables: JSON when its name says so, HCL else.
func (g *given) readFile(path string) ([]setting, diag.Diagnostics) {
	src, d := readSource(path, "file of variables")
	if d != nil {
		g.broken = true
		return nil, diag.Diagnostics{*d}
	}
	g.sources[path] = src
	var diags hcl.Diagnostics
	var attrs hcl.Attributes
	if strings.HasSuffix(path, ".json") {
		attrs, diags = parseJSON(path, src)
	} else {
		var body *hclsyntax.Body
		body, diags = parse(path, src)
		if body != nil {
			bound.Guard(body, g.budget)
			var more hcl.Diagnostics
			attrs, more = body.JustAttributes()
			diags = append(diags, more...)
		}
	}
	g.broken = g.broken || diags.HasErrors()
	var out diag.Diagnostics
	for _, d := range diags {
		od := g.sources.fromHCL(d, "")
		if strings.HasPrefix(d.Summary, "Unexpected ") && strings.HasSuffix(d.Summary, " block") {
			od.Summary, od.Detail = "a file of variables has no blocks", "It gives values to variables that a run file declares, one NAME = VALUE a line."
		}
		out = append(out, od)
	}
	var settings []setting
	for name, a := range attrs {
		settings = append(settings, setting{name: name, origin: path, expr: a.Expr, where: a.NameRange})
	}
	slices.SortFunc(settings, func(a, b setting) int { return cmp.Compare(a.where.Start.Byte, b.where.Start.Byte) })
	return settings, out
}

func parseJSON(path string, src []byte) (hcl.Attributes, hcl.Diagnostics) {
	if d := checkText(path, src); d != nil {
		return nil, hcl.Diagnostics{d}
	}
	if i := bound.TooDeep(src); i >= 0 {
		r := hcl.Range{Filename: path, Start: posAt(src, i), End: posAt(src, i+1)}
		return nil, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "the file is too complex",
			Detail: fmt.Sprintf("Brackets are nested more than %d deep here.", bound.MaxNesting), Subject: &r}}
	}
	file, diags := json.Parse(src, path)
	if diags.HasErrors() {
		return nil, diags[:1]
	}
	attrs, more := file.Body.JustAttributes()
	return attrs, append(diags, more...)
}

// autoFiles lists the files of variables beside a run file that are read without being named.
func autoFiles(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // reading the run file itself reports a directory that cannot be used
	}
	var found []string
	for _, e := range entries {
		if n := e.Name(); !e.IsDir() && (strings.HasSuffix(n, autoHCL) || strings.HasSuffix(n, autoJSON)) {
			found = append(found, filepath.Join(dir, n))
		}
	}
	return found
}

// undeclared reports settings that no run file of the call has a variable for.
func (g *given) undeclared(loaders []*loader) diag.Diagnostics {
	var names []string
	for _, l := range loaders {
		if l.broken {
			return nil // it is not known what it declares
		}
		names = slices.AppendSeq(names, maps.Keys(l.vars))
	}
	var diags diag.Diagnostics
	for _, s := range slices.Concat(g.files, g.flags) {
		if slices.Contains(names, s.name) {
			continue
		}
		d := diag.Errorf("%s sets the variable %q, and no run file declares it", s.origin, s.name)
		if s.expr != nil {
			d = diag.Errorf("no run file declares the variable %q", s.name)
		}
		d.Fix = cmp.Or(diag.DidYouMean(s.name, names), fmt.Sprintf("declare it: variable %q {}", s.name))
		d = g.sources.at(d, s.where)
		d.Snippet = nil // the value may be the secret of a variable whose name is misspelled
		diags = append(diags, d)
	}
	return diags
}
