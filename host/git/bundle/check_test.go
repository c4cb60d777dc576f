package bundle

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/internal/gittest"
)

// TestRoundTrip sends a branch out, has a commit made of it, and takes that back.
func TestRoundTrip(t *testing.T) {
	f := newFixture(t)
	clone := f.clone()
	if got := gittest.Run(t, clone, "rev-parse", "HEAD"); got != f.base {
		t.Fatalf("the clone is at %s, not at %s", got, f.base)
	}
	write(t, filepath.Join(clone, "new/file"), "new\n")
	write(t, filepath.Join(clone, "README"), "one\ntwo\n")
	gittest.Run(t, clone, "add", "-A")
	gittest.Run(t, clone, "commit", "-q", "-m", "second")
	gittest.Run(t, clone, "mv", "README", "READ")
	gittest.Run(t, clone, "commit", "-q", "-m", "third")
	for name, args := range map[string][]string{
		"whole":       {"HEAD"},
		"incremental": {"origin/main..HEAD"},
		"by its base": {f.base + "..HEAD"},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out.bundle")
			gittest.Run(t, clone, append([]string{"bundle", "create", "-q", out}, args...)...)
			b, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			c, err := f.check(b, Caps{})
			if err != nil {
				t.Fatal(err)
			}
			if want := gittest.Run(t, clone, "rev-parse", "HEAD"); c.Commit != want {
				t.Errorf("it is %s, not %s", c.Commit, want)
			}
			if len(c.Findings) != 0 {
				t.Errorf("findings: %v", c.Findings)
			}
			if err := c.Take(t.Context(), f.repo, "refs/hutch/box"); err != nil {
				t.Fatal(err)
			}
			s, err := f.repo.Summarize(t.Context(), f.base, "refs/hutch/box")
			if err != nil || s.Commits != 2 || s.Files != 3 || s.Insertions != 3 || s.Deletions != 1 {
				t.Errorf("%+v %v", s, err)
			}
			if err := f.repo.FastForward(t.Context(), c.Commit); err != nil {
				t.Fatal(err)
			}
			if got := gittest.Run(t, f.repo.Dir, "status", "--porcelain"); got != "" {
				t.Errorf("the work tree is not clean:\n%s", got)
			}
			gittest.Run(t, f.repo.Dir, "fsck", "--strict")
			gittest.Run(t, f.repo.Dir, "reset", "-q", "--hard", f.base)
		})
	}
}

// TestHostile is the catalogue: what must not come in, whatever git itself says of it.
func TestHostile(t *testing.T) {
	f := newFixture(t)
	b := blob("hello\n")
	// with makes a bundle whose one commit has such a tree.
	with := func(entries []treeEntry, more ...object) []byte {
		tr := tree(entries...)
		c := commit(tr.name(), f.base)
		return bundled(pack(append(more, tr, c)...), []string{f.base}, Ref{c.name(), "HEAD"})
	}
	file := func(name string) []byte { return with([]treeEntry{{"100644", name, b.name()}}, b) }
	good := file("hello")
	sub := func(dir, name string) []byte {
		in := tree(treeEntry{"100644", name, b.name()})
		return with([]treeEntry{{"40000", dir, in.name()}}, b, in)
	}
	gitmodules := func(content string) []byte {
		m := blob(content)
		return with([]treeEntry{{"100644", ".gitmodules", m.name()}}, m)
	}
	aCommit := func(parents ...string) (object, object) {
		tr := tree(treeEntry{"100644", "hello", b.name()})
		return tr, commit(tr.name(), parents...)
	}
	named := func(refs ...string) []byte {
		tr, c := aCommit(f.base)
		var l []Ref
		for _, r := range refs {
			l = append(l, Ref{c.name(), r})
		}
		return bundled(pack(b, tr, c), []string{f.base}, l...)
	}
	flipped := func(at int) []byte {
		x := append([]byte(nil), good...)
		x[len(x)+at] ^= 0x10
		return x
	}
	bomb := func(claim uint64, real int64) []byte {
		raw := append([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01"), entryHead(3, claim)...)
		return bundled(seal(append(raw, zeros(real)...)), nil, Ref{f.base, "HEAD"})
	}
	delta := func(result uint64) []byte { // on a base that is not even there
		d := append([]byte{6}, uvarint(result)...)
		raw := append([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01"), entryHead(7, uint64(len(d)))...)
		raw = append(raw, make([]byte, 20)...)
		return bundled(seal(append(raw, deflate(d)...)), nil, Ref{f.base, "HEAD"})
	}
	unrelatedTree, unrelated := aCommit()
	lackingTree, lacking := aCommit(strings.Repeat("1", 40))
	sizedTree := tree(treeEntry{"100644", "big", blob(strings.Repeat("x", 2000)).name()})
	sized := commit(sizedTree.name(), f.base)
	taggedTree, tagged := aCommit(f.base)
	tag := object{"tag", []byte("object " + tagged.name() + "\ntype commit\ntag v1\ntagger A <a@example.com> 1700000000 +0000\n\nx\n")}

	for _, tc := range []struct {
		name   string
		bundle []byte
		caps   Caps
		want   string // in the message
		is     error
	}{
		// GIT-01
		{name: "cut by 40 bytes", bundle: good[:len(good)-40], want: "cut off"},
		{name: "cut within the checksum", bundle: good[:len(good)-1], want: "cut off"},
		{name: "cut within the header", bundle: good[:30], want: "ends within its header"},
		{name: "a bit flipped in the checksum", bundle: flipped(-1), want: "checksum is wrong"},
		{name: "a bit flipped in an object", bundle: flipped(-60), want: "object"},
		{name: "something behind it", bundle: append(append([]byte(nil), good...), 'x'), want: "stands behind its end"},
		{name: "empty", bundle: nil, want: "no git bundle"},
		{name: "garbage", bundle: []byte(strings.Repeat("garbage\n", 100)), want: "no git bundle"},
		{name: "no pack", bundle: bundled([]byte("not a pack at all"), nil, Ref{f.base, "HEAD"}), want: "no pack"},
		// GIT-02
		{name: "the ref -x alone", bundle: named("-x"), want: "has no HEAD"},
		{name: "the ref ../../evil alone", bundle: named("../../evil", "--upload-pack=/bin/sh", "\x1b[2J", "refs/replace/"+f.base), want: "has no HEAD"},
		{name: "another format", bundle: []byte("# v3 git bundle\n@object-format=sha256\n\n"), want: "sha256"},
		{name: "a filter", bundle: []byte("# v3 git bundle\n@filter=blob:none\n\n"), want: "does not take"},
		{name: "a ref that is a blob", bundle: bundled(pack(b), nil, Ref{b.name(), "HEAD"}), want: "no commit"},
		{name: "a ref that is a tag", bundle: bundled(pack(b, taggedTree, tagged, tag), []string{f.base}, Ref{tag.name(), "HEAD"}), want: "no commit"},
		{name: "a ref to nothing", bundle: bundled(pack(b), nil, Ref{strings.Repeat("2", 40), "HEAD"}), want: "no commit"},
		// GIT-04: a link is taken and never followed; its target is reported. One that git reads is refused.
		{name: "a link for .gitattributes", bundle: with([]treeEntry{{"120000", ".gitattributes", blob("/etc").name()}}, blob("/etc")), want: "symbolic link"},
		// GIT-06
		{name: "unrelated history", bundle: bundled(pack(b, unrelatedTree, unrelated), nil, Ref{unrelated.name(), "HEAD"}), want: "do not build on", is: ErrRewritten},
		{name: "a missing prerequisite", bundle: bundled(pack(b, lackingTree, lacking), []string{strings.Repeat("1", 40)}, Ref{lacking.name(), "HEAD"}), want: "builds on the commit 111111111111"},
		{name: "an undeclared missing prerequisite", bundle: bundled(pack(b, lackingTree, lacking), nil, Ref{lacking.name(), "HEAD"}), want: "broken object"},
		{name: "a missing blob", bundle: bundled(pack(sizedTree, sized), []string{f.base}, Ref{sized.name(), "HEAD"}), want: "broken object"},
		{name: "nothing new", bundle: bundled(pack(), []string{f.base}, Ref{f.base, "HEAD"}), want: "no commit that this repository lacks", is: ErrNothingNew},
		// GIT-07
		{name: "1 GiB in 1 MB", bundle: bomb(1<<30, 1<<20), want: "1GiB, more than 100MiB"},
		{name: "1 GiB that calls itself small", bundle: bomb(1000, 1<<20), want: "unpacks to more than it says"},
		{name: "a size beyond all measure", bundle: bomb(1<<58, 10), want: "more than 100MiB"},
		{name: "2 MiB as they are", bundle: bomb(2<<20, 2<<20), caps: Caps{Object: 1 << 20}, want: "2MiB, more than 1MiB"},
		{name: "a delta that grows", bundle: delta(1 << 40), want: "1TiB, more than 100MiB"},
		{name: "too many objects", bundle: good, caps: Caps{Objects: 2}, want: "3 objects, more than 2"},
		{name: "too much together", bundle: good, caps: Caps{Total: 100}, want: "all objects together"},
		{name: "too many commits", bundle: manyCommits(f.base, 3), caps: Caps{Commits: 2}, want: "more than 2 new commits"},
		{name: "too many paths", bundle: good, caps: Caps{Paths: 1}, want: "more than 1 paths"},
		{name: "too large", bundle: good, caps: Caps{Bytes: 50}, want: "more than 50B"},
		// GIT-08
		{name: "a url that is an option", bundle: gitmodules("[submodule \"x\"]\n\tpath = x\n\turl = -u./payload\n"), want: "git found a broken object"},
		{name: "a name that leads out", bundle: gitmodules("[submodule \"../../x\"]\n\tpath = x\n\turl = https://example.com/x\n"), want: "git found a broken object"},
		{name: "a harmless .gitmodules", bundle: gitmodules("[submodule \"x\"]\n\tpath = x\n\turl = https://example.com/x\n"), want: "submodules are not taken"},
		{name: "a submodule", bundle: with([]treeEntry{{"160000", "sub", f.base}}), want: "is a submodule"},
		// paths and modes
		{name: ".git", bundle: sub(".git", "config"), want: "git"},
		{name: ".GIT", bundle: sub(".GIT", "config"), want: "git"},
		{name: "git~1", bundle: sub("git~1", "config"), want: "git"},
		{name: ".git with an ignored character", bundle: sub(".g\u200cit", "config"), want: "git"},
		{name: "hooks below .git", bundle: sub("x/.git/hooks", "post-merge"), want: "git"},
		{name: "..", bundle: sub("..", "evil"), want: "broken object"},
		{name: ".", bundle: sub(".", "evil"), want: "broken object"},
		{name: "a slash in a name", bundle: file("../../evil"), want: "broken object"},
		{name: "an absolute name", bundle: file("/etc/evil"), want: "broken object"},
		{name: "no name", bundle: file(""), want: "broken object"},
		{name: "the same name twice", bundle: with([]treeEntry{{"100644", "a", b.name()}, {"100644", "a", b.name()}}, b), want: "broken object"},
		{name: "not in order", bundle: with([]treeEntry{{"100644", "b", b.name()}, {"100644", "a", b.name()}}, b), want: "broken object"},
		{name: "a padded mode", bundle: with([]treeEntry{{"0100644", "a", b.name()}}, b), want: "broken object"},
		{name: "setuid", bundle: with([]treeEntry{{"104755", "a", b.name()}}, b), want: "broken object"},
		{name: "a long name", bundle: file(strings.Repeat("n", 300)), want: "path"},
		{name: "deep", bundle: deep(f.base, 70, b), want: "path"},
		// what a later commit takes away again
		{name: "a submodule in between", bundle: inBetween(f.base, treeEntry{"160000", "sub", f.base}, b), want: "is a submodule"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := f.check(tc.bundle, tc.caps)
			var refused *RefusedError
			if !errors.As(err, &refused) {
				t.Fatalf("it was not refused: %+v %v", c, err)
			}
			if !strings.Contains(err.Error(), tc.want) || strings.ContainsAny(err.Error(), "\x1b\x00") {
				t.Errorf("%q, want %q in it", err, tc.want)
			}
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("%v is not %v", err, tc.is)
			}
			f.untouched(t)
		})
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "hutch-bundle-*")); os.Getenv("TMPDIR") != "" && len(left) > 0 {
		t.Logf("private repositories in the temporary directory: %v", left)
	}
}

// untouched proves that nothing of a refused bundle is in the user's repository.
func (f *fixture) untouched(t *testing.T) {
	t.Helper()
	if got := gittest.Run(t, f.repo.Dir, "for-each-ref", "--format=%(refname) %(objectname)"); got != "refs/heads/main "+f.base {
		t.Errorf("the refs are now\n%s", got)
	}
	if got := gittest.Run(t, f.repo.Dir, "count-objects"); !strings.HasPrefix(got, "5 objects") {
		t.Errorf("the repository has %s", got)
	}
	if got := gittest.Run(t, f.repo.Dir, "status", "--porcelain"); got != "" {
		t.Errorf("the work tree changed:\n%s", got)
	}
}

// TestOnlyTheExpectedRef has a bundle bring more than was asked for.
func TestOnlyTheExpectedRef(t *testing.T) {
	f := newFixture(t)
	b, other := blob("hello\n"), blob("smuggled\n")
	tr, otherTree := tree(treeEntry{"100644", "hello", b.name()}), tree(treeEntry{"100644", "x", other.name()})
	c := commit(tr.name(), f.base)
	smuggled := commit(otherTree.name(), f.base)
	refs := []Ref{{smuggled.name(), "refs/heads/main"}, {smuggled.name(), "-x"}, {smuggled.name(), "../../evil"}, {smuggled.name(), "--upload-pack=/bin/sh"}, {c.name(), "HEAD"},
		{smuggled.name(), "\x1b[2J"}, {smuggled.name(), "refs/replace/" + f.base}, {smuggled.name(), "HEAD"}}
	got, err := f.check(bundled(pack(b, other, tr, otherTree, c, smuggled), []string{f.base}, refs...), Caps{})
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Take(t.Context(), f.repo, "refs/hutch/box"); err != nil {
		t.Fatal(err)
	}
	want := "refs/heads/main " + f.base + "\nrefs/hutch/box " + c.name()
	if refs := gittest.Run(t, f.repo.Dir, "for-each-ref", "--format=%(refname) %(objectname)"); refs != want {
		t.Errorf("the refs are now\n%s", refs)
	}
	if ok, err := f.repo.Has(t.Context(), smuggled.name(), "x"); ok || err != nil {
		t.Errorf("what no expected ref leads to came along (%v)", err)
	}
}

// TestFindings are changes that come in only when the user allows it.
func TestFindings(t *testing.T) {
	f := newFixture(t)
	b, out, in := blob("x\n"), blob("/etc"), blob("README")
	tr := tree(treeEntry{"100644", ".envrc", b.name()}, treeEntry{"100644", ".gitattributes", b.name()}, treeEntry{"100755", "fine", b.name()}, treeEntry{"120000", "inside", in.name()},
		treeEntry{"120000", "outside", out.name()}, treeEntry{"100644", "readmE", b.name()}, treeEntry{"100644", "readme", b.name()})
	c := commit(tr.name(), f.base)
	got, err := f.check(bundled(pack(b, out, in, tr, c), []string{f.base}, Ref{c.name(), "HEAD"}), Caps{})
	if err != nil {
		t.Fatal(err)
	}
	type short struct {
		Path string
		Rule judge.Rule
	}
	var list []short
	for _, x := range got.Findings {
		list = append(list, short{x.Path, x.Rule})
	}
	want := []short{{".envrc", judge.Tools}, {".gitattributes", judge.Tools}, {"outside", judge.Links}, {"readme", judge.Collisions}}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"fine: it becomes executable (mode 0755)"}, got.Marks); diff != "" {
		t.Error(diff)
	}
}

// TestS3EmbeddedRepository brings a bare repository in a commit's tree: whole, split, beside parts that lie untracked
// in the work tree, and in a commit that the last one takes back.
func TestS3EmbeddedRepository(t *testing.T) {
	b := blob("x\n")
	dir := func(names ...string) object {
		var entries []treeEntry
		for _, n := range names {
			entries = append(entries, treeEntry{"100644", n, b.name()})
		}
		return tree(entries...)
	}
	sub := dir("x")
	whole := tree(treeEntry{"100644", "HEAD", b.name()}, treeEntry{"100644", "config", b.name()}, treeEntry{"40000", "objects", sub.name()}, treeEntry{"40000", "refs", sub.name()})
	split, rest := dir("HEAD", "commondir", "config.worktree"), dir("HEAD", "config")
	for name, c := range map[string]struct {
		dir  object
		want string
	}{
		"whole":      {whole, "b/HEAD b/config b/objects/x b/refs/x"},
		"commondir":  {split, "b/HEAD b/commondir b/config.worktree"},
		"its rest":   {rest, "b/HEAD b/config"},
		"taken back": {whole, "b/HEAD b/config b/objects/x b/refs/x"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			if name == "its rest" {
				write(t, filepath.Join(f.repo.Dir, "b/objects/x"), "x")
				write(t, filepath.Join(f.repo.Dir, "b/refs/x"), "x")
			}
			top := tree(treeEntry{"40000", "b", c.dir.name()})
			tip := commit(top.name(), f.base)
			objects := []object{b, sub, c.dir, top, tip}
			if name == "taken back" {
				tip = commit(sub.name(), tip.name())
				objects = append(objects, tip)
			}
			got, err := f.check(bundled(pack(objects...), []string{f.base}, Ref{tip.name(), "HEAD"}), Caps{})
			if err != nil {
				t.Fatal(err)
			}
			var list []string
			for _, x := range got.Findings {
				if x.Rule == judge.Git {
					list = append(list, x.Path)
				}
			}
			if g := strings.Join(list, " "); g != c.want {
				t.Errorf("found %q, want %q", g, c.want)
			}
		})
	}
}

func uvarint(v uint64) []byte {
	var b []byte
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

func manyCommits(base string, n int) []byte {
	b := blob("x\n")
	tr := tree(treeEntry{"100644", "x", b.name()})
	objects := []object{b, tr}
	parent := base
	for range n {
		c := commit(tr.name(), parent)
		objects, parent = append(objects, c), c.name()
	}
	return bundled(pack(objects...), []string{base}, Ref{parent, "HEAD"})
}

// deep is a file in a directory in a directory and so on.
func deep(base string, n int, b object) []byte {
	objects := []object{b}
	in := tree(treeEntry{"100644", "f", b.name()})
	for range n {
		objects = append(objects, in)
		in = tree(treeEntry{"40000", "d", in.name()})
	}
	c := commit(in.name(), base)
	return bundled(pack(append(objects, in, c)...), []string{base}, Ref{c.name(), "HEAD"})
}

// inBetween has a commit with an entry that the next one has not.
func inBetween(base string, e treeEntry, b object) []byte {
	bad, good := tree(e), tree(treeEntry{"100644", "x", b.name()})
	first := commit(bad.name(), base)
	second := commit(good.name(), first.name())
	return bundled(pack(b, bad, good, first, second), []string{base}, Ref{second.name(), "HEAD"})
}
