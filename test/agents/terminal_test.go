package agents

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/hutch-run/hutch/test/e2e"
)

// TestTerminal works with an agent at a terminal: it sees another size, a paste and ^C, and its changes are asked for
// when it has ended.
func TestTerminal(t *testing.T) {
	w := scripted(t, `
trap 'echo interrupted; hit=1' INT
echo "size $(stty size)"
until test "$(stty size)" = "50 100"; do sleep 0.05; done
echo resized
IFS= read -r a; IFS= read -r b
printf '%s|%s\n' "$a" "$b" > pasted.txt
echo pasted
until test "$hit"; do sleep 0.05; done
`)
	cmd := exec.Command(e2e.Hutch(), "agent", "mine")
	cmd.Dir, cmd.Env = w.project, append(w.env, "NO_COLOR=1", "TERM=xterm")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 120})
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	bound := time.AfterFunc(3*time.Minute, func() { _ = cmd.Process.Kill() })
	defer bound.Stop()
	r := bufio.NewReader(tty)
	await := func(text string) {
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
	send := func(text string) {
		t.Helper()
		if _, err := tty.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	await("size 40 120")
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 50, Cols: 100}); err != nil {
		t.Fatal(err)
	}
	await("resized")
	send("\x1b[200~first line\nsecond; line\x1b[201~\n")
	await("pasted\r\n")
	send("\x03")
	await("interrupted")
	await("[y,n,d,p,e,?]? ")
	send("y\n")
	for err == nil {
		_, err = r.ReadByte()
	}
	_ = cmd.Wait()
	data, err := os.ReadFile(filepath.Join(w.project, "pasted.txt"))
	if want := "\x1b[200~first line|second; line\x1b[201~\n"; err != nil || string(data) != want {
		t.Errorf("the project has %q, %v; want %q", data, err, want)
	}
}
