package agents

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/hutch-run/hutch/test/e2e"
)

// terminal is a user at a terminal of 120 columns and 40 lines.
type terminal struct {
	t    *testing.T
	tty  *os.File
	cmd  *exec.Cmd
	seen []byte // after what was last awaited
}

func (w *world) terminal(args ...string) *terminal {
	cmd := exec.Command(e2e.Hutch(), args...)
	cmd.Dir, cmd.Env = w.project, append(w.env, "NO_COLOR=1", "TERM=xterm-256color")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 120})
	if err != nil {
		w.t.Fatal(err)
	}
	bound := time.AfterFunc(10*time.Minute, func() { _ = cmd.Process.Kill() })
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		tty.Close()
		_ = cmd.Wait()
		bound.Stop()
	})
	return &terminal{t: w.t, tty: tty, cmd: cmd}
}

// controls are escape sequences, and white space: a program may move the cursor instead of writing it.
var controls = regexp.MustCompile(`\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b[\[(][0-9;?<>=]*[ -/]*[@-~]|\x1b[78=>]|\s`)

// await reads until the program has written one of texts, and returns the one that it wrote first. What it wrote after
// that is there for the next one.
func (x *terminal) await(texts ...string) string {
	x.t.Helper()
	b := make([]byte, 64<<10)
	for {
		if text, rest := first(x.seen, texts); text != "" {
			x.seen = rest
			return text
		}
		n, err := x.tty.Read(b)
		if err != nil {
			x.t.Fatalf("no %q in:\n%q", texts, x.seen)
		}
		if strings.Contains(string(b[:n]), "\x1b[6n") { // where is the cursor?
			x.send("\x1b[1;1R")
		}
		x.seen = append(x.seen, b[:n]...)
	}
}

// first finds the text that ends first in what was written, without controls, and what follows it.
func first(written []byte, texts []string) (found string, rest []byte) {
	var plain []byte
	var ends []int // of each byte of plain, in written
	at := 0
	for _, c := range append(controls.FindAllIndex(written, -1), []int{len(written), len(written)}) {
		for ; at < c[0]; at++ {
			plain, ends = append(plain, written[at]), append(ends, at+1)
		}
		at = c[1]
	}
	end := len(plain) + 1
	for _, text := range texts {
		want := controls.ReplaceAllString(text, "")
		if i := strings.Index(string(plain), want); i >= 0 && i+len(want) < end {
			end = i + len(want)
			found, rest = text, written[ends[end-1]:]
		}
	}
	return found, rest
}

func (x *terminal) send(text string) {
	x.t.Helper()
	if _, err := x.tty.WriteString(text); err != nil {
		x.t.Fatal(err)
	}
}

func (x *terminal) resize(rows, cols uint16) {
	x.t.Helper()
	if err := pty.Setsize(x.tty, &pty.Winsize{Rows: rows, Cols: cols}); err != nil {
		x.t.Fatal(err)
	}
}

// take answers that the changes are to be applied.
func (x *terminal) take() {
	x.await("[y,n,d,p,e,?]? ")
	x.send("y\n")
	b := make([]byte, 4096)
	for err := error(nil); err == nil; {
		_, err = x.tty.Read(b)
	}
	_ = x.cmd.Wait()
}

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
	x := w.terminal("agent", "mine")
	x.await("size 40 120")
	x.resize(50, 100)
	x.await("resized")
	x.send("\x1b[200~first line\nsecond; line\x1b[201~\n")
	x.await("pasted\r\n")
	x.send("\x03")
	x.await("interrupted")
	x.take()
	data, err := os.ReadFile(filepath.Join(w.project, "pasted.txt"))
	if want := "\x1b[200~first line|second; line\x1b[201~\n"; err != nil || string(data) != want {
		t.Errorf("the project has %q, %v; want %q", data, err, want)
	}
}

// workAtTerminal has an agent's own interface do the task, which is pasted, after Claude's terminal became wider, and
// ends it by ^C.
func workAtTerminal(t *testing.T, w *world, agent string, flags ...string) {
	x := w.terminal(append([]string{"agent", agent}, flags...)...)
	switch agent {
	case "claude":
		x.await("Do you want to use this API key?")
		x.send("1")
		x.await("bypass permissions on")
		x.resize(50, 150) // others may drop what is typed while they draw everything again, and show no end of that
		x.await(strings.Repeat("─", 150))
	case "codex":
		x.await("Ask Codex to do anything")
	case "gemini":
		x.await("Authenticated with") // what is typed before may be lost
		x.await("Type your message")
	case "opencode":
		x.await("Ask anything")
	}
	x.send("\x1b[200~" + task + "\x1b[201~")
	drawn := task[len(task)-9:] // only what differs from what stood there is drawn, and the end stands where nothing did
	x.await(drawn)
	x.send("\r")
	// Gemini CLI takes a return soon after a paste for a line of it, which it draws again, and one of nothing for nothing.
	for agent == "gemini" && x.await(drawn, "Type your message") == drawn {
		x.send("\r")
	}
	end := "The greeting is written."
	if agent == "codex" {
		end = "Worked for" // written together with the answer, or later; before it, codex may drop a ^C
	}
	x.await(end)
	x.send("\x03")
	if agent != "opencode" {
		said := x.await("again to exit", "Conversation interrupted", "Shutting down", "Request cancelled")
		if said == "Request cancelled" { // Gemini CLI, which had not seen the end of the answer
			x.send("\x03")
			x.await("again to exit")
		}
		if said != "Shutting down" { // Codex, between two turns
			x.send("\x03")
		}
	}
	x.take()
	if w.greeting() != greeting {
		t.Errorf("the project has %q", w.greeting())
	}
	w.nowhere()
}
