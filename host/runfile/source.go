package runfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/diag/hcldiag"
	"github.com/hutch-run/hutch/host/runfile/internal/bound"
	"github.com/hutch-run/hutch/host/runfile/internal/functions"
	"github.com/hutch-run/hutch/host/runfile/internal/tree"
)

// sources are the texts that ranges point into, by file name.
type sources map[string][]byte

// at puts a range and its excerpt into a diagnostic.
func (s sources) at(d diag.Diagnostic, r hcl.Range) diag.Diagnostic {
	if r.Filename == "" || r.Start.Line == 0 {
		return d
	}
	rng := hcldiag.Range(r)
	d.Range = &rng
	if src, ok := s[r.Filename]; ok {
		d.Snippet = diag.Excerpt(src, rng)
	}
	return d
}

// ReadSource reads a run file as it is, up to the size that [Load] takes. The error is a [diag.Diagnostic].
func ReadSource(path string) ([]byte, error) {
	src, d := readSource(path, "run file")
	if d != nil {
		return nil, *d
	}
	return src, nil
}

// readSource reads a run file or a file of variables, up to a size. Unlike the files it names, it is the caller's own
// choice and may lie anywhere and be a pipe.
func readSource(path, what string) ([]byte, *diag.Diagnostic) {
	fail := func(reason, fix string) ([]byte, *diag.Diagnostic) {
		d := diag.Errorf("%s", reason)
		d.Fix = fix
		return nil, &d
	}
	q := diag.Quote(path)
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fail(fmt.Sprintf("there is no %s %s", what, q), similarFile(path))
	case errors.Is(err, fs.ErrPermission):
		return fail(fmt.Sprintf("the %s %s may not be read by this user", what, q), "")
	case errors.Is(err, syscall.ENOTDIR):
		return fail(fmt.Sprintf("the path of the %s %s goes through a file as if it were a directory", what, q), "")
	case err != nil:
		return fail(fmt.Sprintf("the %s %s cannot be opened: %v", what, q, withoutPath(err)), "")
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fail(fmt.Sprintf("the %s %s cannot be read: %v", what, q, err), "")
	}
	if info.IsDir() {
		return fail(fmt.Sprintf("%s is a directory, and a %s is wanted", q, what), filesIn(path))
	}
	if info.Size() > bound.MaxFileSize {
		return fail(fmt.Sprintf("the %s %s is %d bytes large; at most 512 KiB are read", what, q, info.Size()),
			"keep data in files of its own, and name them with file or files blocks")
	}
	src, err := io.ReadAll(io.LimitReader(f, bound.MaxFileSize+1))
	if err != nil {
		return fail(fmt.Sprintf("the %s %s cannot be read: %v", what, q, err), "")
	}
	if len(src) > bound.MaxFileSize {
		return fail(fmt.Sprintf("the %s %s is larger than 512 KiB", what, q),
			"keep data in files of its own, and name them with file or files blocks")
	}
	return src, nil
}

// withoutPath is what is wrong, for a message that names the file itself.
func withoutPath(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// similarFile suggests a file beside a missing one whose name is near.
func similarFile(path string) string {
	if name := similarName(path); name != "" {
		return "did you mean " + diag.Quote(filepath.Join(filepath.Dir(path), name)) + "?"
	}
	return ""
}

// similarName is a name beside a missing file that is near its name, or "".
func similarName(path string) string {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return ""
	}
	defer d.Close()
	names, _ := d.Readdirnames(1000) // what could be read is enough for a hint
	return diag.Suggest(filepath.Base(path), names)
}

// filesIn names a few run files of a directory.
func filesIn(dir string) string {
	found, err := FindRunFiles(dir)
	if err != nil || len(found) == 0 {
		return "name a .hcl file"
	}
	if len(found) > 3 {
		return fmt.Sprintf("name a file, such as %s, or one of the %d others below it", diag.Quote(found[0]), len(found)-1)
	}
	for i, f := range found {
		found[i] = diag.Quote(f)
	}
	return "name a file: " + strings.Join(found, " or ")
}

// checkText refuses what is not plain UTF-8 text, with the place: the parser would accept some of it, and say strange
// things about the rest.
func checkText(name string, src []byte) *hcl.Diagnostic {
	fail := func(offset, n int, summary, detail string) *hcl.Diagnostic {
		r := hcl.Range{Filename: name, Start: posAt(src, offset), End: posAt(src, offset+n)}
		return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: detail, Subject: &r}
	}
	switch {
	case bytes.HasPrefix(src, []byte("\xef\xbb\xbf")):
		return fail(0, 3, "the file begins with a byte order mark",
			"Save it as UTF-8 without one (in many editors: \"UTF-8\", not \"UTF-8 with BOM\").")
	case bytes.HasPrefix(src, []byte("\xff\xfe")), bytes.HasPrefix(src, []byte("\xfe\xff")):
		return fail(0, 2, "the file is UTF-16, not UTF-8", "Save it as UTF-8.")
	}
	if i := bytes.IndexByte(src, 0); i >= 0 {
		return fail(i, 1, "the file holds a NUL byte",
			"A run file is plain text. To give a program binary data, keep it in a file of its own and name that with source.")
	}
	if !utf8.Valid(src) {
		for i := 0; i < len(src); {
			r, n := utf8.DecodeRune(src[i:])
			if r == utf8.RuneError && n == 1 {
				return fail(i, 1, fmt.Sprintf("the byte 0x%02x here is not UTF-8", src[i]), "Save the file as UTF-8.")
			}
			i += n
		}
	}
	return nil
}

// posAt is the position of a byte. Columns count characters, near enough for a caret.
func posAt(src []byte, offset int) hcl.Pos {
	offset = min(offset, len(src))
	line := bytes.Count(src[:offset], []byte("\n")) + 1
	start := bytes.LastIndexByte(src[:offset], '\n') + 1
	return hcl.Pos{Line: line, Column: utf8.RuneCount(src[start:offset]) + 1, Byte: offset}
}

// parse turns text into syntax, unless reading it would already cost too much.
func parse(name string, src []byte) (*hclsyntax.Body, hcl.Diagnostics) {
	if d := checkText(name, src); d != nil {
		return nil, hcl.Diagnostics{d}
	}
	tokens, _ := hclsyntax.LexConfig(src, name, hcl.InitialPos) // the parser reports what is wrong with them
	if where, reason := bound.CheckTokens(tokens); reason != "" {
		return nil, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "the file is too complex", Detail: sentence(reason),
			Subject: &where}}
	}
	file, diags := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, worthReading(diags)
	}
	return file.Body.(*hclsyntax.Body), diags // ParseConfig documents this type
}

// treeFix is the fix that an error about a file brings along.
func treeFix(err error) (reason, fix string) {
	var e *tree.Error
	if errors.As(err, &e) {
		return e.Reason, e.Fix
	}
	return err.Error(), ""
}

// sentence makes a clause one: a capital letter and a full stop.
func sentence(s string) string {
	if s == "" {
		return s
	}
	if r, n := utf8.DecodeRuneInString(s); r >= 'a' && r <= 'z' {
		s = strings.ToUpper(s[:n]) + s[n:]
	}
	if !strings.HasSuffix(s, ".") && !strings.HasSuffix(s, "?") {
		s += "."
	}
	return s
}

// didYouMean finds the hint in the details of HCL's diagnostics.
var didYouMean = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(` ?Did you mean (to define )?([^?]+)\?( If so, use the equals sign to assign it a value\.)?`)
})

// fromHCL puts a diagnostic of the HCL library into hutch's form: the hint becomes the fix, errors of files bring
// theirs, and the values that the expression used are listed.
func (s sources) fromHCL(d *hcl.Diagnostic, context string) diag.Diagnostic {
	out := diag.Diagnostic{Severity: diag.Error, Summary: lowerFirst(d.Summary), Detail: d.Detail, Context: context}
	if d.Severity == hcl.DiagWarning {
		out.Severity = diag.Warning
	}
	if m := didYouMean().FindStringSubmatch(out.Detail); m != nil {
		out.Detail = strings.TrimSpace(didYouMean().ReplaceAllString(out.Detail, ""))
		out.Fix = "did you mean " + m[2] + "?"
	}
	text, line := s.around(d.Subject)
	w := rewrite(d, wording{out.Summary, out.Detail, out.Fix}, text, line)
	out.Summary, out.Detail, out.Fix = w.summary, w.detail, w.fix
	if fix, ok := d.Extra.(fixExtra); ok {
		out.Fix = string(fix)
	}
	var call hclsyntax.FunctionCallDiagExtra
	if c, ok := hcl.DiagnosticExtra[hclsyntax.FunctionCallDiagExtra](d); ok {
		call = c
	}
	var file *tree.Error
	var tmpl *functions.TemplateError
	if call != nil && call.CalledFunctionName() != "" && call.FunctionCallError() != nil {
		name := call.CalledFunctionName()
		if errors.As(call.FunctionCallError(), &file) {
			out.Summary, out.Detail, out.Fix = fmt.Sprintf("%s() cannot read %s", name, diag.Quote(file.Path)),
				sentence(file.Reason), file.Fix
		} else if errors.As(call.FunctionCallError(), &tmpl) {
			inner := sources{tmpl.File: tmpl.Source}.fromHCL(tmpl.Diagnostic, "the template "+quote(tmpl.File))
			(*finding)(&inner).related(name+"() is called here", *d.Subject)
			return inner
		} else if d.Summary == "Error in function call" {
			out.Summary, out.Detail = fmt.Sprintf("%s() failed", name), sentence(call.FunctionCallError().Error())
			if out.Detail == "EOF." {
				out.Detail = "The text ends too early."
			}
		} else {
			out.Summary = fmt.Sprintf("wrong argument for %s()", name)
		}
	}
	if d.Subject != nil {
		out = s.at(out, *d.Subject)
	}
	if strings.Contains(d.Summary, "UTF-16") {
		out.Snippet = nil
	}
	if d.Expression != nil && d.EvalContext != nil {
		out.Values = values(d.Expression, d.EvalContext)
		withhold(&out, d, call != nil)
	}
	return out
}

// Explain returns what the HCL library found in a file of settings, in the words and with the excerpts of run files.
func Explain(path string, src []byte, found hcl.Diagnostics) diag.Diagnostics {
	var out diag.Diagnostics
	for _, d := range worthReading(found) {
		out = append(out, sources{path: src}.fromHCL(d, ""))
	}
	return out
}

// withhold keeps what a message says about sensitive values out of it. What a function says can hold them in any form.
func withhold(out *diag.Diagnostic, d *hcl.Diagnostic, call bool) {
	secret := origin{}
	for _, t := range d.Expression.Variables() {
		if v, diags := t.TraverseAbs(d.EvalContext); !diags.HasErrors() && v != cty.NilVal {
			secret.markedStrings(v)
		}
	}
	if len(secret.secrets) == 0 {
		return
	}
	if call {
		out.Detail, out.Fix = "The reason is not shown, because it can hold a sensitive value.", ""
	}
	for _, text := range []*string{&out.Summary, &out.Detail, &out.Fix} {
		for _, s := range (&Definition{origin: &secret}).Secrets() {
			*text = strings.ReplaceAll(*text, s, Redacted)
		}
	}
}

// fixExtra brings a fix along in a diagnostic of HCL.
type fixExtra string

// setAt finds the line in what HCL says about an argument that is set twice.
var setAt = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`at \S+:([0-9]+),[0-9]+-[0-9]+`) })

// around is the source at a range, and the whole of its first line.
func (s sources) around(r *hcl.Range) (text, line string) {
	if r == nil {
		return "", ""
	}
	src := s[r.Filename]
	if r.Start.Byte > len(src) {
		return "", ""
	}
	text = string(r.SliceBytes(src))
	start := bytes.LastIndexByte(src[:r.Start.Byte], '\n') + 1
	line, _, _ = strings.Cut(string(src[start:min(len(src), start+4096)]), "\n")
	return text, line
}

// wording is what a diagnostic says.
type wording struct{ summary, detail, fix string }

var oneLine = wording{"a block on one line holds one argument and ends there", "", "put the arguments on lines of their own"}

// wordings say better what users see most often.
var wordings = map[string]wording{
	"Missing item separator":      {"a comma is missing between two elements", "", "put a comma before this one"},
	"Missing attribute separator": {"a comma or a line end is missing between two elements", "", ""},
	"Missing argument separator": {"a comma or a closing parenthesis is missing",
		"The arguments of a function are separated by commas and end with a ).", ""},
	"Missing newline after argument": {"the line goes on after the end of the value", "",
		"put what follows on a line of its own"},
	"Invalid single-argument block definition": oneLine, "Argument definition required": oneLine,
	"Unterminated tuple constructor expression":  {"this list is not closed", "", "add a ] where it ends"},
	"Unterminated object constructor expression": {"this map is not closed", "", "add a } where it ends"},
	"Unterminated function call":                 {"this function call is not closed", "", "add a ) where it ends"},
	"Unterminated template string": {"a string or heredoc is not closed",
		"A heredoc ends with a line that holds nothing but the word it began with.", ""},
	"Unclosed configuration block": {"this block is not closed",
		"There is no closing brace for it before the end of the file.",
		"add a } where the block ends"},
	"Missing dynamic content block": {"this dynamic block has no content", "",
		"add content { … } with what each block holds"},
}

// rewrite is the wording of a diagnostic that depends on text, the source that it points at, or on the whole line. The
// original wording is returned where there is no better one.
func rewrite(d *hcl.Diagnostic, was wording, text, line string) wording {
	if w, ok := wordings[d.Summary]; ok {
		return w
	}
	switch d.Summary {
	case "Unknown variable":
		was.summary = "nothing has this name"
	case "Call to unknown function":
		was.summary, was.detail, was.fix = fmt.Sprintf("there is no function %q", text), "",
			diag.DidYouMean(text, functionNames(d.EvalContext))
	case "Invalid character":
		switch text {
		case "'":
			return wording{"strings are written in double quotes", "Single quotes mean nothing in HCL.", `write "text"`}
		case ";":
			return wording{"a semicolon means nothing here", "Arguments and blocks each stand on a line of their own.",
				"remove it"}
		case "$":
			return wording{"a $ means something only in a string", "",
				`write var.NAME for a variable of the file, env("NAME") for one of this machine, "$NAME" for the text`}
		case "“", "”", "„", "‘", "’":
			return wording{"strings are written in double quotes", "These are typographic ones.", `write "text"`}
		}
	case "Attribute redefined":
		if m := setAt().FindStringSubmatch(was.detail); m != nil {
			was.detail = "It is set first in line " + m[1] + "."
		}
		return wording{fmt.Sprintf("the argument %q is set twice", text), was.detail, "remove one of the two"}
	case "Argument or block definition required":
		switch {
		case text == "}":
			return wording{"this brace closes nothing", "", "remove it, or add the { that it belongs to"}
		case !hclsyntax.ValidIdentifier(text):
			return wording{"an argument or a block is expected here", "Lines are NAME = VALUE, or blocks: NAME { … }.",
				was.fix}
		}
		if strings.HasPrefix(strings.TrimSpace(line), text+":") {
			return wording{fmt.Sprintf("%q is followed by a colon", text), "",
				fmt.Sprintf("write %s = … for an argument, %s { … } for a block", text, text)}
		}
		return wording{fmt.Sprintf("an equals sign or a brace is missing after %q", text), "",
			fmt.Sprintf("write %s = … for an argument, %s { … } for a block", text, text)}
	case "Invalid expression":
		if strings.TrimSpace(text) == "" {
			return wording{"a value is missing here", "", was.fix}
		}
	case "Invalid escape sequence":
		if len(text) == 2 {
			return wording{text + " means nothing in a string", "",
				fmt.Sprintf(`write \\%s for a backslash and %q`, text[1:], text[1:])}
		}
	case "Invalid multi-line string":
		if i := strings.LastIndex(line, "${"); i >= 0 && !strings.Contains(line[i:], "}") {
			return wording{"a ${ on this line is not closed", "", "add a } where the expression ends"}
		}
		return wording{"this string is not closed", "A string in quotes ends on the line on which it begins.",
			"add the closing quote; text of several lines goes between <<-END and END"}
	case "Invalid string literal":
		if strings.Contains(was.detail, "Template sequences") {
			return wording{"the name of a block cannot be computed",
				"Names of blocks are plain strings; $${ stands for the characters ${.",
				`to make blocks from values, write dynamic "file" { for_each = … labels = [file.key] content { … } }`}
		}
	case "Invalid template interpolation value":
		if strings.Contains(was.detail, "is null") {
			return wording{"this value cannot be part of a string", "It is null.", was.fix}
		}
		return wording{"this value cannot be part of a string", "Only strings, numbers, true and false can.",
			`for a list or a map, use join(", ", …) or jsonencode(…)`}
	}
	return was
}

func functionNames(ctx *hcl.EvalContext) (names []string) {
	for ; ctx != nil; ctx = ctx.Parent() {
		names = slices.AppendSeq(names, maps.Keys(ctx.Functions))
	}
	return names
}

// worthReading leaves of the syntax errors only those that are not the consequence of another one: the first of each
// line, and none after a string or block that was never closed.
func worthReading(ds hcl.Diagnostics) hcl.Diagnostics {
	sort.SliceStable(ds, func(i, j int) bool {
		a, b := ds[i], ds[j]
		if a.Subject == nil || b.Subject == nil || a.Subject.Start.Line != b.Subject.Start.Line {
			return a.Subject != nil && b.Subject != nil && a.Subject.Start.Line < b.Subject.Start.Line
		}
		return a.Summary == "Invalid character" && b.Summary != "Invalid character"
	})
	var out hcl.Diagnostics
	line := -1
	for _, d := range ds {
		if d.Subject != nil {
			if d.Subject.Start.Line == line {
				continue
			}
			line = d.Subject.Start.Line
		}
		out = append(out, d)
		switch d.Summary {
		case "Invalid multi-line string", "Unterminated template string", "Unclosed configuration block",
			"Unterminated tuple constructor expression", "Unterminated object constructor expression":
			return out
		}
	}
	return out
}

func lowerFirst(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if r < 'A' || r > 'Z' {
		return s
	}
	if next, _ := utf8.DecodeRuneInString(s[n:]); next >= 'A' && next <= 'Z' { // HCL, JSON
		return s
	}
	return strings.ToLower(s[:n]) + s[n:]
}

// values lists what the references of an expression stood for, as far as that helps and may be shown.
func values(expr hcl.Expression, ctx *hcl.EvalContext) []diag.Value {
	var vs []diag.Value
	seen := map[string]bool{}
	for _, t := range expr.Variables() {
		v, diags := t.TraverseAbs(ctx)
		if diags.HasErrors() {
			continue
		}
		name := traversalText(t)
		if seen[name] || len(vs) == 4 {
			continue
		}
		seen[name] = true
		if text := describe(v); text != "" {
			vs = append(vs, diag.Value{Name: name, Text: text})
		}
	}
	sort.Slice(vs, func(i, j int) bool { return vs[i].Name < vs[j].Name })
	return vs
}

func traversalText(t hcl.Traversal) string {
	var b strings.Builder
	for _, step := range t {
		switch step := step.(type) {
		case hcl.TraverseRoot:
			b.WriteString(step.Name)
		case hcl.TraverseAttr:
			b.WriteString("." + step.Name)
		case hcl.TraverseIndex:
			if step.Key.Type() == cty.String {
				b.WriteString("[" + diag.Quote(step.Key.AsString()) + "]")
			} else if step.Key.Type() == cty.Number {
				b.WriteString("[" + step.Key.AsBigFloat().Text('f', -1) + "]")
			}
		}
	}
	return b.String()
}

// describe shows a value in a few words: itself when it is small, else what it is. Sensitive values are "sensitive".
func describe(v cty.Value) string {
	switch {
	case v == cty.NilVal:
		return ""
	case v.HasMark(functions.Sensitive):
		return "sensitive"
	}
	v, _ = v.Unmark()
	t := v.Type()
	switch {
	case !v.IsKnown():
		return "not known yet"
	case v.IsNull():
		return "null"
	case t == cty.String:
		return diag.Quote(v.AsString())
	case t == cty.Number:
		return v.AsBigFloat().Text('g', 20)
	case t == cty.Bool:
		return fmt.Sprint(v.True())
	case t.IsObjectType():
		return plural(len(t.AttributeTypes()), "an object with no attributes", "object with 1 attribute",
			"object with %d attributes")
	case t.IsTupleType():
		return plural(t.Length(), "an empty list", "list with 1 element", "list with %d elements")
	case t.IsCollectionType():
		n := v.LengthInt()
		return plural(n, "an empty "+t.FriendlyName(), t.FriendlyName()+" with 1 element",
			t.FriendlyName()+" with %d elements")
	}
	return t.FriendlyName()
}

func plural(n int, none, one, many string) string {
	switch n {
	case 0:
		return none
	case 1:
		return "a " + one
	}
	return fmt.Sprintf("a "+many, n)
}
