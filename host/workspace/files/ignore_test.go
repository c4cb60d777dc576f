package files

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestIgnored compares with git what .gitignore files say of a tree.
func TestIgnored(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{
		".gitignore": "# all\n\n*.log\n!keep.log\n/only-here\nbuild/\ndocs/*.html\na/**/z\nspace\\ \ntrail  \n\\#hash\n\\!bang\n{x}\nfoo/\r\n[ab]c\n",
		"x.log":      "", "keep.log": "", "sub/x.log": "", "only-here": "", "sub/only-here": "", "build/out": "", "sub/build/out": "", "file/build": "",
		"docs/i.html": "", "docs/sub/i.html": "", "sub/docs/i.html": "", "a/z": "", "a/b/z": "", "a/b/c/z": "", "space ": "", "trail": "", "#hash": "", "!bang": "", "{x}": "",
		"foo/1": "", "ac": "", "sub/bc": "", "cc": "", "sub/.gitignore": "!x.log\nown\n", "sub/own": "", "own": "", "sub/deep/x.log": "", "plain.txt": "",
	}
	var names []string
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	git := func(args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir, "GIT_CONFIG_NOSYSTEM=1")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %q: %v", args, err)
		}
		return string(out)
	}
	git("init", "-q")
	want := map[string]bool{}
	for _, name := range strings.Split(git("ls-files", "-z", "--others", "--ignored", "--exclude-standard"), "\x00") {
		want[name] = true
	}
	i := &ignorer{rules: map[string][]ignoreRule{}, read: func(file string) string { return files[file] }}
	for _, name := range names {
		got, parts := false, strings.Split(name, "/")
		for n := range parts {
			got = got || i.skips(strings.Join(parts[:n+1], "/"), n < len(parts)-1)
		}
		if got != want[name] {
			t.Errorf("%q: ignored %v, git says %v", name, got, want[name])
		}
	}
	if !i.skips(".git", true) || !i.skips("sub/.git", true) || i.skips(".", true) {
		t.Error(".git is not skipped, or the workspace is")
	}
}
