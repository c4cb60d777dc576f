package overlay

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// The lower directory that most tests change.
func makeLower(t testing.TB, dir string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"src/deep/er", "empty", "gone/sub", "opaque", "swap", "modedir"} {
		must(os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	for path, content := range map[string]string{
		"README": "read me\n", "same": "same\n", "src/a.py": "print(1)\n", "src/deep/er/b.py": "print(2)\n",
		"gone/x": "x", "gone/sub/y": "y", "opaque/old1": "1", "opaque/old2": "2", "opaque/kept": "k", "run.sh": "#!/bin/sh\n",
		"todir": "file", "swap/in": "i", "base": "hidden?", "exact": "AAAA", "moved": "moved content", "zero": "",
	} {
		must(os.WriteFile(filepath.Join(dir, path), []byte(content), 0o644))
	}
	must(os.Symlink("README", filepath.Join(dir, "link")))
	must(os.Symlink("src", filepath.Join(dir, "linkdir")))
	must(os.Link(filepath.Join(dir, "README"), filepath.Join(dir, "hard")))
}

// script is what a program does to the directory; every kind of change and every disguise is in it.
const script = `set -e
echo new > added.txt
mkdir -p newdir/sub; echo n > newdir/sub/f; ln -s /etc/passwd newdir/evil
echo changed > README
touch same; chmod 644 same; cat same > /dev/null; cp same same.tmp; cat same.tmp > same; rm same.tmp
echo more >> src/deep/er/b.py
rm -r gone
rm -r opaque; mkdir opaque; echo k2 > opaque/fresh; printf k > opaque/kept
chmod 755 run.sh
chmod 700 modedir
rm todir; mkdir todir; echo in > todir/inside
rm -r swap; echo file now > swap
ln -sfn src/a.py link
ln -sfn src linkdir
touch .wh.base
printf BBBB > exact.new; touch -r exact exact.new; cat exact.new > exact; touch -r exact.new exact; rm exact.new
mv moved elsewhere
mkfifo pipe
echo z >> zero; : > zero
rm empty -r; mkdir empty
ln hard hard2
mkdir wild; cd wild; printf x > "$(printf 'new\nline')"; printf x > "$(printf '\377\376')"; printf x > '-rf'
`

// want is what script changes.
func want(t *testing.T) []string {
	return strings.Split(strings.TrimSpace(`
added    .wh.base
added    added.txt
modified README
added    elsewhere
modified exact
added    hard2
symlink  link
mode     modedir
deleted  gone
deleted  gone/sub
deleted  gone/sub/y
deleted  gone/x
deleted  moved
added    newdir
added    newdir/evil
added    newdir/sub
added    newdir/sub/f
added    opaque/fresh
deleted  opaque/old1
deleted  opaque/old2
added    pipe
mode     run.sh
modified src/deep/er/b.py
type     swap
deleted  swap/in
type     todir
added    todir/inside
added    wild
added    wild/-rf
added    wild/new|line
added    wild/%FF%FE
`), "\n")
}

func show(changes []Change) []string {
	var out []string
	for _, c := range changes {
		p := strings.NewReplacer("\n", "|", "\xff\xfe", "%FF%FE").Replace(c.Path)
		out = append(out, fmt.Sprintf("%-8s %s", c.Kind, p))
	}
	return out
}

func root(t testing.TB, dir string) *os.Root {
	t.Helper()
	r, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// layers are the directories of an overlay mount.
type layers struct{ lower, upper, work, merged string }

func newLayers(t testing.TB) layers {
	t.Helper()
	top := t.TempDir()
	l := layers{top + "/lower", top + "/upper", top + "/work", top + "/merged"}
	t.Cleanup(func() { os.Chmod(l.work+"/work", 0o700) }) // the kernel makes it for nobody, and it is to be removed
	for _, d := range []string{l.lower, l.upper, l.work, l.merged} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// run runs script in the overlay, mounted with the given options inside a mount namespace that dies with it.
func (l layers) run(t testing.TB, options, script string) {
	t.Helper()
	mount := fmt.Sprintf("mount -t overlay overlay -o lowerdir=%s,upperdir=%s,workdir=%s,%s %s && cd %s\n", l.lower, l.upper, l.work, options, l.merged, l.merged)
	args := []string{"--mount", "--propagation", "private", "/bin/sh", "-c", mount + script}
	if os.Geteuid() != 0 || strings.Contains(options, "userxattr") {
		args = append([]string{"--user", "--map-root-user"}, args...)
	}
	out, err := exec.Command("unshare", args...).CombinedOutput()
	if err == nil {
		return
	}
	msg := fmt.Sprintf("overlay with %s: %v: %s", options, err, out)
	if strings.Contains(string(out), "mount:") && !slices.Contains(strings.Split(os.Getenv("HUTCH_TEST_REQUIRE"), ","), "overlay") {
		t.Skip(msg)
	}
	t.Fatal(msg)
}

func sortedShow(lines []string) []string {
	out := slices.Clone(lines)
	slices.SortFunc(out, func(a, b string) int { return strings.Compare(a[9:], b[9:]) })
	return out
}

func TestChangesOfARealOverlay(t *testing.T) {
	for name, c := range map[string]struct {
		options string
		trusted bool
	}{
		"in a user namespace": {options: "userxattr"},
		"by root":             {options: "redirect_dir=off,metacopy=off", trusted: true},
		"indexed":             {options: "redirect_dir=off,metacopy=off,index=on", trusted: true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.trusted && os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			l := newLayers(t)
			makeLower(t, l.lower)
			l.run(t, c.options, script)
			got, err := Changes(context.Background(), root(t, l.lower), root(t, l.upper), Options{Trusted: c.trusted})
			if err != nil {
				t.Fatal(err)
			}
			expect := want(t)
			if name == "indexed" {
				// With an index hard links stay linked when they are copied up, so both names changed.
				expect = append(expect, "modified hard")
			}
			if diff := cmp.Diff(sortedShow(expect), sortedShow(show(got))); diff != "" {
				t.Error(diff)
			}
			if !slices.IsSortedFunc(got, func(a, b Change) int { return strings.Compare(a.Path, b.Path) }) {
				t.Error("not in path order")
			}
		})
	}
}

// TestChangesBelowAReplacedDirectory makes directories again whose parent is a new one: only that is marked.
func TestChangesBelowAReplacedDirectory(t *testing.T) {
	l := newLayers(t)
	makeLower(t, l.lower)
	l.run(t, "userxattr", "rm -r src; mkdir -p src/deep/er; echo n > src/deep/er/new")
	want := []string{"deleted  src/a.py", "deleted  src/deep/er/b.py", "added    src/deep/er/new"}
	if diff := cmp.Diff(want, show(changesOf(t, l.lower, l.upper, false))); diff != "" {
		t.Error(diff)
	}
}

// TestDifferencesTellWhatWasBelow is about many directories, so that several goroutines walk.
func TestDifferencesTellWhatWasBelow(t *testing.T) {
	l := newLayers(t)
	for i := range 6 {
		makeLower(t, fmt.Sprintf("%s/%d/sub", l.lower, i))
	}
	l.run(t, "userxattr", "for d in */sub; do (cd $d\n"+script+"\n) || exit 1; done")
	lower := root(t, l.lower)
	got, err := Differences(t.Context(), lower, root(t, l.upper), Options{})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := Changes(t.Context(), lower, root(t, l.upper), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(plain) || len(got) < 6*len(want(t)) {
		t.Fatalf("%d differences and %d changes, want the same number, and %d for each of 6", len(got), len(plain), len(want(t)))
	}
	for i, d := range got {
		if d.Change != plain[i] {
			t.Errorf("%d: the difference is %+v and the change %+v", i, d.Change, plain[i])
		}
		var st unix.Stat_t
		var below safefile.Stat
		if unix.Lstat(filepath.Join(l.lower, d.Path), &st) == nil {
			below = safefile.StatOf(&st)
		}
		if !d.Seen || d.Lower != below {
			t.Errorf("%s: seen %v, below is %+v, want %+v", d.Path, d.Seen, d.Lower, below)
		}
	}
}

func TestSnapshotSeesTheSame(t *testing.T) {
	dir := t.TempDir()
	makeLower(t, dir)
	o := Options{Contents: true}
	s, err := Take(context.Background(), root(t, dir), o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := s.Changes(context.Background(), root(t, dir), o)
	if err != nil {
		t.Fatal(err)
	}
	// Written in place, a hard link shares what is written to it, which copying up undoes in an overlay.
	expect := append(want(t), "modified hard")
	if diff := cmp.Diff(sortedShow(expect), sortedShow(show(got))); diff != "" {
		t.Error(diff)
	}
}

func TestSnapshotWithoutContents(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"same", "touched", "forged", "mode", "bigger"} {
		if err := os.WriteFile(dir+"/"+n, []byte("AAAA"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Take(context.Background(), root(t, dir), Options{})
	if err != nil {
		t.Fatal(err)
	}
	// The kernel's clock for change times ticks every few milliseconds.
	var st unix.Stat_t
	unix.Stat(dir+"/same", &st)
	for before := st.Ctim; ; {
		if err := os.WriteFile(dir+"/tick", nil, 0o644); err != nil {
			t.Fatal(err)
		}
		unix.Stat(dir+"/tick", &st)
		os.Remove(dir + "/tick")
		if st.Ctim.Nano()-before.Nano() > int64(20*time.Millisecond) {
			break
		}
	}
	cmd := exec.Command("/bin/sh", "-ec", `touch touched; chmod 600 mode; echo more >> bigger
		touch -r forged stamp; printf BBBB > forged; touch -r stamp forged; rm stamp`)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := s.Changes(context.Background(), root(t, dir), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"modified bigger", "modified forged", "mode     mode", "modified touched"}, show(got)); diff != "" {
		t.Error(diff)
	}
}

func TestModesAndSizes(t *testing.T) {
	l := newLayers(t)
	makeLower(t, l.lower)
	l.run(t, "userxattr", "chmod 4711 run.sh; printf 12345 > five; rm README; mkdir -m 1777 sticky")
	got, err := Changes(context.Background(), root(t, l.lower), root(t, l.upper), Options{})
	if err != nil {
		t.Fatal(err)
	}
	expect := []Change{
		{Path: "README", Kind: Deleted, OldMode: 0o644},
		{Path: "five", Kind: Added, NewMode: 0o644, Size: 5},
		{Path: "run.sh", Kind: Mode, OldMode: 0o644, NewMode: 0o711 | fs.ModeSetuid, Size: 10},
		{Path: "sticky", Kind: Added, NewMode: 0o777 | fs.ModeSticky | fs.ModeDir},
	}
	if diff := cmp.Diff(expect, got); diff != "" {
		t.Error(diff)
	}
}

// bigUpper is n entries in 100 directories; half of them new, half copied up, of which every tenth differs.
func bigUpper(b *testing.B, n int) layers {
	l := newLayers(b)
	body := strings.Repeat("line of a source file\n", 100)
	for i := range n {
		for _, top := range []string{l.upper, l.lower} {
			if top == l.lower && i%2 == 0 {
				continue
			}
			d := fmt.Sprintf("%s/d%02d", top, i%100)
			os.MkdirAll(d, 0o755)
			text := body
			if top == l.upper && i%20 == 1 {
				text = strings.Replace(body, "source", "change", 1)
			}
			if err := os.WriteFile(fmt.Sprintf("%s/f%d", d, i), []byte(text), 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	return l
}

func BenchmarkChanges(b *testing.B) {
	l := bigUpper(b, 10_000)
	b.Run("changes", func(b *testing.B) {
		for b.Loop() {
			if _, err := Changes(context.Background(), root(b, l.lower), root(b, l.upper), Options{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("snapshot", func(b *testing.B) {
		for b.Loop() {
			if _, err := Take(context.Background(), root(b, l.upper), Options{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("diff -rq", func(b *testing.B) {
		for b.Loop() {
			exec.Command("diff", "-rq", l.lower, l.upper).Run()
		}
	})
}
