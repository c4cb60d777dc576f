package review

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseHunks(t *testing.T) {
	for _, c := range []struct {
		in   string
		want HunkRef
		err  string
	}{
		{in: "a.txt:1", want: HunkRef{"a.txt", []int{1}}},
		{in: "./a:b/c:3,1-2,2", want: HunkRef{"a:b/c", []int{1, 2, 3}}},
		{in: "a:0", want: HunkRef{"a", []int{0}}},
		{in: "a", err: "does not name hunks"},
		{in: ":1", err: "does not name hunks"},
		{in: "a:", err: "does not name hunks"},
		{in: "a:x", err: "not the number of a hunk"},
		{in: "a:-1", err: "not the number of a hunk"},
		{in: "a:3-1", err: "upside down"},
		{in: "a:1-999999", err: "longer than"},
		{in: "a:99999999999999999999", err: "not the number of a hunk"},
	} {
		got, err := ParseHunks(c.in)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: %v, want an error with %q", c.in, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%q (-want +got):\n%s", c.in, d)
		}
	}
}

func FuzzParseHunks(f *testing.F) {
	for _, s := range []string{"a:1", "a:b:1-3,7", ":", "a:,", "a:1-", "\xff:0-0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseHunks(s)
		if err != nil {
			return
		}
		if r.Path == "" || len(r.Numbers) == 0 || !slices.IsSorted(r.Numbers) || r.Numbers[0] < 0 {
			t.Errorf("%q gives %+v", s, r)
		}
	})
}

// hunky is a project with one file of three hunks, of which the first has two spans and the mode changes as well, and
// changes besides.
func hunky(t *testing.T) *fixture {
	old := strings.Join(strings.Split("abcdefghijklmnopqrstuvwxyz", ""), "\n") + "\n"
	f := newFixture(t, "text="+old, "gone=g\n", "other=o\n", "dir/a=a\n", "dir/b=b\n")
	f.write("text="+strings.NewReplacer("b\n", "B\n", "e\n", "E\n", "n\n", "N\n", "y\n", "y\nY\n").Replace(old), "other=O\n", "new/file=n\n")
	f.remove("gone", "dir")
	if err := os.Chmod(filepath.Join(f.merged, "text"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.seal()
	return f
}

// changedLetters are the capital letters in the project's text, with its mode.
func changedLetters(t *testing.T, f *fixture) string {
	b, err := os.ReadFile(filepath.Join(f.project, "text"))
	if err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(filepath.Join(f.project, "text"))
	if err != nil {
		t.Fatal(err)
	}
	out := ""
	for _, c := range string(b) {
		if 'A' <= c && c <= 'Z' {
			out += string(c)
		}
	}
	if fi.Mode().Perm() == 0o600 {
		out += " mode"
	}
	for _, name := range []string{"gone", "new", "dir", "dir/a"} {
		if _, err := os.Stat(filepath.Join(f.project, name)); err == nil {
			out += " " + name
		}
	}
	return out
}

func TestApplyHunks(t *testing.T) {
	for _, c := range []struct {
		refs []string
		want string // the letters that changed, the mode, and what is there
		err  string
	}{
		{refs: []string{"text:1"}, want: "BE gone dir dir/a"},
		{refs: []string{"text:3", "text:2"}, want: "NY gone dir dir/a"},
		{refs: []string{"text:0"}, want: " mode gone dir dir/a"},
		{refs: []string{"/workspace/text:0-3"}, want: "BENY mode gone dir dir/a"},
		{refs: []string{"text:4"}, err: "has 3 hunks, not 4"},
		{refs: []string{"new/file:1"}, err: "has no hunks"},
		{refs: []string{"nothing:1"}, err: "nothing changed at nothing"},
		{refs: []string{"../text:1"}, err: "outside the project"},
		{refs: []string{"other:0"}, err: "keeps its mode"},
	} {
		t.Run(strings.Join(c.refs, " "), func(t *testing.T) {
			f := hunky(t)
			before := pictureOf(f.project, true)
			r := f.open()
			var refs []HunkRef
			for _, s := range c.refs {
				ref, err := ParseHunks(s)
				if err != nil {
					t.Fatal(err)
				}
				refs = append(refs, ref)
			}
			picks, err := r.PickHunks(t.Context(), refs)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("the error is %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			p, err := r.Plan(t.Context(), picks, Policy{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.ledger.Apply(t.Context(), r, p); err != nil {
				t.Fatal(err)
			}
			if got := changedLetters(t, f); got != c.want {
				t.Errorf("the project has %q, want %q", got, c.want)
			}
			if _, err := f.ledger.Undo(t.Context(), "box-id"); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(before, pictureOf(f.project, true)); d != "" {
				t.Errorf("after the undo (-before +after):\n%s", d)
			}
		})
	}
}

// TestAsk answers the questions in order: dir, dir/a, dir/b, gone, new/file, other, text (its mode and three hunks).
func TestAsk(t *testing.T) {
	const skip = "n\nn\nn\nn\nn\n" // dir/a, dir/b, gone, new/file, other
	for _, c := range []struct {
		name, answers, want string
		says                []string
	}{
		{name: "none", answers: skip + "n\nn\nn\nn\n", want: " gone dir dir/a", says: []string{"(1/1) Apply this deletion [y,n,q,a,d,?]? ", "Apply the mode change from 100644 to 100600"}},
		{name: "the end of the input quits", answers: skip + "y\ny\n", want: "BE mode gone dir dir/a"},
		{name: "all of a file", answers: skip + "a\n", want: "BENY mode gone dir dir/a"},
		{name: "the rest of a file", answers: skip + "n\ny\nd\n", want: "BE gone dir dir/a"},
		{name: "a directory goes when all in it goes", answers: "y\ny\nn\nq\n", want: " gone"},
		{name: "and stays when something stays", answers: "y\nn\ny\nq\n", want: " dir"},
		{name: "its parent comes with a new file", answers: "n\nn\nn\ny\nq\n", want: " gone new dir dir/a"},
		{name: "quit keeps what was chosen", answers: "n\nn\ny\nq\n", want: " dir dir/a"},
		{name: "split", answers: skip + "n\ns\nn\ny\nn\nn\n", want: "E gone dir dir/a", says: []string{"Split into 2 hunks.", "[y,n,q,a,d,j,J,K,s,?]"}},
		{name: "forth and back", answers: skip + "j\nj\ny\nk\ny\nn\nn\n", want: "BEN gone dir dir/a"},
		{name: "help", answers: "?\nwhat\nq\n", want: " gone dir dir/a", says: []string{"q - quit: neither this nor anything that remains"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := hunky(t)
			r := f.open()
			var out strings.Builder
			a := &Asker{In: bufio.NewReader(strings.NewReader(c.answers)), Out: &out}
			picks, err := a.Ask(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			p, err := r.Plan(t.Context(), picks, Policy{})
			if err != nil {
				t.Fatal(err)
			}
			if len(p.steps) > 0 {
				if _, err := f.ledger.Apply(t.Context(), r, p); err != nil {
					t.Fatal(err)
				}
			}
			if got := changedLetters(t, f); got != c.want {
				t.Errorf("the project has %q, want %q\n%s", got, c.want, out.String())
			}
			for _, want := range c.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it does not say %q:\n%s", want, out.String())
				}
			}
		})
	}
}
