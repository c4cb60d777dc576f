package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
)

// pushable is a repository with a plan, and a run file beside it whose command is a shell script. It returns the run
// file's path and changes to the repository.
func pushable(t *testing.T, script string) string {
	t.Helper()
	requireTool(t, "git", "--version")
	dir := t.TempDir()
	repo := filepath.Join(dir, "repo")
	for name, content := range map[string]string{
		"repo/plan.md": "plan\n", "script": script,
		"run.hcl": "run \"live\" {\n  backend \"fake\" {}\n  file \"script\" { source = \"script\" }\n  command = [\"sh\", \"-c\", \"exec sh $HUTCH_INPUT/script\"]\n}\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"config", "user.name", "A"}, {"config", "user.email", "a@example.com"}, {"add", "-A"}, {"commit", "-q", "-m", "first"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = repo
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	t.Chdir(repo)
	return filepath.Join(dir, "run.hcl")
}

// TestPushInterrupted has ^C leave a sandbox that goes on: what was committed can be pulled, and the command run again.
func TestPushInterrupted(t *testing.T) {
	e := env(t, buildBackends(t, "fake")) // before the directory changes
	file := pushable(t, "set -e\nif [ -e again ]; then echo once more; exit 0; fi\ntouch again\ngit add again\ngit commit -q -m one\necho ready\nsleep 600\n")
	l := start(t, e, "push", "--name", "box", file, "plan.md")
	expect(t, l.stdout, "ready")
	if err := l.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for _, said := range []string{"hutch: stopping", "the sandbox box stays as it is", "hutch pull box brings what is committed in it", "hutch push --resume box runs the command again"} {
		expect(t, l.stderr, said)
	}
	l.end(t, 130)
	for _, tc := range []struct{ args, want string }{
		{"pull box", "1 commit, 1 file changed"},
		{"push --resume box", "once more"},
		{"rm box", ""},
	} {
		cmd := exec.Command("hutch", strings.Fields(tc.args)...)
		cmd.Env = e
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), tc.want) {
			t.Errorf("hutch %s: %v\n%s", tc.args, err, out)
		}
	}
}

// TestPushInterruptedEarly has ^C come while the sandbox is made: nothing is left then.
func TestPushInterruptedEarly(t *testing.T) {
	e := env(t, buildBackends(t, "fake")) // before the directory changes
	file := pushable(t, "")
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	slow := strings.Replace(string(src), `backend "fake" {}`, "backend \"fake\" {\n    create_delay = \"10m\"\n  }", 1)
	if err := os.WriteFile(file, []byte(slow), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("hutch", "push", "--name", "box", file, "plan.md")
	cmd.Env = e
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 120}) // on which progress is shown
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	r := bufio.NewReader(tty)
	waitFor(t, r, "waiting, as the block says")
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, r)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("ended with %v, want 130", err)
	}
	ps := exec.Command("hutch", "ps", "-q")
	ps.Env = e
	if out, err := ps.CombinedOutput(); err != nil || len(out) != 0 {
		t.Errorf("a sandbox is left: %v\n%s", err, out)
	}
}

// waitFor reads until text has come, which need not end a line.
func waitFor(t *testing.T, r io.Reader, text string) {
	t.Helper()
	var seen strings.Builder
	for b := make([]byte, 1); !strings.HasSuffix(seen.String(), text); {
		if _, err := r.Read(b); err != nil {
			t.Fatalf("no %q in:\n%s", text, &seen)
		}
		seen.Write(b)
	}
}

// TestPushOnTerminal gives the command the terminal, so that a person can step in.
func TestPushOnTerminal(t *testing.T) {
	e := env(t, buildBackends(t, "fake")) // before the directory changes
	file := pushable(t, "set -e\ntest -t 0\necho \"a terminal of $(stty size)\"\nread answer\necho \"$answer\" > answer\ngit add answer\ngit commit -q -m \"$answer\"\n")
	cmd := exec.Command("hutch", "push", "--name", "box", file, "plan.md")
	cmd.Env = e
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 77})
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	r := bufio.NewReader(tty)
	expect(t, r, "a terminal of 33 77")
	if _, err := tty.WriteString("typed\r"); err != nil {
		t.Fatal(err)
	}
	expect(t, r, "hutch pull box")
	_, _ = io.Copy(io.Discard, r)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	pull := exec.Command("hutch", "pull", "box")
	pull.Env = e
	if out, err := pull.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got, err := os.ReadFile("answer"); err != nil || string(got) != "typed\n" {
		t.Errorf("%q %v", got, err)
	}
}
