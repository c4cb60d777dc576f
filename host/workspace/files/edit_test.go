package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEdit(t *testing.T) {
	const text = "one\ntwo\ntwo\nthree = 3\n"
	for name, c := range map[string]struct {
		text   string
		edits  []Edit
		want   string
		lines  []int
		reason Reason
		says   string // part of the message or the hint
	}{
		"one":               {text, []Edit{{Old: "one", New: "1"}}, "1\ntwo\ntwo\nthree = 3\n", []int{1}, "", ""},
		"over lines":        {text, []Edit{{Old: "two\nthree", New: "2\n3"}}, "one\ntwo\n2\n3 = 3\n", []int{3}, "", ""},
		"all":               {text, []Edit{{Old: "two", New: "2", All: true}}, "one\n2\n2\nthree = 3\n", []int{2, 3}, "", ""},
		"one after another": {text, []Edit{{Old: "one", New: "four"}, {Old: "four", New: "five"}}, "five\ntwo\ntwo\nthree = 3\n", []int{1, 1}, "", ""},
		"taken away":        {text, []Edit{{Old: "one\n", New: ""}}, "two\ntwo\nthree = 3\n", []int{1}, "", ""},
		"an expression":     {"a.b $1\n", []Edit{{Old: "a.b", New: "$1"}}, "$1 $1\n", []int{1}, "", ""},
		"CRLF":              {"a\r\nb\r\nc\r\n", []Edit{{Old: "a\nb", New: "x\ny"}}, "x\r\ny\r\nc\r\n", []int{1}, "", ""},
		"CRLF given":        {"a\r\nb\r\n", []Edit{{Old: "a\r\nb", New: "x\r\ny"}}, "x\r\ny\r\n", []int{1}, "", ""},
		"mixed line ends":   {"a\r\nb\nc\n", []Edit{{Old: "b\nc", New: "x\ny"}}, "a\r\nx\ny\n", []int{2}, "", ""},
		"no newline at end": {"a\nb", []Edit{{Old: "b", New: "c"}}, "a\nc", []int{2}, "", ""},
		"bytes":             {"a\x00\xff b\n", []Edit{{Old: "b", New: "c"}}, "a\x00\xff c\n", []int{1}, "", ""},
		"none":              {text, []Edit{{Old: "four", New: "4"}}, "", nil, ReasonNoMatch, "exactly as in the file"},
		"other white space": {text, []Edit{{Old: "three=3", New: "4"}}, "", nil, ReasonNoMatch, "line 4 has it with other white space"},
		"other indentation": {"if x:\n\ty()\n\tz()\n", []Edit{{Old: "    y()\n    z()", New: "w()"}}, "", nil, ReasonNoMatch, "line 2 has it"},
		"several":           {text, []Edit{{Old: "two", New: "2"}}, "", nil, ReasonAmbiguous, "2 times, at lines 2, 3"},
		"overlapping":       {"aaa\n", []Edit{{Old: "aa", New: "b"}}, "", nil, ReasonAmbiguous, "2 times, at lines 1, 1"},
		"the second fails":  {text, []Edit{{Old: "one", New: "1"}, {Old: "one", New: "2"}}, "", nil, ReasonNoMatch, "edit 2 of 2"},
		"empty":             {text, []Edit{{Old: "", New: "x"}}, "", nil, ReasonRequest, "is empty"},
		"the same":          {text, []Edit{{Old: "one", New: "one"}}, "", nil, ReasonRequest, "the same"},
		"nothing":           {text, nil, "", nil, ReasonRequest, "nothing to replace"},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, map[string]string{"f": c.text, "link": "-> f"}, nil, func(t *testing.T, f *Files, b *box) {
				if err := os.Chmod(b.lower+"/f", 0o750); err != nil {
					t.Fatal(err)
				}
				got, err := f.EditFile(t.Context(), EditRequest{Path: "link", Edits: c.edits})
				if c.reason != "" {
					e := wantReason(t, name, err, c.reason)
					if said := e.Error() + " " + e.Hint; !strings.Contains(said, c.says) {
						t.Errorf("it says %q, which does not hold %q", said, c.says)
					}
					if len(b.puts) > 0 {
						t.Errorf("something was written: %q", b.puts)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.lines, got.Lines); diff != "" || got.Replaced != len(c.lines) || got.Size != int64(len(c.want)) {
					t.Errorf("%+v %s", got, diff)
				}
				now, err := os.ReadFile(b.upper + "/f")
				if string(now) != c.want || err != nil {
					t.Errorf("the file is %q, %v; want %q", now, err, c.want)
				}
				if fi, err := os.Stat(b.upper + "/f"); err != nil || fi.Mode().Perm() != 0o750 {
					t.Errorf("the mode is %v", fi.Mode())
				}
			})
		})
	}
}

func TestEditOfWhatIsNotThere(t *testing.T) {
	both(t, map[string]string{"d/x": "x"}, nil, func(t *testing.T, f *Files, b *box) {
		_, err := f.EditFile(t.Context(), EditRequest{Path: "new", Edits: []Edit{{Old: "a", New: "b"}}})
		wantReason(t, "a file that is not there", err, ReasonMissing)
		_, err = f.EditFile(t.Context(), EditRequest{Path: "d", Edits: []Edit{{Old: "a", New: "b"}}})
		wantReason(t, "a directory", err, ReasonDir)
	})
}

// TestEditsDoNotLoseEachOther edits one file from many sides at once.
func TestEditsDoNotLoseEachOther(t *testing.T) {
	var text strings.Builder
	const n = 40
	for i := range n {
		fmt.Fprintf(&text, "<%d>\n", i)
	}
	b := newBox(t, true, map[string]string{"f": text.String()}, nil)
	f := b.open(Options{})
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			_, errs[i] = f.EditFile(t.Context(), EditRequest{Path: "f", Edits: []Edit{{Old: fmt.Sprintf("<%d>", i), New: "done"}}})
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if c, err := f.Read(t.Context(), ReadRequest{Path: "f"}); err != nil || c.Text != strings.Repeat("done\n", n) {
		t.Errorf("%v\n%s", err, c.Text)
	}
}

func FuzzEdit(f *testing.F) {
	f.Add("one\ntwo\n", "one", "1", false)
	f.Add("a\r\nb\r\n", "a\nb", "x\n", true)
	f.Add("aaaa", "aa", "a", true)
	f.Fuzz(func(t *testing.T, text, old, new string, all bool) {
		var out Edited
		got, err := out.apply("f", text, []Edit{{Old: old, New: new, All: all}})
		if err != nil {
			if got != "" {
				t.Errorf("an edit that failed gave %q", got)
			}
			return
		}
		if out.Replaced != len(out.Lines) || out.Replaced == 0 || !all && out.Replaced != 1 {
			t.Errorf("%+v", out)
		}
		if !strings.Contains(text, "\r") && got != strings.ReplaceAll(text, old, new) {
			t.Errorf("%q -> %q", text, got)
		}
		for _, n := range out.Lines {
			if n < 1 || n > strings.Count(text, "\n")+1 {
				t.Errorf("line %d of %q", n, text)
			}
		}
	})
}

func FuzzParseEdits(f *testing.F) {
	for _, s := range []string{`{"old":"a","new":"b"}`, `[{"old":"a","new":"","all":true},{"old":"b","new":"c"}]`, `{"old":"a","new":"b"}]`, `{"old":"a"},{"new":"b"}`, `[]`, `[null]`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		edits, err := ParseEdits(data)
		if err != nil {
			return
		}
		var list []map[string]any
		for _, e := range edits {
			list = append(list, map[string]any{"old": e.Old, "new": e.New, "all": e.All})
		}
		again, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := ParseEdits(again); err != nil || len(edits) == 0 || !slices.Equal(same, edits) {
			t.Errorf("%+v became %+v: %v", edits, same, err)
		}
		if !json.Valid(data) {
			t.Errorf("%q is taken", data)
		}
	})
}
