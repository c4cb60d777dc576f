// Package gitattack has what the tests of backends do to the git repositories in a shared workspace.
package gitattack

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const settings = `printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = touch ran;:\n' `

// Attacks are shell scripts for the directory of a [Project]. Each makes the host's next git status run a program.
var Attacks = map[string]string{
	"commondir": `mkdir c; cp -r .git/objects .git/refs c; ` + settings +
		`> c/config; echo ../c > .git/commondir`,
	"gitlink": `cp new-index .git/index; mkdir new; cp -r sub/.git new/.git; ` + settings +
		`> new/.git/config`,
	"uninitialised":       `cp -r sub/.git lib/.git; ` + settings + `> lib/.git/config`,
	"nested":              `mv sub/.git sub/old; cp -r sub/old sub/.git; ` + settings + `> sub/.git/config`,
	"directory":           `mv sub moved; cp -r moved sub; ` + settings + `> sub/.git/config`,
	"ancestor":            `mv a moved; cp -r moved a; ` + settings + `> a/b/.git/config`,
	"moved":               `mv .git moved; cp -r moved .git; ` + settings + `> .git/config`,
	"removed":             `cp -r .git copy; rm -rf .git; mv copy .git; ` + settings + `> .git/config`,
	"bare":                settings + `> bare/config; echo '	worktree = .' >> bare/config`,
	"hooks and config":    settings + `> .git/config`,
	"settings of a clone": settings + `> a/b/.git/config`,
}

// Project returns a directory with a repository that has one commit, a submodule sub, another submodule lib that is not
// cloned, a nested repository a/b and a bare repository.
func Project(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, args := range [][]string{
		{"init", "-q", "sub"}, {"-C", "sub", "commit", "-q", "--allow-empty", "-m", "first"},
		{"init", "-q", "a/b"}, {"init", "-q", "--bare", "bare"}, {"init", "-q", "."},
		{"-c", "advice.addEmbeddedRepo=false", "add", "sub"}, {"commit", "-q", "-m", "first"},
	} {
		Git(t, dir, args...)
	}
	commit := Git(t, dir, "-C", "sub", "rev-parse", "HEAD")[:40]
	Git(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+commit+",lib")
	Git(t, dir, "commit", "-q", "-m", "second")
	index, err := os.ReadFile(dir + "/.git/index")
	if err == nil {
		Git(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+commit+",new")
		err = os.Rename(dir+"/.git/index", dir+"/new-index")
	}
	if err == nil {
		err = os.WriteFile(dir+"/.git/index", index, 0o644)
	}
	if err == nil {
		err = os.Mkdir(dir+"/lib", 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Git runs the host's git in dir, without the settings of its user.
func Git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := git(dir, args...)
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return out
}

func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-c", "user.name=n", "-c", "user.email=e"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Ran runs the host's git status in each repository of the project, and reports whether that ran an attack's program.
func Ran(dir string) bool {
	for _, repository := range []string{".", "sub", "a/b", "bare"} {
		_, _ = git(filepath.Join(dir, repository), "status")
	}
	found, _ := filepath.Glob(dir + "/ran")
	below, _ := filepath.Glob(dir + "/*/ran")
	deep, _ := filepath.Glob(dir + "/*/*/ran")
	return len(found)+len(below)+len(deep) > 0
}
