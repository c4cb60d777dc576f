package review

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/internal/gittest"
)

// commit makes the directory above the project a repository that has all of the project, and takes the base again.
func (f *fixture) commit() {
	f.t.Helper()
	top := filepath.Dir(f.project)
	f.tick() // what is as young as the index itself, git compares
	gittest.Run(f.t, top, "init", "-q")
	gittest.Run(f.t, top, "add", "project")
	gittest.Run(f.t, top, "commit", "-q", "-m", "first")
	f.rebase()
	f.tick()
}

// openMerging is open with Options.Merge.
func (f *fixture) openMerging() *Review {
	f.t.Helper()
	r, err := Open(f.t.Context(), f.subject(), Options{Keep: f.ledger.Dir(), Merge: true})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(r.Close)
	return r
}

// numbered is a text of n lines, some of them replaced.
func numbered(n int, replace map[int]string) string {
	var b strings.Builder
	for i := range n {
		if text, ok := replace[i]; ok {
			b.WriteString(text)
			continue
		}
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

func (f *fixture) has(path, want string) {
	f.t.Helper()
	b, err := os.ReadFile(filepath.Join(f.project, path))
	if err != nil {
		f.t.Fatal(err)
	}
	if d := cmp.Diff(want, string(b)); d != "" {
		f.t.Errorf("%s (-want +got):\n%s", path, d)
	}
}

// TestMerge goes through the life of a file that both sides changed: in conflict, merged, taken back, committed.
func TestMerge(t *testing.T) {
	gittest.Need(t)
	f := newFixture(t, "text="+numbered(30, nil), "other=o\n")
	f.commit()
	f.write("text="+numbered(30, map[int]string{3: "sandbox\n"}), "other=changed\n")
	f.seal()
	mine := numbered(30, map[int]string{20: "project\n"})
	plant(t, f.project, "text="+mine)

	r := f.open()
	var blocked *BlockedError
	if _, err := f.apply(r, Policy{}); !errors.As(err, &blocked) || len(blocked.Conflicts) != 1 {
		t.Fatalf("without a merge it is no conflict: %v", err)
	}
	lines, err := r.Explain(t.Context(), blocked.Conflicts[0])
	if err != nil || !strings.Contains(strings.Join(lines, "\n"), "they changed different places: hutch diff --merge box text shows them as one") {
		t.Errorf("a merge is not offered: %v %q", err, lines)
	}

	r = f.openMerging()
	var shown strings.Builder
	if err := r.Unified(t.Context(), &shown, Style{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(shown.String(), "-line 3\n+sandbox\n") || strings.Contains(shown.String(), "line 20") {
		t.Errorf("what is shown takes something back, or misses something:\n%s", &shown)
	}
	if _, err := f.apply(r, Policy{}); err != nil {
		t.Fatal(err)
	}
	f.has("text", numbered(30, map[int]string{3: "sandbox\n", 20: "project\n"}))
	// The sandbox's version still lacks what the project's side changed, and must not take its place.
	if _, err := f.apply(f.open(), Policy{}); !errors.As(err, &blocked) {
		t.Errorf("after a merge the sandbox's version is taken as it is: %v", err)
	}
	if r := f.openMerging(); len(r.Changes) != 0 {
		t.Errorf("after a merge there is still %+v", r.Changes[0])
	}

	if _, err := f.ledger.Undo(t.Context(), "box-id"); err != nil {
		t.Fatal(err)
	}
	f.has("text", mine)
	gittest.Run(t, f.project, "commit", "-q", "-a", "-m", "second")
	if _, err := f.apply(f.openMerging(), Policy{}); err != nil {
		t.Fatal(err)
	}
	f.has("text", numbered(30, map[int]string{3: "sandbox\n", 20: "project\n"}))
}

// TestMergeAfterUndo takes back two applies, one of a version that was taken in a conflict and one of a path that only
// the sandbox had changed: git's version of both is known as it was before.
func TestMergeAfterUndo(t *testing.T) {
	gittest.Need(t)
	f := newFixture(t, "text="+numbered(9, nil), "other="+numbered(9, nil))
	f.commit()
	f.write("text="+numbered(9, map[int]string{7: "sandbox\n"}), "other="+numbered(9, map[int]string{7: "sandbox\n"}))
	f.seal()
	mine := numbered(9, map[int]string{1: "project\n"})
	plant(t, f.project, "text="+mine)

	r := f.open()
	picks, err := r.Settle(r.All(), []string{"text"})
	if err != nil {
		t.Fatal(err)
	}
	f.settled(r, picks, Policy{})
	if _, err := f.ledger.Undo(t.Context(), "box"); err != nil {
		t.Fatal(err)
	}
	f.has("text", mine)
	f.has("other", numbered(9, nil))
	plant(t, f.project, "other="+mine)
	for _, c := range f.open().Changes {
		if c.Sides == nil || c.Sides.Base.Size != int64(len(numbered(9, nil))) {
			t.Errorf("of %s the base is not as it was: %+v", c.Path, c.Sides)
		}
	}
	if _, err := f.apply(f.openMerging(), Policy{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"text", "other"} {
		f.has(name, numbered(9, map[int]string{1: "project\n", 7: "sandbox\n"}))
	}
}

// TestMergeOfTheSameVersion is about a sandbox that saw what the project's side changed: its version is the outcome,
// and both have it from then on.
func TestMergeOfTheSameVersion(t *testing.T) {
	gittest.Need(t)
	f := newFixture(t, "text="+numbered(9, nil))
	f.commit()
	f.write("text=" + numbered(9, map[int]string{1: "project\n", 7: "sandbox\n"}))
	f.seal()
	plant(t, f.project, "text="+numbered(9, map[int]string{1: "project\n"}))
	if _, err := f.apply(f.openMerging(), Policy{}); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(f.project + "/text"); err != nil || !f.knows("text", fi.Size()) {
		t.Error("the base does not have the merged version")
	}
	f.has("text", numbered(9, map[int]string{1: "project\n", 7: "sandbox\n"}))
}

// TestNoMerge is about what stays a conflict, and why.
func TestNoMerge(t *testing.T) {
	gittest.Need(t)
	text := numbered(20, nil)
	ours, theirs := numbered(20, map[int]string{15: "project\n"}), numbered(20, map[int]string{2: "sandbox\n"})
	for _, c := range []struct {
		name                   string
		base, project, sandbox string
		before                 func(f *fixture) // before the base is taken
		after                  func(f *fixture) // before the review
		why                    string
	}{
		{name: "the same lines", project: numbered(20, map[int]string{2: "project\n"}), sandbox: theirs, why: "both sides changed the same lines"},
		{name: "lines beside each other", project: numbered(20, map[int]string{3: "project\n"}), sandbox: theirs, why: "both sides changed the same lines"},
		{name: "not in git", before: func(f *fixture) { gittest.Run(f.t, f.project, "rm", "-q", "--cached", "text") }, why: "git does not have it as it was when the sandbox was made"},
		{name: "not as git has it", before: func(f *fixture) { plant(f.t, f.project, "text="+numbered(20, map[int]string{9: "dirty\n"})) },
			why: "git does not have it as it was when the sandbox was made"},
		{name: "as young as the index", before: func(f *fixture) {
			fi, err := os.Stat(filepath.Join(f.project, "text"))
			if err == nil {
				err = os.Chtimes(filepath.Join(f.project, "../.git/index"), fi.ModTime(), fi.ModTime())
			}
			if err != nil {
				f.t.Fatal(err)
			}
		}, why: "git does not have it as it was when the sandbox was made"},
		{name: "an index that is damaged", before: func(f *fixture) {
			index := filepath.Join(f.project, "../.git/index")
			b, err := os.ReadFile(index)
			if err == nil {
				b[len(b)/2] ^= 1
				err = os.WriteFile(index, b, 0o644)
			}
			if err != nil {
				f.t.Fatal(err)
			}
		}, why: "git does not have it as it was when the sandbox was made"},
		{name: "an index in two parts", before: func(f *fixture) { gittest.Run(f.t, f.project, "update-index", "--split-index") }, why: "git does not have it as it was when the sandbox was made"},
		{name: "a repository that is gone", after: func(f *fixture) { os.RemoveAll(filepath.Join(f.project, "../.git")) }, why: "cannot be read: there is no git repository here"},
		{name: "an object that is gone", after: func(f *fixture) {
			os.RemoveAll(filepath.Join(f.project, "../.git/objects"))
			os.Mkdir(filepath.Join(f.project, "../.git/objects"), 0o755)
		},
			why: "cannot be read: git cat-file: "},
		{name: "binary", base: "\x00" + text, project: "\x00" + ours, sandbox: "\x00" + theirs, why: "binary"},
		{name: "binary once", base: "\x00" + text, why: "it was binary"},
		{name: "both modes", before: func(*fixture) {}, after: func(f *fixture) {
			if err := errors.Join(os.Chmod(filepath.Join(f.project, "text"), 0o600), os.Chmod(filepath.Join(f.upper, "text"), 0o640)); err != nil {
				f.t.Fatal(err)
			}
		}, why: "both sides changed its mode"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, "text="+orText(c.base, text))
			f.commit()
			if c.before != nil {
				c.before(f)
				f.rebase()
				f.tick()
			}
			f.write("text=" + orText(c.sandbox, theirs))
			f.seal()
			plant(t, f.project, "text="+orText(c.project, ours))
			if c.after != nil {
				c.after(f)
			}
			r := f.openMerging()
			if len(r.Changes) != 1 || r.Changes[0].Conflict == "" || r.Changes[0].Merged {
				t.Fatalf("it is no conflict: %+v", r.Changes)
			}
			lines, err := r.Explain(t.Context(), r.Changes[0])
			said := strings.Join(append(r.Changes[0].Reasons(nil), lines...), "\n")
			if err != nil || !strings.Contains(said, "cannot be merged: ") || !strings.Contains(said, c.why) {
				t.Errorf("%v, %q; want %q", err, lines, c.why)
			}
			before := pictureOf(f.project, true)
			var blocked *BlockedError
			if _, err := f.apply(r, Policy{}); !errors.As(err, &blocked) || pictureOf(f.project, true) != before {
				t.Errorf("it was applied: %v", err)
			}
		})
	}
}

// TestResolve applies a text with places that both sides changed as a person chose for each.
func TestResolve(t *testing.T) {
	gittest.Need(t)
	base := numbered(30, nil)
	project := numbered(30, map[int]string{2: "project 2\n", 20: "project 20\n"})
	sandbox := numbered(30, map[int]string{2: "sandbox 2\n", 12: "sandbox 12\n", 20: "sandbox 20\n", 29: "no end"})
	f := newFixture(t, "text="+base, "other=a\n")
	f.commit()
	f.write("text="+sandbox, "other=b\n")
	f.seal()
	plant(t, f.project, "text="+project)
	open := func(answers ...string) (*Review, error) {
		var list []Resolution
		for _, a := range answers {
			r, err := ParseResolution(a)
			if err != nil {
				t.Fatal(err)
			}
			if r.String() != a {
				t.Errorf("%q reads as %q", a, r)
			}
			list = append(list, r)
		}
		return Open(t.Context(), f.subject(), Options{Keep: f.ledger.Dir(), Merge: true, Resolve: list})
	}
	for answer, want := range map[string]string{
		"text:both": "has 2 places", "text:both,both,both": "has 2 places", "other:both": "other has no place", "none:both": "none has no place", "../x:both": "outside",
	} {
		if r, err := open(answer); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %q", answer, r, err, want)
		}
	}
	for _, bad := range []string{"text", "text:", ":both", "text:mine", "text:both,"} {
		if r, err := ParseResolution(bad); err == nil {
			t.Errorf("%q reads as %+v", bad, r)
		}
	}
	r, err := open("text:both,sandbox")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := f.apply(r, Policy{}); err != nil {
		t.Fatal(err)
	}
	f.has("text", numbered(30, map[int]string{2: "project 2\nsandbox 2\n", 12: "sandbox 12\n", 20: "sandbox 20\n", 29: "no end"}))
}

// TestMergeKeepsTheProjectsMode merges permissions as the lines are merged.
func TestMergeKeepsTheProjectsMode(t *testing.T) {
	gittest.Need(t)
	for _, c := range []struct {
		project, sandbox, want os.FileMode
	}{{0o600, 0o644, 0o600}, {0o644, 0o600, 0o600}, {0o600, 0o600, 0o600}, {0o755, 0o644, 0o755}} {
		f := newFixture(t, "text="+numbered(20, nil))
		f.commit()
		f.write("text=" + numbered(20, map[int]string{2: "sandbox\n"}))
		if err := os.Chmod(filepath.Join(f.merged, "text"), c.sandbox); err != nil {
			t.Fatal(err)
		}
		f.seal()
		plant(t, f.project, "text="+numbered(20, map[int]string{15: "project\n"}))
		if err := os.Chmod(filepath.Join(f.project, "text"), c.project); err != nil {
			t.Fatal(err)
		}
		if _, err := f.apply(f.openMerging(), Policy{}); err != nil { // an execute bit of the project's own needs no flag
			t.Errorf("%v: %v", c, err)
		}
		f.has("text", numbered(20, map[int]string{2: "sandbox\n", 15: "project\n"}))
		if fi, err := os.Stat(filepath.Join(f.project, "text")); err != nil || fi.Mode() != c.want {
			t.Errorf("project %v, sandbox %v: %v, %v; want %v", c.project, c.sandbox, fi.Mode(), err, c.want)
		}
	}
}

// TestMergeIsExact merges random changes of many files. Lines that lie apart are all in the outcome, and no other one.
func TestMergeIsExact(t *testing.T) {
	gittest.Need(t)
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	const files, size = 40, 60
	names := make([]string, files)
	var before []string
	for i := range names {
		names[i] = fmt.Sprintf("dir%d/file%d", i%5, i)
		before = append(before, names[i]+"="+numbered(size, nil))
	}
	f := newFixture(t, before...)
	f.commit()
	want := map[string]string{}
	var project []string
	for _, name := range names {
		ours, theirs, both := map[int]string{}, map[int]string{}, map[int]string{}
		for at := rng.IntN(4); at < size; at += 3 + rng.IntN(8) {
			text := [...]string{"", fmt.Sprintf("new %d\n", at), fmt.Sprintf("two\nlines %d\n", at)}[rng.IntN(3)]
			side := ours
			if rng.IntN(2) == 0 {
				side = theirs
			}
			side[at], both[at] = text, text
		}
		f.write(name + "=" + numbered(size, theirs))
		project = append(project, name+"="+numbered(size, ours))
		want[name] = numbered(size, both)
	}
	f.seal()
	plant(t, f.project, project...)
	if _, err := f.apply(f.openMerging(), Policy{}); err != nil {
		t.Fatal(err)
	}
	for name, text := range want {
		f.has(name, text)
	}
}

// TestVouch compares what is read from indexes of all kinds with what git says of them.
func TestVouch(t *testing.T) {
	gittest.Need(t)
	for _, format := range []string{"sha1", "sha256"} {
		for _, version := range []string{"2", "3", "4"} {
			t.Run(format+"/"+version, func(t *testing.T) {
				f := newFixture(t, "a=a\n", "a.b=1\n", "a-b=2\n", "dir/caf\xe9=3\n", "dir/deep/x=4\n", "dir/"+strings.Repeat("long", 40)+"=5\n", "link->a", "tool*=6\n", "empty=", "later=7\n")
				f.tick()
				gittest.Run(t, f.project, "init", "-q", "--object-format="+format)
				gittest.Run(t, f.project, "add", ".", ":!later")
				gittest.Run(t, f.project, "update-index", "--index-version", version)
				if version == "3" { // which is 2 with an extended entry
					gittest.Run(t, f.project, "add", "-N", "later")
				}
				gittest.Run(t, f.project, "commit", "-q", "-m", "first")
				gittest.Run(t, f.project, "worktree", "add", "-q", "../second")
				f.rebase()
				compareWithGit(t, f.project, f.base, 8)
				second := filepath.Join(f.project, "../second")
				f.tick() // its files are as young as its index
				gittest.Run(t, second, "read-tree", "--empty")
				gittest.Run(t, second, "add", ".")
				b, err := TakeBase(t.Context(), second)
				if err != nil {
					t.Fatal(err)
				}
				compareWithGit(t, second, b, 8)
			})
		}
	}
}

// compareWithGit compares a base's names of contents with git's, which must be least ones.
func compareWithGit(t *testing.T, dir string, b *Base, least int) {
	t.Helper()
	want := map[string]string{}
	for line := range strings.SplitSeq(gittest.Run(t, dir, "ls-files", "-s", "-z"), "\x00") {
		if about, path, ok := strings.Cut(line, "\t"); ok && !strings.HasPrefix(about, "120000") && path != "later" {
			want[path] = strings.Fields(about)[1]
		}
	}
	got := map[string]string{}
	for _, e := range b.Entries {
		if e.Content != "" {
			got[e.Path] = fmt.Sprintf("%x", e.Content)
		}
	}
	if d := cmp.Diff(want, got); d != "" || len(got) < least {
		t.Errorf("in %s (-git +hutch):\n%s", filepath.Base(dir), d)
	}
}

// TestMergeIsCancelled ends while something is merged.
func TestMergeIsCancelled(t *testing.T) {
	gittest.Need(t)
	f := newFixture(t, "text="+numbered(20, nil))
	f.commit()
	f.write("text=" + numbered(20, map[int]string{2: "sandbox\n"}))
	f.seal()
	plant(t, f.project, "text="+numbered(20, map[int]string{15: "project\n"}))
	r := f.open()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.merge(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a merge that was cancelled ended with %v", err)
	}
}

func orText(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
