package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var project = map[string]string{
	"README.md": "# project\n", "src/main.go": "package main\n\nfunc main() {}\n", "src/deep/er/x.txt": "needle\n", "gone.txt": "gone\n",
	"old/a": "a\n", "old/b": "b\n", "shown": "lower\n", "in": "-> src/deep", "abs": "-> /workspace/src/main.go", "out": "-> /etc/passwd", "up": "-> ../../etc",
	"loop": "-> loop", "dangling": "-> nowhere", "output/hidden": "the mount hides this\n",
}

// written is what the sandbox did to the project.
func written(t *testing.T, b *box) {
	t.Helper()
	for _, err := range []error{
		b.u.Remove("gone.txt", false), b.u.Remove("old", true), b.u.MkdirAll("old", 0o700), b.u.WriteFile("old/new", strings.NewReader("new\n"), 0o600),
		b.u.WriteFile("shown", strings.NewReader("upper\n"), 0o755), b.u.WriteFile("src/added.go", strings.NewReader("package main\n"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func wantReason(t *testing.T, what string, err error, want Reason) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%s: got %v, want an *Error with reason %s", what, err, want)
	}
	if e.Reason != want {
		t.Errorf("%s: got the reason %q (%v), want %q", what, e.Reason, err, want)
	}
	return e
}

func TestList(t *testing.T) {
	both(t, project, nil, func(t *testing.T, f *Files, b *box) {
		written(t, b)
		l, err := f.List(t.Context(), ListRequest{})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			"file README.md lower 10 0644", "symlink abs lower -> /workspace/src/main.go", "symlink dangling lower -> nowhere", "symlink in lower -> src/deep", "symlink loop lower -> loop",
			"directory old upper 0700", "file old/new upper 4 0600", "symlink out lower -> /etc/passwd", "directory output output", "file shown upper 6 0755",
			"directory src merged 0755", "file src/added.go upper 13 0644", "directory src/deep lower 0755", "directory src/deep/er lower 0755",
			"file src/deep/er/x.txt lower 7 0644", "file src/main.go lower 29 0644", "symlink up lower -> ../../etc",
		}
		if b.ready.Layers == nil {
			want = withoutLayers(want)
		}
		if diff := cmp.Diff(want, show(l.Entries)); diff != "" {
			t.Error(diff)
		}
		if !slices.IsSortedFunc(l.Entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) }) {
			t.Error("not in path order")
		}
		l, err = f.List(t.Context(), ListRequest{Path: "src", Depth: 1})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"src/added.go", "src/deep", "src/main.go"}, paths(l)); diff != "" {
			t.Error(diff)
		}
		l, err = f.List(t.Context(), ListRequest{Path: "in"}) // a link to a directory
		if diff := cmp.Diff([]string{"src/deep/er", "src/deep/er/x.txt"}, paths(l)); diff != "" || err != nil {
			t.Error(diff, err)
		}
		l, err = f.List(t.Context(), ListRequest{Path: "/workspace/shown"})
		if diff := cmp.Diff([]string{"shown"}, paths(l)); diff != "" || err != nil {
			t.Error(diff, err)
		}
		all, err := f.List(t.Context(), ListRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{1, 3} {
			l, err = f.List(t.Context(), ListRequest{Max: n})
			if diff := cmp.Diff(paths(all)[:n], paths(l)); diff != "" || err != nil || !l.Truncated {
				t.Errorf("truncated %t, %v; want the first %d of more: %s", l.Truncated, err, n, diff)
			}
		}
		if err := os.WriteFile(b.output+"/result", []byte("r\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		l, err = f.List(t.Context(), ListRequest{Path: "output"})
		if diff := cmp.Diff([]string{"/workspace/output/result"}, paths(l)); diff != "" || err != nil {
			t.Error(diff, err)
		}
	})
}

func withoutLayers(lines []string) []string {
	for i, l := range lines {
		f := strings.Fields(l)
		if f[2] != "output" {
			f = slices.Delete(f, 2, 3)
		}
		lines[i] = strings.Join(f, " ")
	}
	return lines
}

func show(entries []Entry) []string {
	var out []string
	for _, e := range entries {
		parts := []string{e.Type, e.Path, e.Layer}
		if e.Type == "file" {
			parts = append(parts, fmt.Sprint(e.Size))
		}
		if e.Target != "" {
			parts = append(parts, "->", e.Target)
		} else {
			parts = append(parts, e.Mode)
		}
		out = append(out, strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " "))
	}
	return out
}

func paths(l *Listing) []string {
	var out []string
	if l != nil {
		for _, e := range l.Entries {
			out = append(out, e.Path)
		}
	}
	return out
}

func TestStat(t *testing.T) {
	both(t, project, nil, func(t *testing.T, f *Files, b *box) {
		written(t, b)
		for name, want := range map[string]string{
			"shown": "file", "src": "directory", ".": "directory", "out": "symlink", "/workspace/output": "directory", "in/er/x.txt": "file",
		} {
			e, err := f.Stat(t.Context(), name)
			if err != nil || e.Type != want {
				t.Errorf("%s: %+v, %v; want a %s", name, e, err, want)
			}
		}
		for name, want := range map[string]Reason{"gone.txt": ReasonMissing, "old/a": ReasonMissing, "shown/x": ReasonNotDir, "nowhere/x": ReasonMissing, "out/x": ReasonOutside, "up/passwd": ReasonOutside, "loop/x": ReasonLinkLoop} {
			_, err := f.Stat(t.Context(), name)
			wantReason(t, name, err, want)
		}
	})
}

func TestRead(t *testing.T) {
	lines := "one\ntwo\nthree\nfour\nfive"
	both(t, map[string]string{"f": lines, "empty": "", "nul": "a\x00b\n", "latin": "caf\xe9\n", "long": strings.Repeat("é", 100) + "\nx\n", "link": "-> f"}, nil, func(t *testing.T, f *Files, b *box) {
		for _, c := range []struct {
			r     ReadRequest
			data  string
			first int
			next  int
		}{
			{ReadRequest{Path: "f"}, lines, 1, 0},
			{ReadRequest{Path: "link", Offset: 2, Limit: 2}, "two\nthree\n", 2, 4},
			{ReadRequest{Path: "f", Offset: 5}, "five", 5, 0},
			{ReadRequest{Path: "f", Offset: 4, Limit: 2}, "four\nfive", 4, 0},
			{ReadRequest{Path: "f", Offset: 6}, "", 0, 0},
			{ReadRequest{Path: "f", Max: 9}, "one\ntwo\n", 1, 3},
			{ReadRequest{Path: "long", Max: 9}, "éééé", 1, 2},
			{ReadRequest{Path: "empty"}, "", 0, 0},
		} {
			got, err := f.Read(t.Context(), c.r)
			if err != nil || string(got.Data) != c.data || got.First != c.first || got.Next != c.next {
				t.Errorf("%+v: %q from %d, next %d, %v; want %q, %d, %d", c.r, got.Data, got.First, got.Next, err, c.data, c.first, c.next)
			}
		}
		for name, binary := range map[string]bool{"f": false, "nul": true, "latin": true} {
			if c, err := f.Read(t.Context(), ReadRequest{Path: name}); err != nil || c.Binary != binary || (c.Text == "") != binary {
				t.Errorf("%s: %+v %v", name, c, err)
			}
		}
		c, err := f.Read(t.Context(), ReadRequest{Path: "f", Offset: 4})
		if diff := cmp.Diff("     4\tfour\n     5\tfive\n", string(c.Numbered())); diff != "" || err != nil {
			t.Error(diff, err)
		}
		if c.Lines != 5 || c.Size != int64(len(lines)) {
			t.Errorf("%d lines, %d bytes", c.Lines, c.Size)
		}
		small := b.open(Options{MaxSize: 3})
		_, err = small.Read(t.Context(), ReadRequest{Path: "f"})
		wantReason(t, "a file beyond the cap", err, ReasonTooBig)
	})
}

func TestWrite(t *testing.T) {
	both(t, map[string]string{"f": "old\n", "link": "-> f", "d/x": "x\n", "dirlink": "-> d"}, nil, func(t *testing.T, f *Files, b *box) {
		if err := os.Chmod(b.lower+"/f", 0o664); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			r       WriteRequest
			created bool
			at      string
			mode    fs.FileMode
		}{
			{WriteRequest{Path: "f", Data: []byte("new\n")}, false, "f", 0o664},
			{WriteRequest{Path: "link", Data: []byte("through\n")}, false, "f", 0o664},
			{WriteRequest{Path: "a/b/c", Data: []byte("deep\n")}, true, "a/b/c", 0o644},
			{WriteRequest{Path: "/workspace/dirlink/n", Data: []byte("n\n"), Mode: 0o755}, true, "d/n", 0o755},
			{WriteRequest{Path: "f", Mode: 0o600}, false, "f", 0o600},
			{WriteRequest{Path: "big", Data: make([]byte, 100_000)}, true, "big", 0o644},
		} {
			w, err := f.Write(t.Context(), c.r)
			if err != nil || w.Created != c.created || w.Size != int64(len(c.r.Data)) {
				t.Errorf("%s: %+v, %v", c.r.Path, w, err)
				continue
			}
			got, err := os.ReadFile(filepath.Join(b.upper, c.at))
			fi, _ := os.Lstat(filepath.Join(b.upper, c.at))
			if err != nil || string(got) != string(c.r.Data) || fi.Mode() != c.mode {
				t.Errorf("%s: in upper are %d bytes with mode %v, %v", c.r.Path, len(got), fi.Mode(), err)
			}
		}
		for what, c := range map[string]struct {
			r      WriteRequest
			reason Reason
		}{
			"a directory": {WriteRequest{Path: "d"}, ReasonDir}, "a slash at the end": {WriteRequest{Path: "new/"}, ReasonName}, "the workspace": {WriteRequest{Path: "."}, ReasonDir},
			"below a file": {WriteRequest{Path: "f/x"}, ReasonNotDir}, "one that is there": {WriteRequest{Path: "f", New: true}, ReasonRequest},
			"setuid": {WriteRequest{Path: "s", Mode: 0o755 | fs.ModeSetuid}, ReasonRequest}, "for all to write": {WriteRequest{Path: "s", Mode: 0o666}, ReasonRequest},
		} {
			_, err := f.Write(t.Context(), c.r)
			wantReason(t, what, err, c.reason)
		}
		if _, err := f.Write(t.Context(), WriteRequest{Path: "output/x", Data: []byte("o\n")}); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(b.output + "/x"); string(got) != "o\n" {
			t.Errorf("output/x is %q, %v", got, err)
		}
	})
}

func TestRemove(t *testing.T) {
	both(t, project, nil, func(t *testing.T, f *Files, b *box) {
		for name, recursive := range map[string]bool{"README.md": false, "out": false, "src": true, "dangling": true} {
			if _, err := f.Remove(t.Context(), name, recursive); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			_, err := f.Stat(t.Context(), name)
			wantReason(t, name+" afterwards", err, ReasonMissing)
		}
		for name, want := range map[string]Reason{"old": ReasonDir, "nothing": ReasonMissing, ".": ReasonRequest, "output": ReasonRequest, "/workspace/output": ReasonRequest, "up/x": ReasonOutside} {
			_, err := f.Remove(t.Context(), name, false)
			wantReason(t, name, err, want)
		}
		if _, err := os.Stat(b.lower + "/src/main.go"); err != nil {
			t.Errorf("the project lost a file: %v", err)
		}
	})
}

// TestChangesAreReported checks what is reported of each change, and that an error of the listener is that of the
// change.
func TestChangesAreReported(t *testing.T) {
	both(t, map[string]string{"a": "one\n", "in": "-> deep", "deep/x": "x\n"}, nil, func(t *testing.T, _ *Files, b *box) {
		var got []Change
		var full error
		f := b.open(Options{Changed: func(c Change) error { got = append(got, c); return full }})
		if _, err := f.Write(t.Context(), WriteRequest{Path: "in/new", Data: []byte("hello\n")}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.EditFile(t.Context(), EditRequest{Path: "a", Edits: []Edit{{Old: "one", New: "two"}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.EditFile(t.Context(), EditRequest{Path: "a", Edits: []Edit{{Old: "none", New: "two"}}}); err == nil {
			t.Error("an edit of what is not there was done")
		}
		full = errors.New("disk full")
		if _, err := f.Remove(t.Context(), "deep", true); !errors.Is(err, full) {
			t.Errorf("a removal that was not recorded: %v", err)
		}
		want := []Change{
			{Op: OpWrite, Path: "deep/new", Size: 6, SHA256: "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"},
			{Op: OpEdit, Path: "a", Size: 4, SHA256: "27dd8ed44a83ff94d557f9fd0412ed5a8cbca69ea04922d88c01184a07300a5a"},
			{Op: OpRemove, Path: "deep", Type: "directory"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}
