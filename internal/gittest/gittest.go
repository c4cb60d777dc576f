// Package gittest gives tests repositories, by the git of this machine and without anybody's settings.
package gittest

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Need skips the test where git is missing, and fails it where HUTCH_TEST_REQUIRE names git.
func Need(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		if slices.Contains(strings.Split(os.Getenv("HUTCH_TEST_REQUIRE"), ","), "git") {
			t.Fatal("HUTCH_TEST_REQUIRE lists git, and it is not installed")
		}
		t.Skip("git is not installed")
	}
}

// Run runs git in dir and returns what it printed, without the end of the last line. What fails fails the test.
func Run(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := Try(dir, args...)
	if err != nil {
		t.Fatalf("git %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// Try is Run for what may fail; the error has what git printed.
func Try(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	return strings.TrimSuffix(string(out), "\n"), err
}

// Commit makes dir a repository whose branch main has one commit of all that is there.
func Commit(t testing.TB, dir string) {
	t.Helper()
	Run(t, dir, "init", "-q", "-b", "main", ".")
	Run(t, dir, "add", "-A")
	Run(t, dir, "commit", "-q", "-m", "first")
}
