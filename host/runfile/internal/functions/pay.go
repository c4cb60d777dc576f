package functions

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"github.com/hutch-run/hutch/host/runfile/internal/bound"
)

var errSpent = errors.New("the file's budget for elements and text is used up")

// payFor wraps f so that a call is charged for its arguments, and for what check says, before f sees them.
func payFor(name string, f function.Function, b *bound.Budget) function.Function {
	check := checks[name]
	pay := func(args []cty.Value) error {
		for _, a := range args {
			if !b.Charge(a, hcl.Range{}) {
				return errSpent
			}
		}
		if check == nil {
			return nil
		}
		plain := make([]cty.Value, len(args))
		for i, a := range args {
			plain[i], _ = a.UnmarkDeep()
			if !plain[i].IsWhollyKnown() || plain[i].IsNull() {
				return nil // f decides what that means; it cannot make anything of it
			}
		}
		steps, bytes, err := check(plain)
		if err == nil && !b.Take(steps, bytes, hcl.Range{}) {
			err = errSpent
		}
		return err
	}
	return function.New(&function.Spec{
		Description: f.Description(),
		Params:      f.Params(),
		VarParam:    f.VarParam(),
		Type: func(args []cty.Value) (cty.Type, error) {
			if err := pay(args); err != nil {
				return cty.NilType, err
			}
			return f.ReturnTypeForValues(args)
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return f.Call(args) },
	})
}

// checks tell what a call would make, in elements and bytes, for the functions whose result is not in proportion to
// their arguments.
var checks = map[string]func(args []cty.Value) (steps, bytes int64, err error){
	"format":     func(args []cty.Value) (int64, int64, error) { return formatCost(args, 1) },
	"formatlist": formatListCost,
	"indent": func(args []cty.Value) (int64, int64, error) {
		spaces, _ := args[0].AsBigFloat().Int64()
		return 0, saturating(spaces, int64(strings.Count(args[1].AsString(), "\n"))), nil
	},
	"join": func(args []cty.Value) (int64, int64, error) {
		n := int64(0)
		for _, list := range args[1:] {
			n += int64(list.LengthInt())
		}
		return 0, saturating(n, int64(len(args[0].AsString()))), nil
	},
	"csvdecode": func(args []cty.Value) (int64, int64, error) { return signs(args[0], ",\n"), 0, nil },
	"jsondecode": func(args []cty.Value) (int64, int64, error) {
		if i := bound.TooDeep([]byte(args[0].AsString())); i >= 0 {
			return 0, 0, function.NewArgErrorf(0, "the JSON text is nested more than %d deep", bound.MaxNesting)
		}
		return signs(args[0], ",[{:"), 0, nil
	},
	"regex": regexCost,
	"regexall": func(args []cty.Value) (int64, int64, error) {
		steps, bytes, err := regexCost(args)
		return steps + int64(len(args[1].AsString())), bytes, err // there may be a match at every byte
	},
	"split": func(args []cty.Value) (int64, int64, error) {
		return int64(strings.Count(args[1].AsString(), args[0].AsString())), 0, nil
	},
	"replace": replaceCost,
	"setproduct": func(args []cty.Value) (int64, int64, error) {
		n := int64(len(args))
		for _, set := range args {
			if set.CanIterateElements() {
				n = saturating(n, int64(set.LengthInt()))
			}
		}
		return n, 0, nil
	},
	"distinct":   quadratic, // it compares every element with every other one
	"parseint":   digits,
	"tonumber":   digits,
	"yamldecode": yamlCost,
}

// digits refuses a text that would become too large a number.
func digits(args []cty.Value) (int64, int64, error) {
	if args[0].Type() == cty.String && len(args[0].AsString()) > 1200 {
		return 0, 0, function.NewArgErrorf(0, "a number of more than 1,200 digits")
	}
	return 0, 0, nil
}

// signs counts the characters of a text that each stand for an element of what it is decoded to.
func signs(v cty.Value, set string) int64 {
	n := int64(0)
	for i, text := 0, v.AsString(); i < len(text); i++ {
		if strings.IndexByte(set, text[i]) >= 0 {
			n++
		}
	}
	return n
}

// saturating multiplies without overflow: whatever is too large is larger than any budget.
func saturating(a, b int64) int64 {
	const most = 1 << 31
	if a = min(max(a, 0), most); a == 0 {
		return 0
	}
	return a * min(max(b, 0), most)
}

func quadratic(args []cty.Value) (int64, int64, error) {
	if !args[0].CanIterateElements() {
		return 0, 0, nil
	}
	n := int64(args[0].LengthInt())
	return saturating(n, n) / 6, 0, nil
}

var formatSize = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`%[^a-zA-Z%]*?[0-9]{4,}`) })

// formatCost refuses widths and precisions that no line has; what is left is in proportion to the arguments.
func formatCost(args []cty.Value, times int64) (int64, int64, error) {
	s := args[0].AsString()
	if formatSize().MatchString(s) {
		return 0, 0, function.NewArgErrorf(0, "widths and precisions above 999 are not supported")
	}
	verbs := int64(strings.Count(s, "%"))
	longest := 0
	for _, a := range args[1:] {
		if a.Type() == cty.String {
			longest = max(longest, len(a.AsString()))
		}
	}
	return 0, saturating(times, int64(len(s))+saturating(verbs, int64(longest)+1000)), nil
}

func formatListCost(args []cty.Value) (int64, int64, error) {
	times := int64(1)
	for _, a := range args[1:] {
		if t := a.Type(); (t.IsListType() || t.IsTupleType() || t.IsSetType()) && a.LengthInt() > 0 {
			times = max(times, int64(a.LengthInt()))
		}
	}
	_, bytes, err := formatCost(args, times)
	return times, bytes, err
}

// regexCost is the size of the compiled expression times the length of the text, which is what RE2 needs at worst.
func regexCost(args []cty.Value) (int64, int64, error) {
	return matchCost(args[0].AsString(), args[1].AsString())
}

func matchCost(pattern, text string) (int64, int64, error) {
	if len(pattern) > 4096 {
		return 0, 0, function.NewArgErrorf(0, "the pattern is %d bytes long; at most 4096 are allowed", len(pattern))
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, 0, nil // the function says it better
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return 0, 0, nil
	}
	return saturating(int64(len(prog.Inst)), int64(len(text))) / 200, 0, nil
}

func replaceCost(args []cty.Value) (int64, int64, error) {
	s, old, with := args[0].AsString(), args[1].AsString(), args[2].AsString()
	if pattern, ok := slashed(old); ok {
		steps, _, err := matchCost(pattern, s)
		// Every match gives the replacement, in which every $name may stand for the whole match.
		refs := int64(strings.Count(with, "$"))
		return steps, saturating(int64(len(s))+1, int64(len(with))+refs) + saturating(refs, int64(len(s))), err
	}
	return 0, saturating(int64(strings.Count(s, old)), int64(len(with))), nil
}

var yamlAlias = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)(^|[\s\[{,:-])\*[^\s,\]}]`) })

// yamlCost bounds aliases: each one can stand for all that is before it, so a few dozen lines could stand for
// gigabytes.
func yamlCost(args []cty.Value) (int64, int64, error) {
	s := args[0].AsString()
	if len(s) > 1<<20 {
		return 0, 0, function.NewArgErrorf(0, "the YAML text is %d bytes long; at most 1 MiB is allowed", len(s))
	}
	n := len(yamlAlias().FindAllStringIndex(s, 25))
	if n > 24 {
		return 0, 0, function.NewArgErrorf(0, "the YAML text has more than 24 aliases (*name)")
	}
	cost := int64(len(s))
	for range n / 3 {
		cost = saturating(cost, 3) // the worst that n aliases can make of a text is about 3^(n/3) times its size
	}
	if n > 0 && cost > 4<<20 {
		return 0, 0, function.NewArgErrorf(0, "the YAML text has %d aliases in %d bytes, which could stand for too much", n,
			len(s))
	}
	return signs(args[0], ",\n[{:"), 0, checkYAMLDepth(s)
}

// checkYAMLDepth refuses flow collections and indentation that nest too deeply for a recursive decoder.
func checkYAMLDepth(s string) error {
	depth, deepest := 0, 0
	for line := range strings.SplitSeq(s, "\n") {
		trimmed := strings.TrimLeft(line, " ")
		dashes := 0
		for strings.HasPrefix(trimmed, "- ") || strings.HasPrefix(trimmed, "? ") {
			trimmed = strings.TrimLeft(trimmed[2:], " ")
			dashes++
		}
		deepest = max(deepest, len(line)-len(strings.TrimLeft(line, " "))+dashes)
		for i := range len(trimmed) {
			switch trimmed[i] {
			case '[', '{':
				depth++
				deepest = max(deepest, depth)
			case ']', '}':
				depth = max(depth-1, 0)
			}
		}
	}
	if deepest > 500 {
		return function.NewArgError(0, fmt.Errorf("the YAML text is nested more than 500 deep"))
	}
	return nil
}
