package safepath

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func kindOf(t *testing.T, err error) Kind {
	t.Helper()
	if err == nil {
		return ""
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("error is %T, not *Error: %v", err, err)
	}
	return e.Kind
}

func TestCheck(t *testing.T) {
	deep := strings.TrimSuffix(strings.Repeat("d/", 65), "/")
	for _, c := range []struct {
		path string
		want Kind
	}{
		{"a", ""}, {"a/b.py", ""}, {"-rf", ""}, {"...", ""}, {"..a/b..", ""}, {".git/config", ""},
		{"sp ace/ü/日本.txt", ""}, {"👩‍💻.txt", ""}, {`back\slash`, ""}, {"~", ""}, {"a:b", ""},
		{strings.Repeat("x", 255), ""}, {strings.TrimSuffix(strings.Repeat("d/", 64), "/"), ""},
		{"", Empty}, {"/", Absolute}, {"/etc/passwd", Absolute}, {"//x", Absolute},
		{"a\x00b", NUL}, {"\x00", NUL},
		{"a\xffb", Encoding}, {"\xc0\xaf", Encoding},
		{"a\nb", Control}, {"\n", Control}, {"a\x1b[2J", Control}, {"a\x7f", Control}, {"a\u0085b", Control},
		{"gpj\u202eexe", Control}, {"a\u2028b", Control}, {"a\u2066b", Control},
		{"..", Parent}, {"../x", Parent}, {"a/../../x", Parent}, {"a/..", Parent}, {"a/../b", Parent},
		{".", Unclean}, {"./a", Unclean}, {"a/", Unclean}, {"a//b", Unclean}, {"a/./b", Unclean}, {"./", Unclean},
		{strings.Repeat("x", 256), TooLong}, {strings.Repeat("a/", 700) + "b", TooLong},
		{deep, TooDeep},
	} {
		if got := kindOf(t, Check(c.path)); got != c.want {
			t.Errorf("Check(%.40q) = %q, want %q", c.path, got, c.want)
		}
	}
}

func TestCheckAnyBytes(t *testing.T) {
	r := Rules{AnyBytes: true}
	for path, want := range map[string]Kind{"a\nb": "", "\xff\xfe": "", "a\x1b": "", "a\x00": NUL, "..": Parent, "/x": Absolute} {
		if got := kindOf(t, r.Check(path)); got != want {
			t.Errorf("Check(%q) = %q, want %q", path, got, want)
		}
	}
}

func TestUncleanOffersTheCleanSpelling(t *testing.T) {
	var e *Error
	if err := Check("./a//b/"); !errors.As(err, &e) || e.Clean != "a/b" {
		t.Fatalf("got %v, want an *Error with Clean a/b", err)
	}
	if diff := cmp.Diff(`path "./a//b/": is not clean; write "a/b"`, e.Error()); diff != "" {
		t.Error(diff)
	}
}

func TestErrorNeverPrintsControls(t *testing.T) {
	for _, p := range []string{"a\x1b]0;x\a", "\x00", strings.Repeat("\x1b", 5000), "gpj\u202eexe"} {
		if msg := Check(p).Error(); strings.ContainsAny(msg, "\x1b\a\x00\u202e") || len(msg) > 1000 {
			t.Errorf("message for %.20q is not fit for a terminal: %.80q", p, msg)
		}
	}
}

func TestSet(t *testing.T) {
	type step struct {
		path  string // a slash at the end means AddDir
		want  Kind
		other string
	}
	for name, steps := range map[string][]step{
		"plain":              {{"a", "", ""}, {"b/c", "", ""}, {"b/d", "", ""}, {"b/", "", ""}},
		"twice":              {{"a", "", ""}, {"a", Duplicate, "a"}},
		"directory twice":    {{"a/", "", ""}, {"a/", Duplicate, "a"}},
		"case":               {{"Read.me", "", ""}, {"README.me", "", ""}, {"read.ME", Collision, "Read.me"}},
		"case of a parent":   {{"Src/a", "", ""}, {"src/b", Collision, "Src"}},
		"normalisation":      {{"caf\u00e9", "", ""}, {"cafe\u0301", Collision, "caf\u00e9"}},
		"both":               {{"CAF\u00c9/x", "", ""}, {"cafe\u0301/y", Collision, "CAF\u00c9"}},
		"sharp s":            {{"stra\u00dfe", "", ""}, {"STRASSE", Collision, "stra\u00dfe"}},
		"kelvin":             {{"\u212a", "", ""}, {"k", Collision, "\u212a"}},
		"zero width":         {{"a", "", ""}, {"a\u200d", Collision, "a"}},
		"file then below it": {{"a", "", ""}, {"a/b", Conflict, "a"}},
		"below it then file": {{"a/b", "", ""}, {"a", Conflict, "a"}},
		"dir then file":      {{"a/", "", ""}, {"a", Conflict, "a"}},
		"refused leaves nothing": {
			{"x/y", "", ""}, {"x/y/z", Conflict, "x/y"}, {"new/../q", Parent, ""}, {"new", "", ""}},
		"prefix is not a parent": {{"ab", "", ""}, {"ab.d/c", "", ""}, {"a/b", "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			var s Set
			for _, st := range steps {
				var err error
				if p, dir := strings.CutSuffix(st.path, "/"); dir {
					err = s.AddDir(p)
				} else {
					err = s.AddFile(p)
				}
				if got := kindOf(t, err); got != st.want {
					t.Fatalf("%q: got %q (%v), want %q", st.path, got, err, st.want)
				}
				var e *Error
				if errors.As(err, &e) && e.Other != st.other {
					t.Errorf("%q: Other is %q, want %q", st.path, e.Other, st.other)
				}
			}
		})
	}
}

func TestSetKeepsUndecodableNamesApart(t *testing.T) {
	s := Set{Rules: Rules{AnyBytes: true}}
	for _, p := range []string{"\xff", "\xfe", "d/\xff", "d/\xfe"} {
		if err := s.AddFile(p); err != nil {
			t.Error(err)
		}
	}
	if got := kindOf(t, s.AddFile("D/\xfd")); got != Collision {
		t.Errorf("parent in another case: got %q, want %q", got, Collision)
	}
}

func TestFoldOfCherokee(t *testing.T) {
	for _, pair := range []string{"\u13a0\uab70", "\u13ef\uabbf", "\u13f0\u13f8", "\u13f5\u13fd"} {
		r := []rune(pair)
		if a, b := Fold(string(r[0])), Fold(string(r[1])); a != b || Fold(a) != a {
			t.Errorf("%q becomes %q and %q", pair, a, b)
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, s := range []string{"a/b", "../x", "", "a//b", "\x00", "cafe\u0301", "a/./b", strings.Repeat("a/", 99), "\uab70", "\u13a0", "\u13f8", "\u13f0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		err := Check(p)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || !utf8.ValidString(err.Error()) {
				t.Fatalf("bad error for %q: %v", p, err)
			}
			if e.Clean != "" && e.Clean == p {
				t.Fatalf("%q is its own clean spelling and still refused", p)
			}
			return
		}
		if strings.HasPrefix(p, "/") || strings.HasSuffix(p, "/") || strings.Contains("/"+p+"/", "/../") ||
			strings.Contains("/"+p+"/", "/./") || strings.Contains(p, "//") || strings.ContainsRune(p, 0) || p == "" {
			t.Fatalf("accepted %q", p)
		}
		if Fold(Fold(p)) != Fold(p) {
			t.Fatalf("Fold is not idempotent on %q: %q then %q", p, Fold(p), Fold(Fold(p)))
		}
		var s Set
		if err := s.AddFile(p); err != nil {
			t.Fatalf("Check accepts and Set refuses %q: %v", p, err)
		}
		if s.AddFile(p) == nil {
			t.Fatalf("%q taken twice", p)
		}
	})
}

func BenchmarkSetAdd(b *testing.B) {
	paths := make([]string, 10000)
	for i := range paths {
		paths[i] = "src/pkg" + strings.Repeat("x", i%20) + "/file" + string(rune('a'+i%26)) + strings.Repeat("0", i%50) + ".go"
	}
	for b.Loop() {
		var s Set
		for _, p := range paths {
			_ = s.AddFile(p) // some repeat: those are refused, which costs the same
		}
	}
}
