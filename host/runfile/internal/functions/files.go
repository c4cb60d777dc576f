package functions

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/runfile/internal/bound"
	"github.com/hutch-run/hutch/host/runfile/internal/tree"
)

// MaxFile is how much of a file becomes a value.
const MaxFile = 4 << 20

// MaxHashed is how much of a file is hashed.
const MaxHashed = 64 << 20

// read reads a file, at the expense of the budget.
func (h Host) read(p string, max int64) ([]byte, error) {
	b, err := h.Tree.ReadFile(p, max)
	if err == nil && !h.Budget.Take(1, int64(len(b)), hcl.Range{}) {
		err = errSpent
	}
	return b, err
}

func file(h Host) function.Function {
	return stringFunc(func(s ...string) (cty.Value, error) {
		b, err := h.read(s[0], MaxFile)
		if err != nil {
			return cty.NilVal, err
		}
		if !utf8.Valid(b) {
			return cty.NilVal, fmt.Errorf("%s is not UTF-8 text (use filebase64, or a file block with source)", diag.Quote(s[0]))
		}
		return cty.StringVal(string(b)), nil
	}, cty.String, "path")
}

func fileBase64(h Host) function.Function {
	return stringFunc(func(s ...string) (cty.Value, error) {
		b, err := h.read(s[0], MaxFile)
		if err != nil {
			return cty.NilVal, err
		}
		return cty.StringVal(base64.StdEncoding.EncodeToString(b)), nil
	}, cty.String, "path")
}

func fileSHA256(h Host) function.Function {
	return stringFunc(func(s ...string) (cty.Value, error) {
		f, info, err := h.Tree.Open(s[0], MaxHashed)
		if err != nil {
			return cty.NilVal, err
		}
		defer f.Close()
		if !h.Budget.Take(1, info.Size()/8, hcl.Range{}) {
			return cty.NilVal, errSpent
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, io.LimitReader(f, MaxHashed)); err != nil {
			return cty.NilVal, err
		}
		return cty.StringVal(hex.EncodeToString(sum.Sum(nil))), nil
	}, cty.String, "path")
}

func fileExists(h Host) function.Function {
	return stringFunc(func(s ...string) (cty.Value, error) {
		if !h.Budget.Take(10, 0, hcl.Range{}) {
			return cty.NilVal, errSpent
		}
		info, err := h.Tree.Stat(s[0])
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return cty.False, nil
		case err != nil:
			return cty.NilVal, err
		case !info.Mode().IsRegular():
			return cty.NilVal, fmt.Errorf("%s is %s, not a regular file", diag.Quote(s[0]), tree.Kind(info.Mode()))
		}
		return cty.True, nil
	}, cty.Bool, "path")
}

func fileSet(h Host) function.Function {
	return stringFunc(func(s ...string) (cty.Value, error) {
		if err := tree.CheckPattern(s[1]); err != nil {
			return cty.NilVal, function.NewArgError(1, err)
		}
		if !h.Budget.Take(1000, 0, hcl.Range{}) {
			return cty.NilVal, errSpent
		}
		found, err := h.Tree.Glob(s[0], []string{s[1]}, nil)
		if err != nil {
			return cty.NilVal, err
		}
		if len(found.Files) == 0 {
			return cty.SetValEmpty(cty.String), nil
		}
		names := make([]cty.Value, len(found.Files))
		for i, f := range found.Files {
			if !utf8.ValidString(f.Path) {
				return cty.NilVal, fmt.Errorf("the name of %q is not UTF-8", f.Path)
			}
			names[i] = cty.StringVal(f.Path)
		}
		return cty.SetVal(names), nil
	}, cty.Set(cty.String), "path", "pattern")
}

// absPath is relative to the run file's directory, like every path in it, and not to where hutch was started.
func absPath(h Host) function.Function {
	return stringFunc(func(s ...string) (cty.Value, error) {
		p := s[0]
		if !filepath.IsAbs(p) {
			p = filepath.Join(h.Tree.Dir, p)
		}
		return cty.StringVal(filepath.ToSlash(filepath.Clean(p))), nil
	}, cty.String, "path")
}

var secretName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(secret|token|passw|passphrase|credential|private|api_?key|access_?key|auth)`)
})

// env reads a variable of the host's environment; one that is not set is an empty string, or the default. Variables
// whose names say that they hold a secret give sensitive values.
func env(h Host) function.Function {
	return function.New(&function.Spec{
		Params:   []function.Parameter{{Name: "name", Type: cty.String}},
		VarParam: &function.Parameter{Name: "default", Type: cty.String},
		Type:     function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if len(args) > 2 {
				return cty.NilVal, errors.New("at most two arguments are taken: the name and a default")
			}
			name := args[0].AsString()
			if name == "" || strings.ContainsAny(name, "=\x00") {
				return cty.NilVal, function.NewArgErrorf(0, "%s cannot be the name of an environment variable", diag.Quote(name))
			}
			s, ok := h.LookupEnv(name)
			if !ok && len(args) == 2 {
				return args[1], nil
			}
			v, err := text(s)
			if err != nil {
				return cty.NilVal, fmt.Errorf("the value of %s is not UTF-8 text", diag.Quote(name))
			}
			if s != "" && secretName().MatchString(name) {
				v = v.Mark(Sensitive)
			}
			return v, nil
		},
	})
}

// templateFile renders a file with the given variables. All functions work in it but templatefile itself.
func templateFile(h Host, table map[string]function.Function) function.Function {
	var inner map[string]function.Function
	render := func(args []cty.Value) (cty.Value, error) {
		vars, marks := args[1].Unmark()
		if t := vars.Type(); !t.IsObjectType() && !t.IsMapType() {
			return cty.NilVal, function.NewArgErrorf(1, "an object or map of the template's variables is required")
		}
		p := args[0].AsString()
		src, err := h.read(p, bound.MaxFileSize)
		if err != nil {
			return cty.NilVal, err
		}
		if !utf8.Valid(src) {
			return cty.NilVal, fmt.Errorf("%s is not UTF-8 text", diag.Quote(p))
		}
		start := hcl.InitialPos
		tokens, _ := hclsyntax.LexTemplate(src, p, start) // the parser reports what is wrong with them
		if where, reason := bound.CheckTokens(tokens); reason != "" {
			return cty.NilVal, templateError(p, src, hcl.Diagnostics{{Severity: hcl.DiagError,
				Summary: "The template is too complex", Detail: reason, Subject: &where}})
		}
		expr, diags := hclsyntax.ParseTemplate(src, p, start)
		if diags.HasErrors() {
			return cty.NilVal, templateError(p, src, diags)
		}
		if inner == nil {
			inner = make(map[string]function.Function, len(table))
			for name, f := range table {
				if name != "templatefile" {
					inner[name] = f
				}
			}
		}
		ctx := &hcl.EvalContext{Functions: inner, Variables: map[string]cty.Value{}}
		for it := vars.ElementIterator(); it.Next(); {
			k, v := it.Element()
			ctx.Variables[k.AsString()] = v.WithMarks(marks)
		}
		v, diags := bound.GuardExpr(expr, h.Budget).Value(ctx)
		if _, reason := h.Budget.Spent(); reason != "" {
			return cty.NilVal, errSpent
		}
		if diags.HasErrors() {
			return cty.NilVal, templateError(p, src, diags)
		}
		return v, nil
	}
	return function.New(&function.Spec{
		Params: []function.Parameter{
			{Name: "path", Type: cty.String},
			// With their marks, so that an error inside the template does not print what is sensitive.
			{Name: "vars", Type: cty.DynamicPseudoType, AllowMarked: true},
		},
		Type: func(args []cty.Value) (cty.Type, error) {
			if !args[0].IsKnown() || !args[1].IsWhollyKnown() {
				return cty.DynamicPseudoType, nil
			}
			v, err := render(args)
			if err != nil {
				return cty.NilType, err
			}
			return v.Type(), nil
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return render(args) },
	})
}

// TemplateError is what is wrong inside a template, with its source: the diagnostic around it can only point at the
// call.
type TemplateError struct {
	File       string
	Source     []byte
	Diagnostic *hcl.Diagnostic
}

func (e *TemplateError) Error() string {
	where := e.File
	if e.Diagnostic.Subject != nil {
		where = fmt.Sprintf("%s:%d:%d", e.File, e.Diagnostic.Subject.Start.Line, e.Diagnostic.Subject.Start.Column)
	}
	return fmt.Sprintf("%s: %s: %s", where, e.Diagnostic.Summary, e.Diagnostic.Detail)
}

func templateError(file string, src []byte, diags hcl.Diagnostics) error {
	for _, d := range diags {
		if d.Severity == hcl.DiagError {
			return &TemplateError{File: file, Source: src, Diagnostic: d}
		}
	}
	return fmt.Errorf("the template %s cannot be rendered", diag.Quote(file))
}
