package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// TestApplyAsks answers the questions of `hutch run --apply=ask` at a terminal.
func TestApplyAsks(t *testing.T) {
	const script = `echo sandbox > a; echo new > b; rm gone`
	for _, c := range []struct {
		name    string
		flags   []string
		editor  string
		talk    []string // a question, and the answer to it, in turn
		project string   // afterwards: a, b, gone
		code    int
		left    int // sandboxes
	}{
		{name: "yes", talk: []string{"[y,n,d,p,e,?]?", "y"}, project: "sandbox new -"},
		{name: "no drops it", talk: []string{"[y,n,d,p,e,?]?", "n"}, project: "old - g"},
		{name: "the difference, help, and yes", talk: []string{"3 paths changed", "d", "+sandbox", "what", "drop it", "y"}, project: "sandbox new -"},
		{name: "hunk by hunk", talk: []string{"[y,n,d,p,e,?]?", "p", "Apply this hunk", "y", "Apply this addition", "n", "Apply this deletion", "y"}, project: "sandbox - -"},
		{name: "in an editor", editor: "sed -i -e /^b$/d", talk: []string{"[y,n,d,p,e,?]?", "e"}, project: "sandbox - -"},
		{name: "hunks in an editor", editor: "sed -i -e 's/^a$/a:1/' -e /^gone/d", talk: []string{"[y,n,d,p,e,?]?", "e"}, project: "sandbox new g"},
		{name: "an editor that fails", editor: "false", talk: []string{"[y,n,d,p,e,?]?", "e"}, project: "old - g", code: 125, left: 1},
		{name: "L5 the program had the terminal", flags: []string{"-it"}, talk: []string{"[y,n,d,p,e,?]?", "y"}, project: "sandbox new -"},
		{name: "L5 the program had stdin", flags: []string{"-i"}, talk: []string{"[y,n,d,p,e,?]?", "y"}, project: "sandbox new -"},
		{name: "nobody there", talk: []string{"[y,n,d,p,e,?]?", "\x04"}, project: "old - g", code: 125, left: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := env(t, buildBackends(t, "fake"))
			project := t.TempDir()
			for name, text := range map[string]string{"a": "old\n", "gone": "g\n"} {
				if err := os.WriteFile(project+"/"+name, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command("hutch", append(append([]string{"run", "--backend", "fake", "--workspace", project, "--apply=ask"}, c.flags...), "--", "sh", "-c", script)...)
			cmd.Env = append(e, "NO_COLOR=1", "VISUAL="+c.editor)
			tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 120})
			if err != nil {
				t.Fatal(err)
			}
			defer tty.Close()
			bound := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
			defer bound.Stop()
			r := bufio.NewReader(tty)
			for i := 0; i < len(c.talk); i += 2 {
				await(t, r, c.talk[i])
				answer := c.talk[i+1]
				if answer != "\x04" {
					answer += "\n"
				}
				if _, err := tty.WriteString(answer); err != nil {
					t.Fatal(err)
				}
			}
			rest, _ := io.ReadAll(r)
			err = cmd.Wait()
			var ended *exec.ExitError
			if err != nil && !errors.As(err, &ended) || cmd.ProcessState.ExitCode() != c.code {
				t.Errorf("ended with %v, want %d: %s", err, c.code, rest)
			}
			var got []string
			for _, name := range []string{"a", "b", "gone"} {
				b, err := os.ReadFile(project + "/" + name)
				if err != nil {
					b = []byte("-")
				}
				got = append(got, strings.TrimSpace(string(b)))
			}
			if g := strings.Join(got, " "); g != c.project {
				t.Errorf("the project has %q, want %q: %s", g, c.project, rest)
			}
			ps := exec.Command("hutch", "ps", "-q")
			ps.Env = e
			out, err := ps.Output()
			if err != nil || strings.Count(string(out), "\n") != c.left {
				t.Errorf("%d sandboxes are left, want %d: %s %v", strings.Count(string(out), "\n"), c.left, out, err)
			}
		})
	}
}

// await reads until text was there, which need not end a line.
func await(t *testing.T, r *bufio.Reader, text string) {
	t.Helper()
	var seen strings.Builder
	for !strings.HasSuffix(seen.String(), text) {
		b, err := r.ReadByte()
		if err != nil {
			t.Fatalf("no %q in:\n%s", text, &seen)
		}
		seen.WriteByte(b)
	}
}
