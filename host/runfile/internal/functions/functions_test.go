package functions

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/hutch-run/hutch/host/runfile/internal/bound"
	"github.com/hutch-run/hutch/host/runfile/internal/tree"
)

// evaluate gives the value of an expression with all functions, at a directory with a few files.
func evaluate(t *testing.T, src string) (cty.Value, hcl.Diagnostics) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"a.txt": "text\n", "b.bin": "\xff\x00", "t.tmpl": "<${x}>", "self.tmpl": `${templatefile("self.tmpl", {})}`,
		"bad.tmpl": "${", "loop.tmpl": "%{ for a in range(1000) }%{ for b in range(1000) }%{ for c in range(1000) }x%{ endfor }%{ endfor }%{ endfor }"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b := bound.NewBudget()
	env := map[string]string{"PLAIN": "p", "MY_TOKEN": "s", "DB_PASSWORD": "s", "AWS_SECRET_ACCESS_KEY": "s", "EMPTY_TOKEN": "", "BINARY": "\xff"}
	lookup := func(k string) (string, bool) { v, ok := env[k]; return v, ok }
	expr, diags := hclsyntax.ParseExpression([]byte(src), "x.hcl", hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatal(src, diags)
	}
	ctx := &hcl.EvalContext{
		Functions: Table(Host{Tree: tree.New(dir), LookupEnv: lookup, Budget: b}),
		Variables: map[string]cty.Value{"secret": cty.StringVal("s").Mark(Sensitive), "unknown": cty.UnknownVal(cty.String)},
	}
	v, diags := bound.GuardExpr(expr, b).Value(ctx)
	if _, reason := b.Spent(); reason != "" {
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "spent", Detail: reason})
	}
	return v, diags
}

func TestErrors(t *testing.T) {
	for src, want := range map[string]string{
		`file("b.bin")`:                 "is not UTF-8 text",
		`file("../x")`:                  "leads out of the directory",
		`file("/etc/shadow")`:           "lies outside the directory",
		`file("")`:                      "the path is empty",
		`file("a.tx")`:                  "there is no \"a.tx\"",
		`filebase64("../x")`:            "leads out of the directory",
		`fileset("..", "*")`:            "leads out of the directory",
		`fileset(".", "../*")`:          "leads out of the directory",
		`fileset(".", "[")`:             "malformed",
		`fileset("a.txt", "*")`:         "not a directory",
		`fileexists("..")`:              "leads out of the directory",
		`fileexists(".")`:               "is a directory",
		`filesha256("../x")`:            "leads out of the directory",
		`templatefile("bad.tmpl", {})`:  "bad.tmpl:1:",
		`templatefile("self.tmpl", {})`: "no function named \"templatefile\"",
		`templatefile("t.tmpl", {})`:    "no variable named \"x\"",
		`templatefile("t.tmpl", ["x"])`: "an object or map",
		`templatefile("loop.tmpl", {})`: "elements",
		`templatefile("../t.tmpl", {})`: "leads out of the directory",
		`env("")`:                       "cannot be the name",
		`env("A=B")`:                    "cannot be the name",
		`env("BINARY")`:                 "is not UTF-8 text",
		`env("A", "b", "c")`:            "at most two arguments",
		`base64decode("/w==")`:          "is not UTF-8 text",
		`base64decode("###")`:           "not base64",
		`urldecode("%zz")`:              "not URL-encoded",
		`replace("a", "/(/", "b")`:      "not a regular expression",
		`index(["a"], "b")`:             "not in the list",
		`index("a", "b")`:               "a list is required",
		`lookup({ a = 1 }, "b")`:        "no element with the key",
		`lookup([1], "b", 2)`:           "a map or object",
		`lookup({ a = 1 }, "b", 1, 2)`:  "at most three",
		`one([1, 2])`:                   "at most one element",
		`one(toset([1, 2]))`:            "more than one element",
		`sum(["a"])`:                    "not a number",
		`sum("a")`:                      "a list, set or tuple is required",
		`length(1)`:                     "is required",
		`format("%5000d", 1)`:           "above 999",
		`formatlist("%.5000f", [1])`:    "above 999",
		`yamldecode("a: [")`:            "yaml",
		`yamldecode(join("", [for i in range(900): "[" ]))`:                       "nested more than 500 deep",
		`yamldecode("a: &a 1\n${join("", [for i in range(30): "b${i}: *a\n"])}")`: "more than 24 aliases",
		`parseint(join("", [for i in range(1000): "99"]), 10)`:                    "1,200 digits",
		`regex(join("", [for i in range(1000): "aaaaaaaaaa"]), "x")`:              "at most 4096",
		`setproduct(range(1000), range(1000))`:                                    "elements",
		`nosuch()`:                                                                "no function named",
	} {
		v, diags := evaluate(t, src)
		if !diags.HasErrors() {
			t.Errorf("%s = %#v, want an error with %q", src, v, want)
			continue
		}
		text := ""
		for _, d := range diags {
			text += d.Summary + ": " + d.Detail + "\n"
		}
		if !strings.Contains(text, want) {
			t.Errorf("%s: got %q, want %q", src, text, want)
		}
	}
}

func TestValues(t *testing.T) {
	for src, want := range map[string]cty.Value{
		`env("PLAIN")`:                           cty.StringVal("p"),
		`env("NONE")`:                            cty.StringVal(""),
		`env("NONE", "d")`:                       cty.StringVal("d"),
		`env("EMPTY_TOKEN", "d")`:                cty.StringVal(""),
		`env("MY_TOKEN")`:                        cty.StringVal("s").Mark(Sensitive),
		`env("DB_PASSWORD")`:                     cty.StringVal("s").Mark(Sensitive),
		`env("AWS_SECRET_ACCESS_KEY")`:           cty.StringVal("s").Mark(Sensitive),
		`upper(secret)`:                          cty.StringVal("S").Mark(Sensitive),
		`length(secret)`:                         cty.NumberIntVal(1).Mark(Sensitive),
		`lookup({ a = secret }, "a")`:            cty.StringVal("s").Mark(Sensitive),
		`templatefile("t.tmpl", { x = secret })`: cty.StringVal("<s>").Mark(Sensitive),
		`nonsensitive([secret])`:                 cty.TupleVal([]cty.Value{cty.StringVal("s")}),
		`issensitive([secret])`:                  cty.False,
		`issensitive(upper(secret))`:             cty.True,
		`try(tonumber(secret), "x")`:             cty.StringVal("x"),
		`upper(unknown)`:                         cty.UnknownVal(cty.String),
		`lookup({ a = 1 }, unknown, 2)`:          cty.DynamicVal,
		`replace("a.b", ".", "-")`:               cty.StringVal("a-b"),
		`replace("abc", "/(b)/", "<$1>")`:        cty.StringVal("a<b>c"),
		`file("./a.txt")`:                        cty.StringVal("text\n"),
		`fileset(".", "none*")`:                  cty.SetValEmpty(cty.String),
		`filebase64("b.bin")`:                    cty.StringVal("/wA="),
		`alltrue([true, null])`:                  cty.False,
		`anytrue([])`:                            cty.False,
		`sum([])`:                                cty.Zero,
		`one([])`:                                cty.NullVal(cty.DynamicPseudoType),
		`index(["a", "b"], "b")`:                 cty.NumberIntVal(1),
		`dirname("a")`:                           cty.StringVal("."),
		`tolist(["a", 1])`:                       cty.ListVal([]cty.Value{cty.StringVal("a"), cty.StringVal("1")}),
		`can(file("../x"))`:                      cty.False,
	} {
		v, diags := evaluate(t, src)
		if diags.HasErrors() || !v.RawEquals(want) {
			t.Errorf("%s = %#v, %v; want %#v", src, v, diags, want)
		}
	}
	v, diags := evaluate(t, `[uuid(), uuid(), timestamp(), abspath("x/../a.txt")]`)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	vs := v.AsValueSlice()
	if vs[0].RawEquals(vs[1]) || len(vs[0].AsString()) != 36 || !filepath.IsAbs(vs[3].AsString()) || filepath.Base(vs[3].AsString()) != "a.txt" {
		t.Errorf("got %#v", vs)
	}
}

// TestEveryFunctionIsPaidFor checks that no function escapes the budget.
func TestEveryFunctionIsPaidFor(t *testing.T) {
	b := bound.NewBudget()
	b.Take(bound.MaxSteps+1, 0, hcl.Range{})
	table := Table(Host{Tree: tree.New(t.TempDir()), LookupEnv: os.LookupEnv, Budget: b})
	if len(table) < 90 {
		t.Errorf("only %d functions", len(table))
	}
	for name, f := range table {
		if name == "try" || name == "can" {
			continue
		}
		var args []cty.Value
		for _, p := range f.Params() {
			v := cty.StringVal("x")
			if p.Type != cty.DynamicPseudoType {
				v = cty.UnknownVal(p.Type)
				switch p.Type {
				case cty.String:
					v = cty.StringVal("x")
				case cty.Number:
					v = cty.NumberIntVal(1)
				case cty.List(cty.String):
					v = cty.ListVal([]cty.Value{cty.StringVal("x")})
				case cty.List(cty.Bool):
					v = cty.ListVal([]cty.Value{cty.True})
				}
			}
			args = append(args, v)
		}
		if p := f.VarParam(); p != nil && len(args) == 0 {
			args = append(args, cty.StringVal("x"))
		}
		if len(args) == 0 {
			continue // uuid and timestamp make nothing that grows
		}
		if v, err := f.Call(args); err == nil && v.IsKnown() {
			t.Errorf("%s worked without a budget: %#v", name, v)
		}
	}
}
