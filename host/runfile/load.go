// Package runfile turns run files into checked Go values, with diagnostics that point at the exact expression.
//
// Load reads, evaluates and checks; what it returns needs no HCL knowledge. Only the body of a backend block stays
// undecoded, because only the backend knows its schema: Backend.Decode checks it once the schema is there, and
// Backend.Diagnose puts what the backend says about a path at the expression.
//
// A run file is not trusted with the machine. Files are read through an os.Root at the run file's own directory, only
// regular ones, and up to a size; reading, nesting, iteration and the size of values are bounded, so that a hostile
// file is an error after a moment and not a machine without memory.
//
// Values marked as sensitive stay marked through every expression. A Definition knows which of its values they are:
// its JSON form holds none of them, and Secrets lists them for callers that have to keep them out of other text.
//
// Start reading at Load. block.go reads the arguments of a block, and each kind of block has a file. Limits is the one
// table of limits.
package runfile

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/diag/hcldiag"
	"github.com/hutch-run/hutch/host/runfile/internal/bound"
	"github.com/hutch-run/hutch/host/runfile/internal/functions"
	"github.com/hutch-run/hutch/host/runfile/internal/tree"
)

// Options is what a call brings along besides the files. The zero value is ready to use.
type Options struct {
	// Vars are NAME=VALUE settings, the last one of a name wins. They are stronger than VarFiles, those than
	// *.auto.hutchvars.hcl and *.auto.hutchvars.json beside the run file, those than HUTCH_VAR_name, those than
	// the default.
	Vars []string
	// VarFiles are files of NAME = VALUE lines, or JSON objects when their name ends in .json; later ones win.
	VarFiles []string
	// Environ holds NAME=VALUE strings for HUTCH_VAR_name and env(); nil means the environment of the process.
	Environ []string
	// Languages are the names that language may have; nil accepts any.
	Languages []string
	// Project finds the directory of a shared project, for workspace { project = "NAME" }; nil knows none.
	Project func(name string) (dir string, err error)
	// AllowMissing takes variables without a value as unknown instead of refusing the file, and leaves out the
	// checks that would need them: for validate. What it returns may be incomplete and must not be run.
	AllowMissing bool
}

// Load reads, evaluates and checks run files. Every file stands for itself: its variables, locals and paths are its
// own; a variable that is set by Vars or VarFiles must be declared by at least one of them. The Config is never nil,
// and is complete when the diagnostics hold no error.
func Load(paths []string, o Options) (*Config, diag.Diagnostics) {
	config := &Config{}
	given, diags := o.read()
	var loaders []*loader
	for _, p := range paths {
		l := newLoader(p, &o, given)
		loaders = append(loaders, l)
		l.open()
	}
	diags = append(diags, given.undeclared(loaders)...)
	for _, l := range loaders {
		config.Files = append(config.Files, l.load())
		diags = append(diags, inOrder(l.diags)...)
	}
	return config, diags
}

// inOrder sorts the findings of one file by place, those without one first, and leaves out repetitions: an error in
// a block with for_each is the same in every instance.
func inOrder(ds diag.Diagnostics) diag.Diagnostics {
	files := map[string]int{}
	for _, d := range ds {
		if d.Range != nil && files[d.Range.File] == 0 {
			files[d.Range.File] = len(files) + 1
		}
	}
	sort.SliceStable(ds, func(i, j int) bool {
		a, b := ds[i].Range, ds[j].Range
		switch {
		case a == nil || b == nil:
			return a == nil && b != nil
		case a.File != b.File:
			return files[a.File] < files[b.File]
		}
		return a.Start.Byte < b.Start.Byte
	})
	type key struct {
		summary, detail, file string
		byte                  int
	}
	seen := map[key]bool{}
	out := ds[:0]
	for _, d := range ds {
		k := key{summary: d.Summary, detail: d.Detail}
		if d.Range != nil {
			k.file, k.byte = d.Range.File, d.Range.Start.Byte
		}
		if !seen[k] || d.Range == nil {
			seen[k] = true
			out = append(out, d)
		}
	}
	const most = 50 // more of them help nobody
	if len(out) > most {
		rest := len(out) - most
		out = append(out[:most:most], diag.Errorf("%d more errors are not shown", rest))
	}
	return out
}

// loader works on one run file.
type loader struct {
	path    string
	options *Options
	given   *given
	tree    *tree.Root
	budget  *bound.Budget
	sources sources
	diags   diag.Diagnostics

	file      *RunFile
	blocks    map[string]hcl.Blocks // what the file holds, sorted by kind
	functions map[string]function.Function
	vars      map[string]*variable
	varOrder  []*variable
	locals    map[string]*local
	ctx       *hcl.EvalContext // var, local, path and the functions
	broken    bool             // reading failed: there is nothing to evaluate

	evaluating *sync.Mutex // held while backend blocks are decoded, which happens after loading and from several runs
}

func newLoader(path string, o *Options, g *given) *loader {
	l := &loader{path: path, options: o, given: g, budget: bound.NewBudget(), sources: sources{},
		file: &RunFile{Path: path}, evaluating: &sync.Mutex{}}
	for name, src := range g.sources {
		l.sources[name] = src
	}
	return l
}

// open reads and parses the file, and finds what it declares.
func (l *loader) open() {
	l.broken = true
	body := l.parse()
	if body == nil {
		return
	}
	l.broken = false
	l.sortBlocks(body)
	l.declareVariables()
	l.declareLocals()
}

// parse reads and parses the file, and prepares its evaluation; nil after an error.
func (l *loader) parse() *hclsyntax.Body {
	abs, err := filepath.Abs(l.path)
	if err != nil {
		l.diags = append(l.diags, diag.Errorf("the directory that hutch was started in is gone: %v", err))
		return nil
	}
	l.file.Dir = filepath.Dir(abs)
	l.tree = tree.New(l.file.Dir)
	src, d := readSource(l.path, "run file")
	if d != nil {
		l.diags = append(l.diags, *d)
		return nil
	}
	l.sources[l.path] = src
	body, diags := parse(l.path, src)
	l.report(diags, "")
	if body == nil {
		return nil
	}
	bound.Guard(body, l.budget)
	l.functions = functions.Table(functions.Host{Tree: l.tree, LookupEnv: l.given.lookupEnv, Budget: l.budget})
	l.ctx = &hcl.EvalContext{Functions: l.functions, Variables: map[string]cty.Value{
		"path": cty.ObjectVal(map[string]cty.Value{
			"module": cty.StringVal("."), "root": cty.StringVal("."), // as Terraform's users write them
		}),
	}}
	return body
}

// load evaluates what open found.
func (l *loader) load() *RunFile {
	if l.broken {
		return l.file
	}
	l.settings()
	ok := l.setVariables()
	ok = l.setLocals() && ok
	if ok { // else every use of what is missing would be its own error
		l.models()
		l.runs()
		l.generates()
		l.cycles()
		l.agents()
	}
	l.spent()
	return l.file
}

// spent reports that the file costs too much, once, and instead of what followed from it.
func (l *loader) spent() {
	where, reason := l.budget.Spent()
	if reason == "" {
		return
	}
	d := diag.Errorf("evaluating this file costs too much")
	d.Detail = "Evaluation was stopped: " + reason + "."
	if !strings.Contains(reason, "digits") {
		d.Fix = "make loops and lists smaller, or prepare the data in a file of its own"
	}
	kept := diag.Diagnostics{l.sources.at(d, where)}
	for _, d := range l.diags {
		if !strings.Contains(d.Detail, "budget for elements and text") {
			kept = append(kept, d)
		}
	}
	l.diags = kept
}

// report takes over diagnostics of the HCL library.
func (l *loader) report(ds hcl.Diagnostics, context string) {
	for _, d := range ds {
		l.diags = append(l.diags, l.sources.fromHCL(d, context))
	}
}

// finding is a diagnostic that was just reported and is being completed.
type finding diag.Diagnostic

// failf reports an error at a place.
func (l *loader) failf(r hcl.Range, context, format string, args ...any) *finding {
	d := diag.Diagnostic{Severity: diag.Error, Summary: fmt.Sprintf(format, args...), Context: context}
	l.diags = append(l.diags, l.sources.at(d, r))
	return (*finding)(&l.diags[len(l.diags)-1])
}

func (f *finding) detail(format string, args ...any) *finding {
	f.Detail = fmt.Sprintf(format, args...)
	return f
}

func (f *finding) fix(format string, args ...any) *finding {
	f.Fix = fmt.Sprintf(format, args...)
	return f
}

func (f *finding) related(note string, r hcl.Range) *finding {
	f.Related = []diag.Related{{Note: note, Range: hcldiag.Range(r)}}
	return f
}

func (f *finding) warning() *finding {
	f.Severity = diag.Warning
	return f
}

// withhold leaves out the source, which may hold a secret.
func (f *finding) withhold() *finding {
	f.Snippet, f.Values = nil, nil
	return f
}

// withholdSince leaves the source out of all findings from the n-th one.
func (l *loader) withholdSince(n int) {
	for i := n; i < len(l.diags); i++ {
		(*finding)(&l.diags[i]).withhold()
	}
}

// environ is the environment as a function.
func environ(list []string) func(string) (string, bool) {
	if list == nil {
		return os.LookupEnv
	}
	m := make(map[string]string, len(list))
	for _, kv := range list {
		if k, v, ok := strings.Cut(kv, "="); ok {
			m[k] = v
		}
	}
	return func(k string) (string, bool) { v, ok := m[k]; return v, ok }
}

// Requirements reads what run files require of hutch and its backends, and nothing else: no variable needs a value, and
// nothing but the hutch blocks is evaluated. Each RunFile has no more than Path, Dir, RequiredBackends and
// MinIsolation.
func Requirements(paths []string) ([]*RunFile, diag.Diagnostics) {
	var files []*RunFile
	var diags diag.Diagnostics
	for _, p := range paths {
		l := newLoader(p, &Options{}, &given{lookupEnv: os.LookupEnv})
		if body := l.parse(); body != nil {
			l.sortBlocks(body)
			l.settings()
		}
		files = append(files, l.file)
		diags = append(diags, inOrder(l.diags)...)
	}
	return files, diags
}

// LoadBackend reads a file that holds the body of a backend block and nothing else, as `hutch backend test --config`
// takes it. Functions work as in a run file; there are no variables. The Backend is nil after an error.
func LoadBackend(name, path string) (*Backend, diag.Diagnostics) {
	l := newLoader(path, &Options{}, &given{lookupEnv: os.LookupEnv})
	body := l.parse()
	if body == nil {
		return nil, inOrder(l.diags)
	}
	s := &scope{loader: l, ctx: l.ctx, context: fmt.Sprintf("backend %q", name), origin: &origin{ranges: ranges{}}}
	// The file has no header; its first character stands for one.
	header := hcl.Range{Filename: path, Start: hcl.InitialPos, End: hcl.InitialPos}
	return &Backend{Name: name, Range: hcldiag.Range(header), body: s.expand(body), header: header, scope: s},
		inOrder(l.diags)
}
