package runfile

import (
	"math/big"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/hutch-run/hutch/sdk"
)

var (
	expectSchema = schemaOf("exit_code cause outputs within", "stdout", "stderr")
	streamSchema = schemaOf("equals empty contains excludes matches")
	causes       = []string{
		string(sdk.CauseExited), string(sdk.CauseSignaled), string(sdk.CauseTimeout), string(sdk.CauseOOM),
		string(sdk.CausePIDs), string(sdk.CauseDisk), string(sdk.CauseOutput), string(sdk.CauseCancelled),
		string(sdk.CauseSetupFailed), string(sdk.CauseBackend),
	}
)

// expect reads the expect block.
func (b *block) expect(d *Definition) {
	in := b.openOnly("expect", expectSchema)
	if in == nil {
		return
	}
	in.owner = "an expect block"
	d.Expect = &Expect{ExitCodes: in.exitCodes(), Causes: in.causes(), Outputs: in.globs("outputs"),
		Within: in.duration("within"),
		Stdout: in.stream("stdout"), Stderr: in.stream("stderr")}
}

// exitCodes reads one exit code or a list of those that are good.
func (b *block) exitCodes() (codes []int) {
	for _, e := range b.alternatives("exit_code", cty.Number) {
		n, accuracy := e.value.AsBigFloat().Int64()
		if accuracy != big.Exact || n < 0 || n > 255 {
			b.errorf(e.at, "exit_code must be a whole number from 0 to 255, not %s", e.value.AsBigFloat().Text('g', 15))
			return nil
		}
		codes = append(codes, int(n))
	}
	return codes
}

// causes reads one cause or a list of those that are good.
func (b *block) causes() (good []string) {
	for _, e := range b.alternatives("cause", cty.String) {
		got := e.value.AsString()
		if !slices.Contains(causes, got) {
			b.errorf(e.at, "cause cannot be %s", quote(got)).detail("It is one of %s.", quotedList(causes)).
				fix("%s", suggestion(got, causes))
			return nil
		}
		good = append(good, got)
	}
	return good
}

// alternative is one of several values of which any will do.
type alternative struct {
	value cty.Value
	at    hcl.Range
}

// alternatives reads an argument that is one value or a list of them. It is empty when the argument is missing or
// wrong.
func (b *block) alternatives(name string, t cty.Type) (all []alternative) {
	v, ok := b.plain(name, cty.DynamicPseudoType)
	if !ok {
		return nil
	}
	isList := v.Type().IsTupleType() || v.Type().IsListType() || v.Type().IsSetType()
	if isList {
		t = cty.List(t)
	}
	if v, ok = b.convert(v, b.attrs[name].Expr, b.pathOf(name), t); !ok {
		return nil
	}
	elements := []cty.Value{v}
	if isList {
		if elements = v.AsValueSlice(); len(elements) == 0 {
			b.errorf(b.at(name), "%s is an empty list", name).detail("No program could meet it.").
				fix("leave it out if any will do")
			return nil
		}
	}
	for i, e := range elements {
		r := b.at(name)
		if isList {
			r = b.elementAt(name, i)
		}
		if e.IsNull() {
			b.errorf(r, "%s is null", name)
			return nil
		}
		all = append(all, alternative{e, r})
	}
	return all
}

func (b *block) stream(name string) *ExpectStream {
	in := b.openOnly(name, streamSchema)
	if in == nil || !in.good {
		return nil
	}
	e := &ExpectStream{Contains: in.needles("contains"), Excludes: in.needles("excludes"), Matches: in.patterns()}
	if text, ok := in.secretText("equals"); ok {
		e.Equals = &text
	}
	if v, ok := in.plain("empty", cty.Bool); ok {
		e.Empty = new(v.True())
	}
	return e
}

// needles reads a string or a list of strings, none of them empty: an empty one is in every text.
func (b *block) needles(name string) []string {
	list, _, _ := b.oneOrMore(name)
	if i := slices.Index(list, ""); i >= 0 {
		b.errorf(b.elementAt(name, i), "%s has an empty string", name).
			detail("It is part of every text, so it would say nothing.").fix("for a stream without output, write empty = true")
		return nil
	}
	return list
}

// patterns reads regular expressions.
func (b *block) patterns() (all []string) {
	for i, p := range b.needles("matches") {
		r := b.elementAt("matches", i)
		if len(p) > 4096 {
			b.errorf(r, "the regular expression is %d bytes long; at most 4096 are allowed", len(p))
			continue
		}
		if _, err := CompilePattern(p); err != nil {
			shown := p
			if b.origin.isSecret(element(b.pathOf("matches"), i)) {
				shown = Redacted
			}
			reason, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "error parsing regexp: "), ": `")
			b.errorf(r, "%s is not a regular expression: %s", quote(shown), reason).
				detail("The syntax is RE2's; a backslash is written twice in an HCL string.")
			continue
		}
		all = append(all, p)
	}
	return all
}
