package runfile

import (
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/hutch-run/hutch/sdk"
)

var (
	expectSchema = &hcl.BodySchema{
		Attributes: []hcl.AttributeSchema{{Name: "exit_code"}, {Name: "cause"}, {Name: "outputs"}, {Name: "within"}},
		Blocks:     []hcl.BlockHeaderSchema{{Type: "stdout"}, {Type: "stderr"}},
	}
	streamSchema = &hcl.BodySchema{Attributes: []hcl.AttributeSchema{
		{Name: "equals"}, {Name: "empty"}, {Name: "contains"}, {Name: "excludes"}, {Name: "matches"},
	}}
	causes = []string{
		string(sdk.CauseExited), string(sdk.CauseSignaled), string(sdk.CauseTimeout), string(sdk.CauseOOM), string(sdk.CausePIDs),
		string(sdk.CauseDisk), string(sdk.CauseOutput), string(sdk.CauseCancelled), string(sdk.CauseSetupFailed), string(sdk.CauseBackend),
	}
)

// expect reads the expect block.
func (s *scope) expect(d *Definition, blocks hcl.Blocks) {
	b := s.single(blocks)
	if b == nil {
		return
	}
	in := s.in("expect")
	c, _ := in.body(in.expand(b.Body), expectSchema, "an expect block", b.DefRange)
	if c == nil {
		return
	}
	e := &Expect{}
	e.ExitCodes = in.exitCodes(c)
	e.Causes = in.causes(c)
	if globs, ok := in.plainTexts(c, "outputs", "expect.outputs"); ok {
		e.Outputs = in.globs(globs, "expect.outputs", c.Attributes["outputs"].Expr)
	}
	e.Within, _ = in.duration(c, "within", "expect.within")
	e.Stdout = in.stream(c, "stdout")
	e.Stderr = in.stream(c, "stderr")
	d.Expect = e
}

// exitCodes reads one exit code or a list of those that are good.
func (s *scope) exitCodes(c *hcl.BodyContent) []int {
	var codes []int
	for _, e := range s.oneOrMore(c, "exit_code", cty.Number) {
		n, acc := e.value.AsBigFloat().Int64()
		if acc != big.Exact || n < 0 || n > 255 {
			s.error(e.at, fmt.Sprintf("exit_code must be a whole number from 0 to 255, not %s", e.value.AsBigFloat().Text('g', 15)), "", "")
			return nil
		}
		codes = append(codes, int(n))
	}
	return codes
}

// causes reads one cause or a list of those that are good.
func (s *scope) causes(c *hcl.BodyContent) []string {
	var l []string
	for _, e := range s.oneOrMore(c, "cause", cty.String) {
		got := e.value.AsString()
		if !slices.Contains(causes, got) {
			s.error(e.at, "cause cannot be "+quote(got), "It is one of "+quotedList(causes)+".", suggestion(got, causes))
			return nil
		}
		l = append(l, got)
	}
	return l
}

// alternative is one of several values of which any will do.
type alternative struct {
	value cty.Value
	at    hcl.Range
}

// oneOrMore reads an attribute of the expect block that is one value or a list of them. It is empty when the attribute
// is missing or wrong.
func (s *scope) oneOrMore(c *hcl.BodyContent, name string, t cty.Type) []alternative {
	a, path := c.Attributes[name], "expect."+name
	v, ok := s.value(a, path, cty.DynamicPseudoType)
	if ok {
		v, ok = s.plain(v, a.Expr, path)
	}
	if !ok {
		return nil
	}
	isList := v.Type().IsTupleType() || v.Type().IsListType() || v.Type().IsSetType()
	if isList {
		t = cty.List(t)
	}
	if v, ok = s.convert(v, a.Expr, path, t); !ok {
		return nil
	}
	elements := []cty.Value{v}
	if isList {
		elements = v.AsValueSlice()
		if len(elements) == 0 {
			s.error(a.Expr.Range(), name+" is an empty list", "No program could meet it.", "leave it out if any will do")
			return nil
		}
	}
	var l []alternative
	for i, e := range elements {
		at := path
		if isList {
			at = element(at, i)
		}
		r := s.origin.rangeOf(at, a.Expr)
		if e.IsNull() {
			s.error(r, name+" is null", "", "")
			return nil
		}
		l = append(l, alternative{e, r})
	}
	return l
}

func (s *scope) stream(c *hcl.BodyContent, name string) *ExpectStream {
	blocks := c.Blocks.OfType(name)
	if len(blocks) == 0 {
		return nil
	}
	if len(blocks) > 1 {
		s.error(blocks[1].DefRange, fmt.Sprintf("an expect block has only one %s block", name), "", "put both into one")
	}
	path := "expect." + name
	s.origin.ranges.set(path, blocks[0].DefRange)
	in := *s
	in.context = name + " in " + s.context
	sc, ok := in.body(in.expand(blocks[0].Body), streamSchema, fmt.Sprintf("a %s block", name), blocks[0].DefRange)
	if !ok {
		return nil
	}
	e := &ExpectStream{}
	if text, ok := in.secretText(sc, "equals", path+".equals"); ok {
		e.Equals = &text
	}
	if a := sc.Attributes["empty"]; a != nil {
		if v, ok := in.value(a, path+".empty", cty.Bool); ok {
			if v, ok = in.plain(v, a.Expr, "empty"); ok {
				b := v.True()
				e.Empty = &b
			}
		}
	}
	e.Contains = in.needles(sc, "contains", path)
	e.Excludes = in.needles(sc, "excludes", path)
	e.Matches = in.patterns(sc, path)
	return e
}

// needles reads a string or a list of strings, none of them empty: an empty one is in every text.
func (s *scope) needles(c *hcl.BodyContent, name, path string) []string {
	a := c.Attributes[name]
	if a == nil {
		return nil
	}
	full := child(path, name)
	var list []string
	if v, diags := a.Expr.Value(s.ctx); !diags.HasErrors() && v.Type() == cty.String {
		text, ok := s.secretText(c, name, full)
		if !ok {
			return nil
		}
		if s.origin.isSecret(full) {
			s.origin.secret(element(full, 0), text)
		}
		list = []string{text}
	} else {
		list, _ = s.texts(c, name, full)
	}
	for i, text := range list {
		if text == "" {
			s.error(s.origin.rangeOf(element(full, i), a.Expr), fmt.Sprintf("%s has an empty string", name), "It is part of every text, so it would say nothing.", "for a stream without output, write empty = true")
			return nil
		}
	}
	return list
}

// patterns reads regular expressions.
func (s *scope) patterns(c *hcl.BodyContent, path string) (all []string) {
	for i, p := range s.needles(c, "matches", path) {
		r := s.origin.rangeOf(element(path+".matches", i), c.Attributes["matches"].Expr)
		if len(p) > 4096 {
			s.error(r, fmt.Sprintf("the regular expression is %d bytes long; at most 4096 are allowed", len(p)), "", "")
			continue
		}
		if _, err := CompilePattern(p); err != nil {
			shown := p
			if s.origin.isSecret(element(path+".matches", i)) {
				shown = Redacted
			}
			reason := strings.TrimPrefix(err.Error(), "error parsing regexp: ")
			if cut, _, ok := strings.Cut(reason, ": `"); ok {
				reason = cut
			}
			s.error(r, fmt.Sprintf("%s is not a regular expression: %s", quote(shown), reason), "The syntax is RE2's; a backslash is written twice in an HCL string.", "")
			continue
		}
		all = append(all, p)
	}
	return all
}
