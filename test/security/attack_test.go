package security

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/test/e2e"
)

// TestCatalogue tries every attack of the catalogue at every place, the bare machine included: an attack that does not
// get through there proves nothing. What came of it is the table of docs/reference/attacks.md.
func TestCatalogue(t *testing.T) {
	results := table{}
	t.Run("places", func(t *testing.T) {
		for _, p := range places(t) {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				for _, a := range catalogue {
					t.Run(a.id, func(t *testing.T) { results.set(a.id, p.name, a.try(t, newWorld(t, p))) })
				}
			})
		}
	})
	results.compareWithPage(t)
}

// try makes the attack and returns what the page says of it. An outcome that cannot be judged fails the test.
func (a attack) try(t *testing.T, w *world) string {
	if w.backend == "" {
		return a.control(t, w)
	}
	usable := func() error { return nil }
	if strings.HasPrefix(a.id, "RES-") {
		usable = w.hostIsUsable(t)
	}
	o := a.run(t, w)
	if err := usable(); err != nil {
		t.Errorf("%s (%s): the host is not usable: %v", a.id, a.about, err)
	}
	cause, uncounted := o.result.Cause, false
	switch {
	case o.result.Error.Phase == "plan" && o.result.Error.Reason == "limit" && (len(a.flags) > 0 || a.mode != "" && a.mode == w.refuses):
		t.Logf("refused: %s", o.result.Error.Summary)
		return "refused"
	case o.verdict != nil && o.verdict.Breached && w.open[a.id]:
		t.Logf("not held: %s", o.verdict.Detail)
		return "not held"
	case o.verdict != nil && o.verdict.Breached && w.sampled[a.id]:
		t.Logf("passed between two samples: %s", o.verdict.Detail)
	case a.judge != nil:
		if fault := a.judge(o); fault != "" {
			t.Errorf("%s (%s): %s\n%s", a.id, a.about, fault, o.output)
		}
	case o.verdict != nil && o.verdict.Breached:
		t.Errorf("%s (%s): got through: %s", a.id, a.about, o.verdict.Detail)
	case a.ends == "" && o.verdict == nil:
		t.Fatalf("%s (%s): the probe gave no verdict: cause %s, code %d\n%s", a.id, a.about, cause, o.code, o.output)
	case a.ends == "" || cause == a.ends && o.code != 0:
	case o.verdict != nil && cause == "exited" && o.code != 0 && strings.HasSuffix(o.verdict.Detail, ": permission denied"): // so nothing had to be stopped
	case o.verdict != nil && cause == "exited" && o.code != 0 && o.result.heldBy(a.ends, "rlimit"):
		uncounted = true
	default: // hutch must say what stopped it
		t.Errorf("%s (%s): the bomb was stopped, but the cause is %q, not %q\n%s", a.id, a.about, cause, a.ends, o.output)
	}
	if o.verdict != nil {
		t.Logf("%.300s", o.verdict.Detail)
	}
	if a.hurt != nil {
		if harm := a.hurt(w); harm != "" {
			t.Errorf("%s (%s): harm on the host: %s", a.id, a.about, harm)
		}
	}
	switch {
	case t.Failed():
		return "BREACHED"
	case w.sampled[a.id]:
		return "sampled"
	case uncounted:
		return "held, uncounted"
	}
	return "held"
}

// hostIsUsable has the world's user start processes and write files again and again, until the function that it returns
// is called. That returns what went wrong.
func (w *world) hostIsUsable(t *testing.T) func() error {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		for {
			cmd := exec.Command("/bin/sh", "-c", `echo ok | cat > "$HOME/usable" && cat "$HOME/usable"`)
			w.as(cmd)
			began := time.Now()
			out, err := cmd.CombinedOutput()
			if err == nil && string(out) != "ok\n" {
				err = errors.New("a file does not keep what is written to it")
			}
			if took := time.Since(began); err == nil && took > 30*time.Second {
				err = fmt.Errorf("a shell that writes a file took %v", took)
			}
			if err != nil || ctx.Err() != nil {
				done <- err
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	return func() error { cancel(); return <-done }
}

func (a attack) control(t *testing.T, w *world) string {
	if !a.bites.has(w.uid) {
		return "–"
	}
	if a.bare != nil {
		a.bare(t, w)
		return "gets through"
	}
	o := a.run(t, w)
	got := o.verdict != nil && o.verdict.Breached
	if a.hurt != nil {
		harm := a.hurt(w)
		got = got || harm != ""
	}
	if !got {
		t.Errorf("%s (%s): does not bite without a sandbox, so it proves nothing with one\n%s", a.id, a.about, o.output)
	}
	return "gets through"
}

// run starts the probe at the world's place.
func (a attack) run(t *testing.T, w *world) outcome {
	t.Helper()
	probe := append([]string{a.id}, a.args(w)...)
	w.mode = a.mode
	switch {
	case a.terminal:
		return w.onTerminal(t, a.flags, probe)
	case w.backend == "":
		return w.bare(t, probe)
	}
	return w.sandboxed(t, a.flags, probe)
}

// honest judges the case that must work: it writes, ends with 7, and hutch lists what it wrote.
func honest(o outcome) string {
	if o.code != 7 || o.result.ExitCode != 7 || o.result.Cause != "exited" {
		return fmt.Sprintf("code %d, result code %d, cause %s; want 7, 7, exited", o.code, o.result.ExitCode, o.result.Cause)
	}
	if len(o.result.Changes) != 1 || o.result.Changes[0].Path != "written" || o.result.Changes[0].Kind != "added" {
		return fmt.Sprintf("changes %+v; want written added", o.result.Changes)
	}
	return ""
}

// timedOut judges a payload that ignores every signal and runs out of time.
func timedOut(o outcome) string {
	if o.code != 124 || o.result.Cause != "timeout" {
		return fmt.Sprintf("code %d, cause %s; want 124, timeout", o.code, o.result.Cause)
	}
	return ""
}

const muchOutput = 2 << 30 // as RES-11 asks for

// printedAll judges a payload that prints without end.
func printedAll(o outcome) string {
	if out := o.result.Stdout; o.code != 0 || o.result.Cause != "exited" || out.Bytes < muchOutput || out.Bytes-out.Dropped > 16<<20 {
		return fmt.Sprintf("code %d, cause %s, %d bytes, %d of them dropped; want 0, exited, 2 GiB, all but 16 MiB", o.code, o.result.Cause, out.Bytes, out.Dropped)
	}
	return ""
}

// storeGrown looks for more output in hutch's directory than one log of each stream holds.
func storeGrown(w *world) string {
	var n int64
	_ = filepath.WalkDir(filepath.Join(w.home, ".hutch"), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if st, err := d.Info(); err == nil {
				n += st.Size()
			}
		}
		return nil
	})
	if n > 48<<20 {
		return fmt.Sprintf("hutch's directory holds %d bytes", n)
	}
	return daemonLeft("-bomb")(w)
}

// printsAll shows that a program may print so much.
func printsAll(t *testing.T, w *world) {
	cmd := exec.Command(filepath.Join(w.project, "probe"), "RES-11", "2048")
	w.as(cmd)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	n, err := io.Copy(io.Discard, out)
	must(t, errors.Join(err, cmd.Wait()))
	if n < muchOutput {
		t.Errorf("only %d bytes were printed", n)
	}
}

// ignoresTerm shows that SIGTERM alone does not end the stubborn payload.
func ignoresTerm(t *testing.T, w *world) {
	cmd := exec.Command(filepath.Join(w.project, "probe"), "PROC-04", w.nonce+"-stubborn")
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
}

// onTerminal runs the probe on a terminal.
func (w *world) onTerminal(t *testing.T, flags, probe []string) outcome {
	t.Helper()
	name, args := filepath.Join(w.project, "probe"), probe
	if w.backend != "" {
		name, args = e2e.Hutch(), append([]string{"run", "--backend", w.backend, "--workspace", w.workspace(), "-it"}, flags...)
		args = append(append(args, "--", "./probe"), probe...)
	}
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
	return outcome{verdict: parseVerdict(out.String()), result: &result{}, code: cmd.ProcessState.ExitCode(), output: out.String()}
}

// leavesDaemons shows that daemons outlive who started them.
func leavesDaemons(t *testing.T, w *world) {
	o := w.bare(t, []string{"PROC-03", w.nonce + "-daemon"})
	defer e2e.KillMarked(w.nonce + "-daemon")
	if len(e2e.Marked(w.nonce+"-daemon")) == 0 {
		t.Errorf("no daemon is left, so this proves nothing\n%s", o.output)
	}
}

func daemonLeft(mark string) func(*world) string {
	return func(w *world) string {
		if e2e.Eventually(time.Minute, func() bool { return len(e2e.Marked(w.nonce+mark)) == 0 }) {
			return ""
		}
		e2e.KillMarked(w.nonce + mark)
		return "the process still ran after a minute"
	}
}

func markersLeft(w *world) string {
	var left []string
	for _, dir := range append(markerDirs(w), "/usr", "/proc/sys") {
		p := filepath.Join(dir, w.marker)
		if os.Remove(p) == nil {
			left = append(left, p)
		}
	}
	return strings.Join(left, " ")
}
