package security

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/test/e2e"
)

// TestCatalogue runs every attack inside the sandbox and, to show that it bites,
// outside.
func TestCatalogue(t *testing.T) {
	e2e.Require(t, "bwrap")
	for name, uid := range e2e.Users() {
		t.Run(name, func(t *testing.T) {
			for _, a := range catalogue {
				t.Run(a.id, func(t *testing.T) {
					t.Run("sandbox", func(t *testing.T) { a.inSandbox(t, newWorld(t, uid)) })
					t.Run("control", func(t *testing.T) { a.control(t, uid) })
				})
			}
		})
	}
}

// weaker are the attacks that get somewhere in a container and gain nothing there: id -> why.
var weaker = map[string]string{
	"PRV-06": "podman hides files of /proc below /dev/null, which can be written to",
}

// TestCatalogueOnPodman runs every attack in a container, as whoever runs the tests: a uid that is nobody in particular has
// no containers.
func TestCatalogueOnPodman(t *testing.T) {
	image := podmantest.Busybox(t)
	for _, a := range catalogue {
		t.Run(a.id, func(t *testing.T) {
			if why := weaker[a.id]; why != "" {
				t.Skip(why)
			}
			if os.Getuid() != 0 && len(a.flags) > 0 {
				t.Skipf("%q: an ordinary user's containers may have no limits here; root's have", a.flags)
			}
			w := newWorld(t, os.Getuid())
			w.backend, w.image = "podman", image
			a.inSandbox(t, w)
		})
	}
}

func (a attack) inSandbox(t *testing.T, w *world) {
	o := w.sandboxed(t, a.flags, append([]string{a.id}, a.args(w)...))
	if o.verdict == nil && !a.mayDie {
		t.Fatalf("%s (%s): the probe gave no verdict: cause %s, code %d\n%s", a.id, a.about, o.result.Cause, o.code, o.output)
	}
	if o.verdict == nil {
		switch o.result.Cause { // it was stopped, and hutch must say by what
		case "oom", "pids", "disk", "signaled":
		case "exited": // all that can be told of a limit on the address space: the program learned it, the kernel counts nothing
			if o.code == 0 || !strings.Contains(o.output, "RLIMIT_AS") {
				t.Errorf("%s (%s): the probe was stopped, but the cause is %q\n%s", a.id, a.about, o.result.Cause, o.output)
			}
		default:
			t.Errorf("%s (%s): the probe was stopped, but the cause is %q\n%s", a.id, a.about, o.result.Cause, o.output)
		}
	} else if o.verdict.Breached {
		t.Errorf("%s (%s): got through: %s", a.id, a.about, o.verdict.Detail)
	} else {
		t.Logf("held: %.300s", o.verdict.Detail)
	}
	if a.hurt != nil {
		if harm := a.hurt(w); harm != "" {
			t.Errorf("%s (%s): harm on the host: %s", a.id, a.about, harm)
		}
	}
}

func (a attack) control(t *testing.T, uid int) {
	if !a.bites.has(uid) {
		t.Logf("%s (%s): nothing to win for uid %d on a bare machine", a.id, a.about, uid)
		return
	}
	w := newWorld(t, uid)
	o := w.bare(t, append([]string{a.id}, a.args(w)...))
	got := o.verdict != nil && o.verdict.Breached
	if a.hurt != nil {
		harm := a.hurt(w)
		got = got || harm != ""
	}
	if !got {
		t.Errorf("%s (%s): does not bite without a sandbox, so it proves nothing with one\n%s", a.id, a.about, o.output)
	}
}

// TestHonestCode is the case that must work: it writes, ends with 7, and the host
// sees nothing but a record of the change.
func TestHonestCode(t *testing.T) {
	e2e.Require(t, "bwrap")
	for name, uid := range e2e.Users() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, uid)
			o := w.sandboxed(t, nil, []string{"C0"})
			if o.code != 7 || o.result.ExitCode != 7 || o.result.Cause != "exited" {
				t.Errorf("code %d, result code %d, cause %s; want 7, 7, exited\n%s", o.code, o.result.ExitCode, o.result.Cause, o.output)
			}
			if len(o.result.Changes) != 1 || o.result.Changes[0].Path != "written" || o.result.Changes[0].Kind != "added" {
				t.Errorf("changes %+v; want written added", o.result.Changes)
			}
			if harm := projectChanged(w); harm != "" {
				t.Error(harm)
			}
		})
	}
}

// TestSharedHooks tries to plant git hooks where writes do land on the host.
func TestSharedHooks(t *testing.T) {
	e2e.Require(t, "bwrap")
	for name, uid := range e2e.Users() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, uid)
			w.mode = ":shared"
			o := w.sandboxed(t, nil, []string{"WS-02"})
			if harm := projectChanged(w); harm != "" {
				t.Errorf("%s\n%s", harm, o.output)
			}
		})
	}
}

// TestStubbornPayload lets the time of a payload run out that ignores every signal.
func TestStubbornPayload(t *testing.T) {
	e2e.Require(t, "bwrap")
	for name, uid := range e2e.Users() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, uid)
			mark := nonce + "-stubborn"
			o := w.sandboxed(t, []string{"--timeout", "500ms"}, []string{"PROC-04", mark})
			if o.code != 124 || o.result.Cause != "timeout" {
				t.Errorf("code %d, cause %s; want 124, timeout\n%s", o.code, o.result.Cause, o.output)
			}
			if !e2e.Eventually(time.Minute, func() bool { return len(e2e.Marked(mark)) == 0 }) {
				e2e.KillMarked(mark)
				t.Error("the payload still runs")
			}
			// The control: without a sandbox SIGTERM does not end it.
			cmd := exec.Command(filepath.Join(w.project, "probe"), "PROC-04", mark)
			w.as(cmd)
			out, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			defer cmd.Wait()
			defer cmd.Process.Kill()
			_, err = io.ReadFull(out, make([]byte, len("ignoring\n")))
			must(t, err)
			must(t, cmd.Process.Signal(unix.SIGTERM))
			if e2e.Eventually(200*time.Millisecond, func() bool { return e2e.Ended(cmd.Process.Pid) }) {
				t.Error("the payload ends by SIGTERM alone, so this proves nothing")
			}
		})
	}
}

// TestTerminalInjection gives the payload a terminal and lets it type.
func TestTerminalInjection(t *testing.T) {
	e2e.Require(t, "bwrap")
	for name, uid := range e2e.Users() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, uid)
			v := w.onTerminal(t, e2e.Hutch(),
				"run", "--backend", "bwrap", "--workspace", w.project, "-it", "--", "/workspace/probe", "TTY-01")
			if v.Breached {
				t.Errorf("TTY-01: got through: %s", v.Detail)
			}
			if uid == 0 { // others are refused by kernels with dev.tty.legacy_tiocsti=0
				if v := w.onTerminal(t, filepath.Join(w.project, "probe"), "TTY-01"); !v.Breached {
					t.Errorf("TTY-01 does not bite without a sandbox: %s", v.Detail)
				}
			}
		})
	}
}

// onTerminal runs a command on a terminal of its own and returns the probe's verdict.
func (w *world) onTerminal(t *testing.T, name string, args ...string) verdict {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	w.as(cmd)
	cmd.SysProcAttr.Setpgid = false
	cmd.Env = append(cmd.Env, "TERM=xterm")
	master, err := pty.Start(cmd)
	must(t, err)
	defer master.Close()
	var out bytes.Buffer
	_, _ = io.Copy(&out, master) // ends with EIO when the last holder is gone
	_ = cmd.Wait()
	v := parseVerdict(out.String())
	if v == nil {
		t.Fatalf("%s %s: no verdict on the terminal:\n%s", name, strings.Join(args, " "), out.String())
	}
	return *v
}
