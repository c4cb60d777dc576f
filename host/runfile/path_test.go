package runfile

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParsePath(t *testing.T) {
	for p, want := range map[string][]string{
		"":                        nil,
		"image":                   {"image"},
		"bind[1].from":            {"bind", "1", "from"},
		`env["A B"]`:              {"env", "A B"},
		"env.HOME":                {"env", "HOME"},
		`a["x\"]y"].b[0][1]`:      {"a", `x"]y`, "b", "0", "1"},
		`a["\n日本"]`:               {"a", "\n日本"},
		`[0]`:                     {"0"},
		`volume["data"].size`:     {"volume", "data", "size"},
		`mount[1].options["A-B"]`: {"mount", "1", "options", "A-B"},
	} {
		got, err := parsePath(p)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v %s", p, err, diff)
		}
	}
	for p, want := range map[string]string{
		".":                            "a name is missing at offset 0",
		"a.":                           "a name is missing at offset 2",
		"a..b":                         "a name is missing at offset 2",
		"a[":                           "a bracket is not closed at offset 1",
		"a[]":                          "neither a number nor a quoted key",
		"a[x]":                         "neither a number nor a quoted key",
		"a[-1]":                        "neither a number nor a quoted key",
		`a["x]`:                        "a quoted key is not closed",
		`a["x"`:                        "a bracket is not closed",
		`a["\q"]`:                      "a quoted key is not closed",
		"a[0]b":                        "a dot or bracket is missing at offset 4",
		strings.Repeat("a", 5000):      "at most 4096 are allowed",
		strings.Repeat("a.", 70) + "a": "more than 64 parts",
	} {
		_, err := parsePath(p)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: got %v, want %q", p, err, want)
		}
	}
}

// FuzzParsePath checks that no path panics and that what was parsed survives being written and parsed again.
func FuzzParsePath(f *testing.F) {
	for _, s := range []string{"bind[1].from", `env["A B"]`, "a..b", "a[", `a["\u0000"]`, "[0][1]", "a.[0]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		parts, err := parsePath(p)
		if err != nil {
			return
		}
		if len(parts) > maxPathParts {
			t.Fatalf("%d parts", len(parts))
		}
		path := ""
		for _, part := range parts {
			path = member(path, part)
		}
		if len(path) > maxPathLen {
			return
		}
		again, err := parsePath(path)
		if err != nil || pathKey(again) != pathKey(parts) {
			t.Fatalf("%q became %q became %q, %v", p, parts, again, err)
		}
		r := ranges{}
		r.find(parts)
	})
}
