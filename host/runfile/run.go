package runfile

import (
	"fmt"
	"sort"
	"strings"
	"unicode"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/runfile/internal/functions"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/plaintext"
)

// maxInstances is how many runs one block with for_each makes at most.
const maxInstances = 1000

var runSchema = &hcl.BodySchema{
	Attributes: []hcl.AttributeSchema{
		{Name: "description"}, {Name: "for_each"}, {Name: "language"}, {Name: "interpreter"}, {Name: "entrypoint"},
		{Name: "command"}, {Name: "args"}, {Name: "env"}, {Name: "dependencies"}, {Name: "workdir"}, {Name: "stdin"},
		{Name: "outputs"}, {Name: "min_isolation"},
	},
	Blocks: []hcl.BlockHeaderSchema{
		{Type: "backend", LabelNames: []string{"name"}}, {Type: "file", LabelNames: []string{"path"}}, {Type: "files"}, {Type: "home", LabelNames: []string{"path"}},
		{Type: "workspace"}, {Type: "mount", LabelNames: []string{"path"}}, {Type: "limits"}, {Type: "network"}, {Type: "expect"},
	},
}

var runSchemaNames = func() map[string]bool {
	names := map[string]bool{}
	for _, a := range runSchema.Attributes {
		names[a.Name] = true
	}
	return names
}()

// runs decodes all run blocks.
func (l *loader) runs() {
	l.named("run", "run", "", func(b *hclsyntax.Block, name string, header hcl.Range) {
		for _, d := range l.instances(b, name, header) {
			d.File, d.RequiredBackends = l.path, l.file.RequiredBackends
			l.file.Runs = append(l.file.Runs, d)
		}
	})
}

// instances decodes a run block once, or once for each element of its for_each.
func (l *loader) instances(b *hclsyntax.Block, name string, header hcl.Range) []*Definition {
	context := fmt.Sprintf("run %q", name)
	each := b.Body.Attributes["for_each"]
	if each == nil {
		return []*Definition{l.run(b, name, "", header, l.ctx, context)}
	}
	elements, ok := l.forEach(each, context)
	if !ok {
		return nil
	}
	if len(elements) == 0 { // nobody else would look at the body
		unknown := map[string]cty.Value{"key": cty.UnknownVal(cty.String), "value": cty.DynamicVal}
		ctx := l.ctx.NewChild()
		ctx.Variables = map[string]cty.Value{"each": cty.ObjectVal(unknown)}
		l.run(b, name, "", header, ctx, context)
		return nil
	}
	var all []*Definition
	for _, e := range elements {
		ctx := l.ctx.NewChild()
		ctx.Variables = map[string]cty.Value{"each": cty.ObjectVal(map[string]cty.Value{"key": cty.StringVal(e.key), "value": e.value})}
		d := l.run(b, name, e.key, header, ctx, fmt.Sprintf("%s with each.key = %s", context, quote(e.key)))
		d.Instance = member(name, e.key)
		all = append(all, d)
	}
	return all
}

type eachElement struct {
	key   string
	value cty.Value
}

// forEach gives the elements of a map, or of a set of strings, in the order of their keys.
func (l *loader) forEach(a *hclsyntax.Attribute, context string) ([]eachElement, bool) {
	fail := func(summary, detail, fix string) ([]eachElement, bool) {
		l.fail(a.Expr.Range(), context, summary, detail, fix)
		return nil, false
	}
	for _, t := range a.Expr.Variables() {
		if t.RootName() == "each" {
			return fail("for_each cannot refer to each", "each is what for_each makes.", "")
		}
	}
	v, ok := l.eval(a.Expr, l.ctx, context)
	if !ok {
		return nil, false
	}
	src := string(a.Expr.Range().SliceBytes(l.sources[l.path]))
	t := v.Type()
	switch {
	case v.ContainsMarked():
		return fail("for_each may not be sensitive", "Its keys become names of runs, which are printed and stored.",
			"use only the keys, without their values: toset(nonsensitive(keys(…)))")
	case v.IsNull():
		return fail("for_each is null", "It needs a map, or a set of strings. An empty one makes no runs.", "")
	case !v.IsWhollyKnown():
		if l.options.AllowMissing {
			return nil, true
		}
		return fail("for_each is not known", "", "")
	case t.IsTupleType() || t.IsListType():
		fix := "make a set of it with toset()"
		if len(src) < 60 && !strings.Contains(src, "\n") {
			fix = fmt.Sprintf("write toset(%s)", src)
		}
		return fail("for_each must be a map or a set of strings, not a list", "Each run needs a name of its own, and the elements of a list may be equal.", fix)
	case t.IsSetType() && t.ElementType() != cty.String && v.LengthInt() > 0:
		return fail(fmt.Sprintf("for_each must be a map or a set of strings, not a set of %ss", t.ElementType().FriendlyName()), "", "")
	case !t.IsSetType() && !t.IsMapType() && !t.IsObjectType():
		return fail("for_each must be a map or a set of strings, not "+kind(v), "", "")
	case v.LengthInt() > maxInstances:
		return fail(fmt.Sprintf("for_each has %d elements; at most %d are allowed", v.LengthInt(), maxInstances), "", "")
	}
	var elements []eachElement
	for it := v.ElementIterator(); it.Next(); {
		k, e := it.Element()
		if t.IsSetType() {
			k = e
		}
		if k.IsNull() {
			return fail("for_each has an element that is null", "", "")
		}
		key := k.AsString()
		if key == "" || len(key) > 200 || strings.IndexFunc(key, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
			return fail(fmt.Sprintf("for_each has the key %s", quote(key)), "A key has 1 to 200 bytes of printable characters, because it becomes part of a run's name.", "")
		}
		elements = append(elements, eachElement{key, e})
	}
	sort.Slice(elements, func(i, j int) bool { return elements[i].key < elements[j].key })
	return elements, true
}

// run decodes one run. What is wrong with it is reported; the definition is then not complete.
func (l *loader) run(b *hclsyntax.Block, name, key string, header hcl.Range, ctx *hcl.EvalContext, context string) *Definition {
	d, s := l.definition(name, key, header, ctx, context)
	c, ok := s.body(s.expand(b.Body), runSchema, s.owner, header)
	if c == nil {
		return d
	}
	filesOK := s.parts(d, c)
	if ok {
		s.whatToRun(d, c, filesOK)
	}
	return d
}

// definition begins a definition, with the scope that its block is read in.
func (l *loader) definition(name, key string, header hcl.Range, ctx *hcl.EvalContext, context string) (*Definition, *scope) {
	d := &Definition{Name: name, Key: key, Instance: name, File: l.path, Dir: l.file.Dir, RequiredBackends: l.file.RequiredBackends,
		Env: map[string]string{}, Network: network.Network{Mode: sdk.NetworkNone}, MinIsolation: l.file.MinIsolation}
	d.origin = &origin{ranges: ranges{}, sources: l.sources, context: context}
	d.origin.ranges.set("", header)
	for _, v := range l.varOrder {
		if v.sensitive {
			d.origin.secretValue(v.value)
		}
	}
	d.origin.used = nil // none of them yet
	return d, &scope{loader: l, ctx: ctx, context: context, owner: "a run", origin: d.origin}
}

// parts reads all of a definition but what is to be run. It reports whether all files are good.
func (s *scope) parts(d *Definition, c *hcl.BodyContent) (filesOK bool) {
	s.program(d, c)
	s.isolation(d, c)
	s.backends(d, c.Blocks.OfType("backend"))
	filesOK = s.files(d, c)
	s.home(d, c.Blocks.OfType("home"))
	s.workspace(d, c.Blocks.OfType("workspace"))
	s.mounts(d, c.Blocks.OfType("mount"))
	s.limits(d, c.Blocks.OfType("limits"))
	s.network(d, c.Blocks.OfType("network"))
	s.expect(d, c.Blocks.OfType("expect"))
	return filesOK
}

// single picks the only block of a kind.
func (s *scope) single(blocks hcl.Blocks) *hcl.Block {
	if len(blocks) == 0 {
		return nil
	}
	if len(blocks) > 1 {
		s.fail(blocks[1].DefRange, s.context, fmt.Sprintf("%s has only one %s block", s.owner, blocks[1].Type), "", "put both into one")
		s.diags[len(s.diags)-1].Related = relatedTo("the first one is here", blocks[0].DefRange)
	}
	s.origin.ranges.set(blocks[0].Type, blocks[0].DefRange)
	return blocks[0]
}

// program reads what is to be run, and with what.
func (s *scope) program(d *Definition, c *hcl.BodyContent) {
	d.Description, _ = s.text(c, "description", "description")
	if lang, ok := s.text(c, "language", "language"); ok {
		d.Language = lang
		if known := s.options.Languages; known != nil && !contains(known, lang) {
			s.error(c.Attributes["language"].Expr.Range(), fmt.Sprintf("there is no language %s", quote(lang)),
				"The languages are "+list(known)+". For any other, set interpreter.", suggestion(lang, known))
		}
	}
	d.Interpreter = s.interpreter(c)
	d.Entrypoint, _ = s.text(c, "entrypoint", "entrypoint")
	d.Command, _ = s.texts(c, "command", "command")
	d.Args, _ = s.texts(c, "args", "args")
	d.Dependencies, _ = s.texts(c, "dependencies", "dependencies")
	d.Workdir, _ = s.text(c, "workdir", "workdir")
	if text, ok := s.secretText(c, "stdin", "stdin"); ok {
		d.Stdin = &text
	}
	if globs, ok := s.plainTexts(c, "outputs", "outputs"); ok {
		d.Outputs = s.globs(globs, "outputs", c.Attributes["outputs"].Expr)
	}
	s.env(d, c.Attributes["env"])
	for i, arg := range append(append([]string(nil), d.Command...), d.Args...) {
		if strings.ContainsRune(arg, 0) {
			s.nul("command and args", i)
		}
	}
	if strings.ContainsRune(d.Workdir, 0) {
		s.error(c.Attributes["workdir"].Expr.Range(), "workdir holds a NUL byte", "", "")
	}
	s.dependencies(d, c)
}

// nul reports an argument that no program can be given.
func (s *scope) nul(what string, i int) {
	r, _, _ := s.origin.ranges.find([]string{"command"})
	s.error(r, fmt.Sprintf("element %d of %s holds a NUL byte", i, what), "The system ends an argument there.", "")
}

func (s *scope) interpreter(c *hcl.BodyContent) []string {
	a := c.Attributes["interpreter"]
	if a == nil {
		return nil
	}
	// A single word is what most need, so a string is as good as a list of one.
	if v, diags := a.Expr.Value(s.ctx); !diags.HasErrors() && v.Type() == cty.String {
		if text, ok := s.text(c, "interpreter", "interpreter"); ok {
			if text == "" || strings.ContainsAny(text, " \t") {
				s.error(a.Expr.Range(), fmt.Sprintf("interpreter cannot be %s", quote(text)), "A string names one program; its options are further elements of a list.",
					"write a list, such as [\"python3\", \"-u\"]")
				return nil
			}
			return []string{text}
		}
		return nil
	}
	argv, _ := s.plainTexts(c, "interpreter", "interpreter")
	if argv != nil && (len(argv) == 0 || argv[0] == "") {
		s.error(a.Expr.Range(), "interpreter names no program", "", "write a list, such as [\"python3\", \"-u\"], or leave it out")
		return nil
	}
	return argv
}

// env reads a map of strings; a null leaves the variable out.
func (s *scope) env(d *Definition, a *hcl.Attribute) {
	v, ok := s.value(a, "env", cty.Map(cty.String))
	if !ok {
		return
	}
	all := v.HasMark(functions.Sensitive)
	v, _ = v.Unmark()
	for it := v.ElementIterator(); it.Next(); {
		k, e := it.Element()
		name := k.AsString()
		path := member("env", name)
		r := s.origin.rangeOf(path, a.Expr)
		if !validEnvName(name) {
			s.error(keyRange(a.Expr, name), fmt.Sprintf("env has the name %s", shownName(name, all)), "A name of a variable has letters, digits and underscores, and does not begin with a digit.", "")
			continue
		}
		if all && d.Redact(name) != name {
			s.error(a.Expr.Range(), "the name of an environment variable may not be sensitive", "Names are printed in plans and stored.", "give it a name of its own, and the sensitive value as its value")
			continue
		}
		if strings.HasPrefix(name, "HUTCH_") {
			s.error(keyRange(a.Expr, name), fmt.Sprintf("env sets %s", name), "Names that begin with HUTCH_ belong to hutch, which tells the program its directories in them.", "choose another name")
			continue
		}
		if u, _ := e.Unmark(); u.IsNull() || !u.IsKnown() {
			continue
		}
		if all {
			e = e.Mark(functions.Sensitive)
		}
		text := s.keep(e, path)
		if strings.ContainsRune(text, 0) {
			s.error(r, fmt.Sprintf("the value of env %s holds a NUL byte", name), "", "")
			continue
		}
		d.Env[name] = text
	}
}

// shownName is a name for a message, unless it may be a secret itself.
func shownName(name string, sensitive bool) string {
	if sensitive {
		return Redacted
	}
	return quote(name)
}

func (s *scope) dependencies(d *Definition, c *hcl.BodyContent) {
	for i, dep := range d.Dependencies {
		path := element("dependencies", i)
		r := s.origin.rangeOf(path, c.Attributes["dependencies"].Expr)
		shown := quote(dep)
		if s.origin.isSecret(path) {
			shown = Redacted
		}
		switch {
		case strings.TrimSpace(dep) == "":
			s.error(r, fmt.Sprintf("dependencies[%d] is empty", i), "", "")
		case strings.HasPrefix(dep, "-"):
			s.error(r, fmt.Sprintf("dependencies[%d] is an option, not a package: %s", i, shown), "It would change how the installer works.", "")
		case len(dep) > 1024 || !plaintext.IsLine(dep):
			s.error(r, fmt.Sprintf("dependencies[%d] is not the name of a package: %s", i, shown), "", "")
		}
	}
	if len(d.Dependencies) > 0 && d.Language == "" && d.Entrypoint == "" && c.Attributes["entrypoint"] == nil && c.Attributes["language"] == nil {
		s.error(c.Attributes["dependencies"].NameRange, "dependencies need a language", "It says what installs them, and a command does not tell it.", "add language = \"python\" or \"javascript\"")
	}
}

// isolation takes the stronger one of what the file and the run ask for.
func (s *scope) isolation(d *Definition, c *hcl.BodyContent) {
	if got, ok := s.oneOf(c, "min_isolation", "min_isolation", isolations...); ok && sdk.Isolation(got).Rank() > sdk.Isolation(d.MinIsolation).Rank() {
		d.MinIsolation = got
	}
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}
