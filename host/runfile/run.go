package runfile

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/runfile/internal/functions"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/plaintext"
)

// maxLockFile bounds a lock file of dependencies, in bytes.
const maxLockFile = 8 << 20

// maxInstances is how many runs one block with for_each makes at most.
const maxInstances = 1000

var runSchema = schemaOf("description for_each language interpreter entrypoint command args env dependencies "+
	"lock_file min_age workdir stdin "+
	"outputs min_isolation",
	"backend name", "file path", "files", "home path", "workspace", "mount path", "limits", "network", "expect")

// runs decodes all run blocks.
func (l *loader) runs() {
	l.named("run", "run", "", func(b *hcl.Block) {
		for _, d := range l.instances(b) {
			d.File, d.RequiredBackends = l.path, l.file.RequiredBackends
			l.file.Runs = append(l.file.Runs, d)
		}
	})
}

// instances decodes a run block once, or once for each element of its for_each.
func (l *loader) instances(b *hcl.Block) []*Definition {
	context := fmt.Sprintf("run %q", b.Labels[0])
	each := b.Body.(*hclsyntax.Body).Attributes["for_each"]
	if each == nil {
		return []*Definition{l.run(b, "", l.ctx, context)}
	}
	elements, ok := l.forEach(each, context)
	if !ok {
		return nil
	}
	if len(elements) == 0 { // nobody else would look at the body
		unknown := map[string]cty.Value{"key": cty.UnknownVal(cty.String), "value": cty.DynamicVal}
		ctx := l.ctx.NewChild()
		ctx.Variables = map[string]cty.Value{"each": cty.ObjectVal(unknown)}
		l.run(b, "", ctx, context)
		return nil
	}
	var all []*Definition
	for _, e := range elements {
		ctx := l.ctx.NewChild()
		ctx.Variables = map[string]cty.Value{"each": cty.ObjectVal(map[string]cty.Value{"key": cty.StringVal(e.key),
			"value": e.value})}
		d := l.run(b, e.key, ctx, fmt.Sprintf("%s with each.key = %s", context, quote(e.key)))
		d.Instance = member(d.Name, e.key)
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
		l.failf(a.Expr.Range(), context, "%s", summary).detail("%s", detail).fix("%s", fix)
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
		return fail("for_each must be a map or a set of strings, not a list",
			"Each run needs a name of its own, and the elements of a list may be equal.", setFix(v, src))
	case t.IsSetType() && t.ElementType() != cty.String && v.LengthInt() > 0:
		return fail(fmt.Sprintf("for_each must be a map or a set of strings, not a set of %ss",
			t.ElementType().FriendlyName()), "", setFix(v, src))
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
			return fail(fmt.Sprintf("for_each has the key %s", quote(key)),
				"A key has 1 to 200 bytes of printable characters, because it becomes part of a run's name.", "")
		}
		elements = append(elements, eachElement{key, e})
	}
	sort.Slice(elements, func(i, j int) bool { return elements[i].key < elements[j].key })
	return elements, true
}

// setFix says how the elements of v, which src is in the file, become keys.
func setFix(v cty.Value, src string) string {
	if len(src) >= 60 || strings.Contains(src, "\n") {
		src = "…"
	}
	strs, plain := true, true
	for it := v.ElementIterator(); it.Next(); {
		_, e := it.Element()
		strs = strs && e.Type() == cty.String
		plain = plain && e.Type().IsPrimitiveType()
	}
	switch {
	case strs:
		return fmt.Sprintf("write toset(%s)", src)
	case plain:
		return fmt.Sprintf("write toset([for x in %s : tostring(x)])", src)
	}
	return fmt.Sprintf("make a map of it, as in { for x in %s : x.name => x }", src)
}

// run decodes one run. What is wrong with it is reported; the definition is then not complete.
func (l *loader) run(hb *hcl.Block, key string, ctx *hcl.EvalContext, context string) *Definition {
	d, s := l.definition(hb, key, ctx, context)
	b := s.open(hb.Body, runSchema, "", s.owner, hb.DefRange)
	filesOK := b.parts(d)
	if b.good {
		b.whatToRun(d, filesOK)
	}
	return d
}

// definition begins a definition, with the scope that its block is read in.
func (l *loader) definition(hb *hcl.Block, key string, ctx *hcl.EvalContext, context string) (*Definition, *scope) {
	name := hb.Labels[0]
	d := &Definition{Name: name, Key: key, Instance: name, File: l.path, Dir: l.file.Dir,
		RequiredBackends: l.file.RequiredBackends,
		Env:              map[string]string{}, Network: network.Network{Mode: sdk.NetworkNone},
		MinIsolation: l.file.MinIsolation}
	d.origin = &origin{ranges: ranges{}, sources: l.sources, context: context}
	d.origin.ranges.set("", hb.DefRange)
	for _, v := range l.varOrder {
		if v.sensitive {
			d.origin.secretValue(v.value)
		}
	}
	d.origin.used = nil // none of them yet
	return d, &scope{loader: l, ctx: ctx, context: context, owner: "a run", origin: d.origin}
}

// parts reads all of a definition but what is to be run. It reports whether all files are good.
func (b *block) parts(d *Definition) (filesOK bool) {
	b.program(d)
	b.isolation(d)
	b.backends(d)
	filesOK = b.files(d)
	b.home(d)
	b.workspace(d)
	b.mounts(d)
	b.limits(d)
	b.network(d)
	b.expect(d)
	return filesOK
}

// program reads what is to be run, and with what.
func (b *block) program(d *Definition) {
	d.Description, _ = b.text("description")
	d.Language, _ = b.text("language")
	if known := b.options.Languages; known != nil && d.Language != "" && !slices.Contains(known, d.Language) {
		b.errorf(b.at("language"), "there is no language %s", quote(d.Language)).
			detail("The languages are %s. For any other, set interpreter.", list(known)).fix("%s", suggestion(d.Language, known))
	}
	d.Interpreter = b.interpreter()
	var ok bool
	if d.Entrypoint, ok = b.text("entrypoint"); ok && d.Entrypoint == "" && !b.has("command") {
		b.errorf(b.at("entrypoint"), "entrypoint is empty").fix("name a declared file, or one of the workspace")
	}
	d.Command, _ = b.secretTexts("command")
	d.Args, _ = b.secretTexts("args")
	d.Workdir, _ = b.text("workdir")
	if text, ok := b.secretText("stdin"); ok {
		d.Stdin = &text
	}
	d.Outputs = b.globs("outputs")
	b.env(d)
	b.noNUL("command", d.Command...)
	b.noNUL("args", d.Args...)
	b.noNUL("workdir", d.Workdir)
	b.dependencies(d)
}

// noNUL refuses arguments that no program can be given.
func (b *block) noNUL(name string, args ...string) {
	for i, arg := range args {
		if strings.ContainsRune(arg, 0) {
			b.errorf(b.elementAt(name, i), "%s holds a NUL byte", name).detail("The system ends an argument there.")
		}
	}
}

// interpreter reads a command. A single word is what most need, so a string is as good as a list of one.
func (b *block) interpreter() []string {
	argv, single, ok := b.oneOrMore("interpreter")
	switch {
	case !ok:
	case b.anySecret("interpreter", argv):
		b.sensitive("interpreter")
	case len(argv) == 0 || argv[0] == "":
		b.errorf(b.at("interpreter"), "interpreter names no program").
			fix(`write a list, such as ["python3", "-u"], or leave it out`)
	case single && strings.ContainsAny(argv[0], " \t"):
		b.errorf(b.at("interpreter"), "interpreter cannot be %s", quote(argv[0])).
			detail("A string names one program; its options are further elements of a list.").
			fix(`write a list, such as ["python3", "-u"]`)
	default:
		return argv
	}
	return nil
}

// env reads a map of strings; a null leaves the variable out.
func (b *block) env(d *Definition) {
	v, ok := b.value("env", cty.Map(cty.String))
	if !ok {
		return
	}
	expr := b.attrs["env"].Expr
	all := v.HasMark(functions.Sensitive)
	v, _ = v.Unmark()
	for it := v.ElementIterator(); it.Next(); {
		k, e := it.Element()
		name := k.AsString()
		path := member("env", name)
		shown := quote(name)
		if all {
			shown = Redacted // it may be a secret itself
		}
		switch u, _ := e.Unmark(); {
		case !validEnvName(name):
			b.errorf(keyRange(expr, name), "env has the name %s", shown).
				detail("A name of a variable has letters, digits and underscores, and does not begin with a digit.")
		case all && d.Redact(name) != name:
			b.errorf(expr.Range(), "the name of an environment variable may not be sensitive").
				detail("Names are printed in plans and stored.").fix("give it another name, and the sensitive value as its value")
		case strings.HasPrefix(name, "HUTCH_"):
			b.errorf(keyRange(expr, name), "env sets %s", name).
				detail("Names that begin with HUTCH_ belong to hutch, which gives the program its directories in them.").
				fix("choose another name")
		case u.IsNull() || !u.IsKnown():
		case strings.ContainsRune(u.AsString(), 0):
			b.errorf(b.origin.rangeAt(path, expr.Range()), "the value of env %s holds a NUL byte", name)
		default:
			if all {
				e = e.Mark(functions.Sensitive)
			}
			d.Env[name] = b.keep(e, path)
		}
	}
}

func (b *block) dependencies(d *Definition) {
	d.Dependencies, _ = b.secretTexts("dependencies")
	for i, dep := range d.Dependencies {
		path, r := element("dependencies", i), b.elementAt("dependencies", i)
		shown := quote(dep)
		if b.origin.isSecret(path) {
			shown = Redacted
		}
		switch {
		case strings.TrimSpace(dep) == "":
			b.errorf(r, "%s is empty", path)
		case strings.HasPrefix(dep, "-"):
			b.errorf(r, "%s is an option, not a package: %s", path, shown).detail("It would change how the installer works.")
		case len(dep) > 1024 || !plaintext.IsLine(dep):
			b.errorf(r, "%s is not the name of a package: %s", path, shown)
		}
	}
	d.MinAge = b.duration("min_age")
	name := "dependencies"
	if file, ok := b.text("lock_file"); ok {
		name = "lock_file"
		b.lockFile(d, file)
	}
	if d.Installs() && !b.has("entrypoint") && !b.has("language") {
		b.errorf(b.nameAt(name), "dependencies need a language").
			detail("It says what installs them, and a command does not say it.").fix(`add language = "python" or "javascript"`)
	}
}

// lockFile reads the lock file of the dependencies.
func (b *block) lockFile(d *Definition, file string) {
	rel, _, err := b.tree.Find(file, maxLockFile)
	var text []byte
	if err == nil {
		text, err = b.tree.ReadFile(rel, maxLockFile)
	}
	switch {
	case err != nil:
		b.unusable("lock_file", "the lock file", err)
	case len(bytes.TrimSpace(text)) == 0 || !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0:
		b.errorf(b.at("lock_file"), "the lock file is empty, or not a text in UTF-8")
	case b.has("dependencies"):
		b.errorf(b.nameAt("dependencies"), "dependencies and lock_file exclude each other").
			detail("A lock file has all packages that are installed.").fix("remove one of them")
	case b.has("min_age"):
		b.errorf(b.nameAt("min_age"), "min_age and lock_file exclude each other").
			detail("A lock file says which releases are installed.").fix("remove min_age")
	default:
		d.LockFile = string(text)
	}
}

// isolation takes the stronger one of what the file and the run ask for.
func (b *block) isolation(d *Definition) {
	got, ok := b.oneOf("min_isolation", isolations...)
	if ok && sdk.Isolation(got).Rank() > sdk.Isolation(d.MinIsolation).Rank() {
		d.MinIsolation = got
	}
}
