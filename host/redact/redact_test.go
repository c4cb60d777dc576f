package redact

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	r := New("hunter2", `pa"ss`, "a<b>c", "ünïcödé", "abc", "")
	for in, want := range map[string]string{
		"say hunter2 twice: hunter2":        "say (sensitive) twice: (sensitive)",
		`quoted "pa\"ss"`:                   `quoted "(sensitive)"`,
		`plain pa"ss`:                       "plain (sensitive)",
		`json a\u003cb\u003ec`:              "json (sensitive)",
		`ascii \u00fcn\u00efc\u00f6d\u00e9`: "ascii (sensitive)",
		"short abc stays":                   "short abc stays",
		"hunter":                            "hunter",
	} {
		if got := r.Text(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := r.Argv([]string{"abc", "xabc", "hunter2x"}); strings.Join(got, "|") != "(sensitive)|xabc|(sensitive)x" {
		t.Errorf("%q", got)
	}
	if got := r.Tail("nter2 and hunter2", true); got != "(sensitive) and (sensitive)" {
		t.Errorf("%q", got)
	}
	if got := r.Tail("nter2 and hunter2", false); got != "nter2 and (sensitive)" {
		t.Errorf("%q", got)
	}
	if r.Longest() != len(`\u00fcn\u00efc\u00f6d\u00e9`) || r.Empty() || !New().Empty() {
		t.Error(r.Longest())
	}
}

// TestJSON: strings lose their secrets, and everything else stays as it is, byte for byte.
func TestJSON(t *testing.T) {
	r := New("path", `q"q"q`)
	for in, want := range map[string]string{
		`{"path":"path","n":[1.50,"the path",null]}`: `{"path":"(sensitive)","n":[1.50,"the (sensitive)",null]}`,
		`{"path" : "x\u0041"}`:                       `{"path" : "x\u0041"}`,
		`"say q\"q\"q"`:                              `"say (sensitive)"`,
		`["p\u0061th"]`:                              `["(sensitive)"]`,
		`["{\"path\":1}"]`:                           `["{\"(sensitive)\":1}"]`,
		`["not ended path`:                           `["not ended path`,
		"{}\n":                                       "{}\n",
	} {
		if got := string(r.JSON([]byte(in))); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	type value struct{ B, A string }
	if b, err := json.Marshal(r.Value(value{"a path", "<"})); err != nil || string(b) != `{"B":"a (sensitive)","A":"\u003c"}` {
		t.Errorf("%s %v", b, err)
	}
}

// FuzzJSON: what was JSON is JSON afterwards, and has no secret in a string.
func FuzzJSON(f *testing.F) {
	f.Add(`{"a":["hunter2\n",{"b":"\u0068unter2"}],"hunter2":0}`)
	f.Add(`1e999`)
	f.Fuzz(func(t *testing.T, in string) {
		r := New("hunter2")
		out := r.JSON([]byte(in))
		if !json.Valid([]byte(in)) {
			return
		}
		var v any
		dec := json.NewDecoder(bytes.NewReader(out))
		dec.UseNumber() // or long numbers would not fit
		if err := dec.Decode(&v); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		var look func(v any)
		look = func(v any) {
			switch v := v.(type) {
			case string:
				if strings.Contains(v, "hunter2") {
					t.Fatalf("%s", out)
				}
			case []any:
				for _, x := range v {
					look(x)
				}
			case map[string]any:
				for _, x := range v {
					look(x)
				}
			}
		}
		look(v)
	})
}
