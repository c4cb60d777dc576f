package loops

import (
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"

	"github.com/hutch-run/hutch/internal/pypitest"
	"github.com/hutch-run/hutch/test/e2e"
)

// person sits at a terminal in which hutch runs.
type person struct {
	cmd *exec.Cmd
	tty *os.File
	out chan struct{} // closed at the terminal's end

	mu   sync.Mutex
	text strings.Builder
	read int // how much of it was expected already
}

// sit starts hutch in a terminal.
func (w *world) sit(t *testing.T, args ...string) *person {
	t.Helper()
	p := &person{cmd: w.command(args...), out: make(chan struct{})}
	var err error
	if p.tty, err = pty.StartWithSize(p.cmd, &pty.Winsize{Rows: 40, Cols: 200}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has ended, but in a test that failed
		p.tty.Close()
	})
	go func() {
		defer close(p.out)
		for b := make([]byte, 4096); ; {
			n, err := p.tty.Read(b)
			p.mu.Lock()
			p.text.Write(b[:n])
			p.mu.Unlock()
			if err != nil { // EIO, when the last process has closed the terminal
				return
			}
		}
	}()
	return p
}

// seen is all that the terminal showed.
func (p *person) seen() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// expect waits until the terminal shows something, after what was expected before.
func (p *person) expect(t *testing.T, text string) {
	t.Helper()
	found := false
	e2e.Eventually(bound, func() bool {
		ended := false
		select {
		case <-p.out:
			ended = true
		default:
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		i := strings.Index(p.text.String()[p.read:], text)
		if found = i >= 0; found {
			p.read += i + len(text)
		}
		return found || ended
	})
	if !found {
		t.Fatalf("no %q in:\n%s", text, p.seen())
	}
}

// types presses keys.
func (p *person) types(t *testing.T, keys string) {
	t.Helper()
	if _, err := p.tty.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// end waits for the end of hutch; -1 is that of one that was killed.
func (p *person) end(t *testing.T, code int) {
	t.Helper()
	<-p.out
	var ended *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("hutch ended with %d, want %d:\n%s", got, code, p.seen())
	}
}

const ctrlC = "\x03"

// program is an answer with a program for sh.
func program(line string) string {
	return "-- answer --\nEntrypoint: main.sh\n\n```sh path=main.sh\n" + line + "\n```\n"
}

const hang = "-- answer --\nnever\n-- fault --\nhang\n"

const generateBlock = `generate "g" {
  task     = "Say ready."
  language = "shell"
  backend "bwrap" {}
  limits { timeout = "10m" }
}
`

var recordID = regexp.MustCompile(`\d{6}-\d{6}-[0-9a-z]{6}`)

// ^C ends a generate in order, whether it waits for the model or for a program.
func TestInterruptGenerate(t *testing.T) {
	t.Run("the model", func(t *testing.T) {
		w := newWorld(t, os.Getuid())
		v := serve(t, "", hang)
		w.write(t, "g.hcl", local(v)+generateBlock)
		p := w.sit(t, "generate", "g.hcl")
		if !e2e.Eventually(bound, func() bool { return v.Used() == 1 }) {
			t.Fatalf("the model is not asked:\n%s", p.seen())
		}
		p.types(t, ctrlC)
		p.end(t, 130)
		w.interrupted(t, p)
	})
	t.Run("the program", func(t *testing.T) {
		w := newWorld(t, os.Getuid())
		w.write(t, "g.hcl", local(serve(t, "", program("echo ready; sh -c ': "+w.mark+"; sleep 600'")+hang))+generateBlock)
		p := w.sit(t, "generate", "g.hcl")
		p.expect(t, "ready")
		w.begun(t)
		p.types(t, ctrlC)
		p.end(t, 130)
		w.interrupted(t, p)
	})
}

// interrupted checks what an interrupted generate leaves.
func (w *world) interrupted(t *testing.T, p *person) {
	t.Helper()
	w.gone(t)
	id := recordID.FindString(p.seen())
	if tree, _ := w.hutch(t, 0, "show", "--tree", id); !strings.Contains(strings.SplitN(tree, "\n", 2)[0], "cancelled") {
		t.Errorf("the record does not say that it was interrupted:\n%s", tree)
	}
	w.hutch(t, 0, "audit", "verify")
	if out, _ := w.hutch(t, 0, "ps", "-q"); out != "" { // gc would also count what other tests leave on this machine
		t.Errorf("something was left: %s", out)
	}
}

// ^C ends a cycle in order: the command dies, and what was done until then is in the sandbox.
func TestInterruptCycle(t *testing.T) {
	w := newWorld(t, os.Getuid())
	w.write(t, "project/go", "", "spec.md", "Write b.txt.\n", "c.hcl", w.cycleFile(local(serve(t, "", `-- answer --
-- call write_file --
{"path": "b.txt", "content": "b\n"}
-- call run_command --
{"command": ": `+w.mark+`; sleep 600"}
-- call write_file --
{"path": "c.txt", "content": "c\n"}
`))))
	p := w.sit(t, "cycle", "c.hcl", "--id", "1", "--apply=on-success")
	p.expect(t, "write_file")
	w.begun(t)
	p.types(t, ctrlC)
	p.expect(t, "sync-back")
	p.expect(t, "A b.txt")
	p.expect(t, "cycle 1: interrupted")
	p.end(t, 130)
	w.gone(t)
	box := begins.FindStringSubmatch(p.seen())[2]
	if out, _ := w.hutch(t, 0, "diff", "--name-only", box); out != "b.txt\n" {
		t.Errorf("the sandbox has %q", out)
	}
	if w.read(t, "project/b.txt") != "" {
		t.Error("an interrupted cycle was applied")
	}
	_, said := w.hutch(t, 125, "cycle", "--resume", recordID.FindString(p.seen()))
	if !strings.Contains(said, "has ended (interrupted)") || !strings.Contains(said, "hutch apply "+box+" brings it back") {
		t.Errorf("what to do with it is not said:\n%s", said)
	}
	w.hutch(t, 0, "apply", box)
	if w.read(t, "project/b.txt") != "b\n" {
		t.Error("what was done cannot be brought back")
	}
	w.hutch(t, 0, "rm", box)
	w.hutch(t, 0, "audit", "verify")
}

// TestAskedForDependencies has a program ask for a package: a person says no, and then yes, and it is installed from an
// index of this machine.
func TestAskedForDependencies(t *testing.T) {
	needPip(t)
	index := pypitest.New(t, "hutchprobe", "1.2", "def f(): return 'installed'\n")
	srv := httptest.NewServer(index)
	t.Cleanup(srv.Close)
	const block = `generate "g" {
  task     = "Say what hutchprobe says."
  language = "python"
  backend "bwrap" {}
  expect {
    stdout { contains = ["it says installed"] }
  }
}
`
	script := `-- answer --
{"files": [{"path": "main.py", "content": "import hutchprobe\nprint('it says', hutchprobe.f())\n"}], "entrypoint": "main.py", "dependencies": ["hutchprobe==1.2"]}
-- answer --
{"files": [{"path": "main.py", "content": "import hutchprobe as h\nprint('it says', h.f())\n"}], "entrypoint": "main.py", "dependencies": ["hutchprobe==1.2"]}
-- expect --
WHY
`
	begin := func(t *testing.T, policy, why string) *world {
		w := newWorld(t, os.Getuid())
		w.env = []string{"PIP_INDEX_URL=" + srv.URL + "/simple/", "PIP_RETRIES=0"}
		w.write(t, "g.hcl", local(serve(t, "", strings.Replace(script, "WHY", why, 1)))+strings.Replace(block, "  backend", policy+"  backend", 1))
		return w
	}
	t.Run("no, then yes", func(t *testing.T) {
		w := begin(t, "", "hutchprobe==1.2")
		p := w.sit(t, "generate", "g.hcl")
		p.expect(t, "The program asks for hutchprobe==1.2. Install in a sandbox, from the network [y,N]? ")
		p.types(t, "n\r")
		p.expect(t, "attempt 1: policy")
		p.expect(t, "[y,N]? ")
		if n := index.Downloads(); n != 0 {
			t.Errorf("it was fetched %d times before anybody agreed", n)
		}
		p.types(t, "y\r")
		p.expect(t, "it says installed")
		p.end(t, 0)
		if n := index.Downloads(); n != 1 {
			t.Errorf("it was fetched %d times", n)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		w := begin(t, "", "")
		p := w.sit(t, "generate", "g.hcl")
		p.expect(t, "[y,N]? ")
		p.types(t, ctrlC)
		p.end(t, 130)
		w.interrupted(t, p)
	})
	t.Run("nobody to ask", func(t *testing.T) {
		w := begin(t, "", "not allowed")
		if out, said := w.hutch(t, 1, "generate", "g.hcl", "--attempts", "1"); !strings.Contains(said, "attempt 1: policy") || strings.Contains(out, "installed") {
			t.Errorf("%s%s", out, said)
		}
	})
	t.Run("allowed", func(t *testing.T) {
		w := begin(t, "  dependency_policy = \"allowed\"\n", "")
		if out, said := w.hutch(t, 0, "generate", "g.hcl"); !strings.Contains(out, "it says installed") {
			t.Errorf("%s%s", out, said)
		}
		w.hutch(t, 0, "audit", "verify")
	})
	t.Run("blocked", func(t *testing.T) {
		w := begin(t, "  dependency_policy = \"blocked\"\n", "")
		if _, said := w.hutch(t, 1, "generate", "g.hcl", "--attempts", "1"); !strings.Contains(said, "attempt 1: policy") {
			t.Error(said)
		}
	})
}

func needPip(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("/usr/bin/env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp", "python3", "-m", "pip", "--version").CombinedOutput(); err != nil {
		e2e.Missing(t, "pip", "pip is not installed: "+string(out))
	}
}
