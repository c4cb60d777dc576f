package ignore

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// walk returns what is sent of the tree at dir.
func walk(t *testing.T, dir string, names ...string) []string {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	rules := New(root, names...)
	out := []string{}
	err = filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, p)
		switch {
		case err != nil:
			return err
		case rel == ".":
			return nil
		case rel == ".git":
			return filepath.SkipDir
		case rules.Skip(rel, d.IsDir()) && d.IsDir():
			return filepath.SkipDir
		case !rules.Skip(rel, d.IsDir()) && !d.IsDir():
			out = append(out, rel)
		}
		return nil
	})
	if err == nil {
		err = rules.Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	p := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestRules(t *testing.T) {
	files := []string{"a.log", "keep.log", "build/x", "src/build/x", "src/a.log", "src/deep/er/a.txt", "doc/a.txt", "doc/frotz/a.txt", "odd {x}", "trail ", "#sharp", "!bang"}
	cases := []struct{ name, rules, gone string }{
		{"nothing", "", ""},
		{"comments and blanks", "# a.log\n\n   \n", ""},
		{"a name anywhere", "*.log", "a.log keep.log src/a.log"},
		{"kept again", "*.log\n!keep.log", "a.log src/a.log"},
		{"a directory anywhere", "build/", "build/x src/build/x"},
		{"a directory at the top", "/build", "build/x"},
		{"a slash inside binds to the top", "doc/frotz", "doc/frotz/a.txt"},
		{"what is below stays gone", "doc/\n!doc/a.txt", "doc/a.txt doc/frotz/a.txt"},
		{"what is in a directory", "doc/**\n!doc/a.txt", "doc/frotz/a.txt"},
		{"any depth between", "src/**/a.txt", "src/deep/er/a.txt"},
		{"a class", "[!s]*.log", "a.log keep.log src/a.log"},
		{"braces are plain", "odd {x}\n{a.log,keep.log}", "odd {x}"},
		{"a space at the end", "trail\\ ", "trail "},
		{"a space at the end that does not count", "a.log   ", "a.log src/a.log"},
		{"escapes", "\\#sharp\n\\!bang", "!bang #sharp"},
		{"carriage returns", "a.log\r\nkeep.log\r\n", "a.log keep.log src/a.log"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range files {
				write(t, dir, f, "x")
			}
			write(t, dir, Git, c.rules)
			want := []string{Git}
			for _, f := range files {
				if !slices.Contains(splitNames(c.gone), f) {
					want = append(want, f)
				}
			}
			slices.Sort(want)
			if diff := cmp.Diff(want, walk(t, dir, Git)); diff != "" {
				t.Errorf("what is sent (-want +got):\n%s", diff)
			}
		})
	}
}

// splitNames splits a list of the files of TestRules, some of which have a space in them.
func splitNames(s string) []string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, "odd {x}", "odd\x00{x}"), "trail ", "trail\x00")
	var out []string
	for _, f := range strings.Fields(s) {
		out = append(out, strings.ReplaceAll(f, "\x00", " "))
	}
	return out
}

func TestHutchignoreCountsMore(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []string{"dist/x", "data/big", "sub/y", "sub/z"} {
		write(t, dir, f, "x")
	}
	write(t, dir, Git, "dist/\n")
	write(t, dir, Hutch, "!dist/\ndata/\n")
	write(t, dir, "sub/"+Hutch, "z\n")
	want := []string{Git, Hutch, "dist/x", "sub/" + Hutch, "sub/y"}
	if diff := cmp.Diff(want, walk(t, dir, Git, Hutch)); diff != "" {
		t.Errorf("what is sent (-want +got):\n%s", diff)
	}
}

// A file of rules that cannot be read is an error: taking it for empty would send what it was to hold back.
func TestUnreadableRules(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, Hutch, strings.Repeat("x\n", maxFile))
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	r := New(root, Git, Hutch)
	r.Skip("x", false)
	if r.Err() == nil {
		t.Error("a file of rules of two megabytes was taken for none")
	}
}

// TestLikeGit compares random rules over random trees with git's own answer. Two stars beside another character are
// left out: git takes them for one star or for more, depending on where its pattern lies in memory.
func TestLikeGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		if slices.Contains(strings.Split(os.Getenv("HUTCH_TEST_REQUIRE"), ","), "git") {
			t.Fatal(err)
		}
		t.Skip("there is no git to compare with")
	}
	names := []string{"a", "b", "ab", "a.o", "c.o", "x y"}
	atoms := []string{"a", "b", "ab", "*", "?", "*.o", "a*", "[ab]", "[!a]", "**", "x y", "c.o", "\\a"}
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 60 {
		dir := t.TempDir()
		for range 25 {
			var parts []string
			for range 1 + r.IntN(4) {
				parts = append(parts, names[r.IntN(len(names))])
			}
			p := filepath.Join(append([]string{dir}, parts...)...)
			if os.MkdirAll(filepath.Dir(p), 0o755) == nil {
				_ = os.WriteFile(p, nil, 0o644) // where a directory stands already, none is needed
			}
		}
		rules := ""
		for range 1 + r.IntN(5) {
			var parts []string
			for range 1 + r.IntN(3) {
				parts = append(parts, atoms[r.IntN(len(atoms))])
			}
			rules += []string{"", "", "!"}[r.IntN(3)] + []string{"", "/"}[r.IntN(2)] + strings.Join(parts, "/") + []string{"", "", "/"}[r.IntN(3)] + "\n"
		}
		write(t, dir, Git, rules)
		if r.IntN(2) == 0 {
			for _, d := range []string{"a", "b"} {
				if st, err := os.Stat(filepath.Join(dir, d)); err == nil && st.IsDir() {
					write(t, dir, d+"/"+Git, rules)
				}
			}
		}
		env := append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		run := func(args ...string) []byte {
			cmd := exec.Command(git, args...)
			cmd.Dir, cmd.Env = dir, env
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("git %v: %v", args, err)
			}
			return out
		}
		run("init", "-q")
		want := []string{}
		for f := range bytes.SplitSeq(bytes.TrimSuffix(run("ls-files", "-z", "--others", "--exclude-standard"), []byte{0}), []byte{0}) {
			if len(f) > 0 {
				want = append(want, string(f))
			}
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, walk(t, dir, Git)); diff != "" {
			t.Errorf("round %d: what is sent (-git +ours) by the rules\n%s\n%s", round, rules, diff)
		}
	}
}

func FuzzSkip(f *testing.F) {
	for _, s := range [][2]string{{"*.o\n!a.o\n/build/\n", "a/b.o"}, {"\\#x\n[a-\n**/\n", "x"}, {"a/**/b", "a/b"}, {"{a,b}*?[!c]\\", "ab"}, {strings.Repeat("*", 40), "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, rules, p string) {
		for _, r := range parse(rules) {
			if r.matches(p, false) && !r.matches(p, true) {
				t.Fatalf("%+v matches %q unless it is a directory", r, p)
			}
		}
	})
}
