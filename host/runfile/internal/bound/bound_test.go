package bound

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

func parse(t *testing.T, src string) *hclsyntax.Body {
	t.Helper()
	f, diags := hclsyntax.ParseConfig([]byte(src), "x.hcl", hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return f.Body.(*hclsyntax.Body)
}

// expressions of every kind, with the names they refer to.
var expressions = map[string]string{
	`1`: "", `"a"`: "", `null`: "", `x`: "x", `x.a.b`: "x", `x[0]`: "x", `x[y]`: "x y", `x[*].a`: "x", `x.*.a`: "x", `-n`: "n", `!b`: "b",
	`n + n * 2`: "n n", `b ? x : y`: "b x y", `[x, y, 1]`: "x y", `{ a = x, (k) = y, "q${k}" = 1 }`: "x k y k", `"t${x}u${y}"`: "x y", `"${x}"`: "x",
	`[for v in x : v]`: "x", `[for i, v in x : v if i != n]`: "x n", `{ for k, v in x : k => v... }`: "x", `f(x, y...)`: "x y", `(x)`: "x",
	`x[*][y]`: "x y", `[for v in x : [for w in v : w + n]]`: "x n", "<<E\n%{ for v in x }${v}${n}%{ endfor }\nE\n": "x n",
	"<<E\n%{ if b }${x}%{ else }y%{ endif }\nE\n": "b x", `x == y`: "x y", `f(g(x))[0].a`: "x",
}

// TestGuardIsTransparent checks that guarded expressions tell the same names and give the same values.
func TestGuardIsTransparent(t *testing.T) {
	ctx := &hcl.EvalContext{
		Variables: map[string]cty.Value{
			"x": cty.ListVal([]cty.Value{cty.StringVal("p"), cty.StringVal("q")}), "y": cty.NumberIntVal(1), "n": cty.NumberIntVal(3),
			"b": cty.True, "k": cty.StringVal("key"),
		},
		Functions: map[string]function.Function{"f": stdlib.LengthFunc, "g": stdlib.LengthFunc},
	}
	for src, names := range expressions {
		plain, guardedBody := parse(t, "a = "+src+"\n").Attributes["a"].Expr, parse(t, "a = "+src+"\n")
		Guard(guardedBody, NewBudget())
		e := guardedBody.Attributes["a"].Expr
		var got []string
		for _, tr := range e.Variables() {
			got = append(got, tr.RootName())
		}
		if strings.Join(got, " ") != names {
			t.Errorf("%s refers to %q, want %q", src, got, names)
		}
		want, wantDiags := plain.Value(ctx)
		value, diags := e.Value(ctx)
		if !wantDiags.HasErrors() && !value.RawEquals(want) || len(diags) != len(wantDiags) {
			t.Errorf("%s is %#v, %v; want %#v, %v", src, value, diags, want, wantDiags)
		}
		if e.Range() != plain.Range() || e.StartRange() != plain.StartRange() {
			t.Errorf("%s moved", src)
		}
	}
}

// TestGuardKeepsStaticAnalysis checks what the decoder needs of lists and maps.
func TestGuardKeepsStaticAnalysis(t *testing.T) {
	body := parse(t, "l = [1, [2]]\nm = { a = 1, \"b c\" = x }\nc = list(string)\n")
	Guard(body, NewBudget())
	if l, diags := hcl.ExprList(body.Attributes["l"].Expr); diags.HasErrors() || len(l) != 2 {
		t.Error(diags)
	}
	m, diags := hcl.ExprMap(body.Attributes["m"].Expr)
	if diags.HasErrors() || len(m) != 2 || hcl.ExprAsKeyword(m[0].Key) != "a" {
		t.Error(diags)
	}
	if c, diags := hcl.ExprCall(body.Attributes["c"].Expr); diags.HasErrors() || c.Name != "list" {
		t.Error(diags)
	}
}

// TestBudgetStaysSpent checks that nothing is evaluated any more, and that the first reason stays.
func TestBudgetStaysSpent(t *testing.T) {
	b := NewBudget()
	body := parse(t, "a = [for i in x : \"${i}\"]\nz = [1]\n")
	Guard(body, b)
	elements := make([]cty.Value, MaxSteps)
	for i := range elements {
		elements[i] = cty.NumberIntVal(int64(i))
	}
	ctx := &hcl.EvalContext{Variables: map[string]cty.Value{"x": cty.ListVal(elements)}}
	v, diags := body.Attributes["a"].Expr.Value(ctx)
	where, reason := b.Spent()
	if v.IsKnown() || diags.HasErrors() || where.Start.Line != 1 || !strings.Contains(reason, "elements") {
		t.Errorf("got %#v, %v, %v %q", v, diags, where, reason)
	}
	if v, _ := body.Attributes["z"].Expr.Value(ctx); v.IsKnown() {
		t.Error("evaluation went on")
	}
	if b.Take(1<<62, 1<<62, hcl.Range{}) {
		t.Error("a spent budget gave more")
	}
	if again, same := b.Spent(); again != where || same != reason {
		t.Error("the reason changed")
	}
}

func TestCheckTokens(t *testing.T) {
	ok := []string{
		"a = [1, 2]\nb { c = d ? 1 : 2 }\n", "a = [" + strings.Repeat("-1, ", 5000) + "]\n", strings.Repeat("a = 1 + 2\n", 3000),
		"a = <<E\n" + strings.Repeat("%{ if x }y%{ endif }\n", 2000) + "E\n", "a = <<E\n" + strings.Repeat("[[[[((((\n", 5000) + "E\n",
		"a = \"" + strings.Repeat("${x}", 5000) + "\"\n", "# " + strings.Repeat("[", 5000) + "\n", strings.Repeat("[", 100) + strings.Repeat("]", 100),
	}
	for _, src := range ok {
		tokens, _ := hclsyntax.LexConfig([]byte(src), "x", hcl.InitialPos)
		if where, reason := CheckTokens(tokens); reason != "" {
			t.Errorf("%.40q: %v %s", src, where, reason)
		}
	}
	for _, c := range []struct{ src, at, why string }{
		{strings.Repeat("[", 101), "1:101", "nested"},
		{"a = \n" + strings.Repeat("!", 101) + "x", "2:101", "nested"},
		{"a = " + strings.Repeat("(", 1001), "1:105", "nested"},
		{"a = [" + strings.Repeat("1+", 1001) + "1]", "1:2007", "operators"},
		{"a = (" + strings.Repeat("1+\n", 1001) + "1)", "1001:2", "operators"},
		{"a = x" + strings.Repeat("[0]", 1001), "1:3006", "operators"},
		{"a = " + strings.Repeat("b ? 1 : ", 1001) + "1", "1:8007", "operators"},
		{"a = <<E\n" + strings.Repeat("%{ if x }", 101) + "E\n", "2:883", "nested"},
		{strings.Repeat("a\n", MaxTokens/2+1), "75001:1", "words and signs"},
	} {
		tokens, _ := hclsyntax.LexConfig([]byte(c.src), "x", hcl.InitialPos)
		where, reason := CheckTokens(tokens)
		if got := fmt.Sprintf("%d:%d", where.Start.Line, where.Start.Column); got != c.at || !strings.Contains(reason, c.why) {
			t.Errorf("%.30q: %s %q, want %s %q", c.src, got, reason, c.at, c.why)
		}
	}
}

func TestChargeCountsAll(t *testing.T) {
	b := NewBudget()
	v := cty.ObjectVal(map[string]cty.Value{"a": cty.StringVal("12345"), "b": cty.TupleVal([]cty.Value{cty.StringVal("67").Mark("m"), cty.NullVal(cty.String), cty.UnknownVal(cty.String)})})
	if !b.Charge(v, hcl.Range{}) {
		t.Fatal("spent")
	}
	if diff := cmp.Diff([]int64{MaxSteps - 7, MaxBytes - 7}, []int64{b.steps, b.bytes}); diff != "" {
		t.Error(diff)
	}
}
