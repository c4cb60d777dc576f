package crash

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/sdk/supervise/procstat"
	"github.com/hutch-run/hutch/test/e2e"
)

// faultyCalls are the calls in the middle of which something goes wrong, with the command that makes each.
var faultyCalls = map[string][]string{
	"create":  {"create", "FILE", "--name", "box"},
	"exec":    {"exec", "box", "--", "echo", "hello"},
	"put":     {"cp", "note", "box:/workspace/note"},
	"get":     {"cp", "box:/workspace/kept", "fetched"},
	"reset":   {"reset", "-f", "box"},
	"destroy": {"rm", "-f", "box"},
}

// patience is how long a command may take that is expected to end by itself; it is long, for a busy machine.
const patience = 2 * time.Minute

// TestFaultMatrix lets a backend, and hutch itself, break down in the middle of every call. The user gets one clear
// message with the backend's last words and the path of its log; the next command works; and gc leaves nothing.
func TestFaultMatrix(t *testing.T) {
	faults := map[string]struct {
		attribute string
		code      int               // that the command ends with
		says      string            // in its message; "" for none
		also      map[string]string // and during some calls
		config    string            // the user's configuration of the command
		do        func(t *testing.T, u *user, c *exec.Cmd, call string)
	}{
		"crash":   {attribute: "crash_during", code: 125, says: `its process died \(signal: killed\); its last words: (.* / )?crashing during CALL, as the block says; log: LOG`},
		"panic":   {attribute: "panic_during", code: 125, says: `the backend panicked: the block says panic_during = CALL(?s:.*); log: LOG`},
		"freeze":  {attribute: "freeze_during", code: 125, says: `its process died \(signal: killed\): it did not answer any more, and was killed; its last words: (.* / )?freezing during CALL, as the block says; log: LOG`},
		"garbage": {attribute: "garbage_during", code: 125, says: `its process died \(signal: killed\): it did not answer any more, and was killed; its last words: (.* / )?writing garbage during CALL, as the block says; log: LOG`},
		"flood":   {attribute: "flood_during", code: 0, says: `backend "fake" goes on in its log: LOG`},
		"hang and an interrupt": {attribute: "hang_during", code: 130, says: `stopping; once more does not wait for that`, do: interrupt("stopping"), also: map[string]string{
			"create": `sandbox \S+: backend "fake": destroy: no answer within 20s after it was cancelled: its last words: hanging during create, as the block says \(log: LOG\); hutch gc removes it`,
			"exec":   `the backend did not end the command within .* after it was stopped(?s:.*)its last words: hanging during exec, as the block says(?s:.*)log: LOG`,
		}},
		"hang and interrupts": {attribute: "hang_during", code: 130, says: `stopping; once more does not wait for that`, do: func(t *testing.T, u *user, c *exec.Cmd, call string) {
			says := []string{"stopping", "not waiting any longer; backends finish by themselves, and hutch gc removes what they cannot"}
			if call == "reset" || call == "destroy" {
				says = says[:1] // nothing of it runs on in the backend that hutch would wait for
			}
			interrupt(says...)(t, u, c, call)
		}},
		"hang and SIGTERM": {attribute: "hang_during", code: 143, says: `stopping; once more does not wait for that`, do: func(t *testing.T, u *user, c *exec.Cmd, _ string) {
			_ = c.Process.Signal(syscall.SIGTERM)
		}, also: map[string]string{"create": `hutch gc removes it`}},
		"hang and a killed host": {attribute: "hang_during", code: -1, do: func(t *testing.T, _ *user, c *exec.Cmd, _ string) {
			if err := c.Process.Kill(); err != nil {
				t.Error(err)
			}
		}},
		"hang": {attribute: "hang_during", code: 125, config: `backend_timeout = "8s"`, says: `its last words: (.* / )?hanging during CALL, as the block says(?s:.*)log: LOG`, also: map[string]string{
			"create":  `backend "fake" has not answered create for 4s and has 8s for it \(backend_timeout in config.hcl\)(?s:.*): create: no answer within 8s`,
			"exec":    `the backend did not end the command within .* after its timeout of 1s`,
			"put":     `backend "fake" has not answered put for 4s and has 8s for it \(backend_timeout in config.hcl\)(?s:.*): put: no answer within 8s`,
			"get":     `backend "fake" has not answered get for 4s and has 8s for it \(backend_timeout in config.hcl\)(?s:.*): get: no answer within 8s`,
			"reset":   `backend "fake" has not answered reset for 4s and has 8s for it \(backend_timeout in config.hcl\)(?s:.*): reset: no answer within 8s`,
			"destroy": `backend "fake" has not answered destroy for 4s and has 8s for it \(backend_timeout in config.hcl\)(?s:.*): destroy: no answer within 8s`,
		}},
		"hold and a stopped host": {attribute: "hold_during", code: 0, do: func(t *testing.T, u *user, c *exec.Cmd, _ string) {
			u.besideStopped(t, c)
			if err := os.WriteFile(filepath.Join(u.work, "once.go"), nil, 0o600); err != nil {
				t.Error(err)
			}
			if err := c.Process.Signal(syscall.SIGCONT); err != nil {
				t.Error(err)
			}
		}},
		"hang and a host that is stopped and killed": {attribute: "hang_during", code: -1, do: func(t *testing.T, u *user, c *exec.Cmd, _ string) {
			u.besideStopped(t, c)
			if err := c.Process.Kill(); err != nil {
				t.Error(err)
			}
		}},
	}
	for fault, f := range faults {
		for call, args := range faultyCalls {
			t.Run(fault+" during "+call, func(t *testing.T) {
				t.Parallel()
				u := newUser(t, os.Getuid())
				write := func(name, text string) {
					if err := os.WriteFile(filepath.Join(u.work, name), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				once := filepath.Join(u.work, "once")
				write("note", "a note\n")
				if err := os.Mkdir(filepath.Join(u.work, "src"), 0o755); err != nil {
					t.Fatal(err)
				}
				write("f.hcl", fmt.Sprintf("run \"a\" {\n  backend \"fake\" {\n    %s = %q\n    fault_once = %q\n  }\n  workspace { source = \"src\" }\n  command = [\"true\"]\n}\n", f.attribute, call, once))
				args := slices.Clone(args)
				for i := range args {
					args[i] = strings.Replace(args[i], "FILE", "f.hcl", 1)
				}
				if call != "create" {
					u.hutch(t, 0, "create", "f.hcl", "--name", "box")
					u.hutch(t, 0, "exec", "box", "--", "sh", "-c", "echo precious > kept")
				}
				write("beside.hcl", "run \"a\" {\n  backend \"fake\" {}\n  command = [\"true\"]\n}\n")
				write("once", "")
				config := filepath.Join(u.home, "hutch", "config.hcl")
				if f.config != "" {
					if err := os.MkdirAll(filepath.Dir(config), 0o700); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(config, []byte(f.config), 0o600); err != nil {
						t.Fatal(err)
					}
					if call == "exec" { // which the command's own timeout bounds
						args = slices.Insert(args, 1, "--timeout=1s")
					}
				}

				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				c := u.command(args...)
				out := &e2e.Output{}
				c.Stdout, c.Stderr = out, out
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				stop := context.AfterFunc(ctx, func() { _ = c.Process.Kill() })
				if f.do != nil {
					waitFor(t, "the backend to be in the middle of it", func() bool {
						b, _ := os.ReadFile(u.backendLog())
						return bytes.Contains(b, []byte("ing during "+call+", as the block says"))
					})
					f.do(t, u, c, call)
				}
				_ = c.Wait()
				stop()
				if ctx.Err() != nil {
					t.Fatalf("it did not end within %s\n%s", patience, out)
				}
				if got := c.ProcessState.ExitCode(); got != f.code {
					t.Errorf("%s ended with %d, want %d\n%s", call, got, f.code, out)
				}
				for _, want := range []string{f.says, f.also[call]} {
					want = strings.NewReplacer("CALL", call, "LOG", regexp.QuoteMeta(u.backendLog())).Replace(want)
					if found := regexp.MustCompile(want).FindAllString(out.String(), -1); want != "" && len(found) != 1 {
						t.Errorf("the message %s is there %d times in\n%s", want, len(found), out)
					}
				}
				// Once in the error, and once before where it was waited for.
				if n := strings.Count(out.String(), "its last words: "); n > 1 && f.config == "" || n > 2 {
					t.Errorf("the last words are reported %d times\n%s", n, out)
				}
				if n := len(out.String()); n > 64<<10 {
					t.Errorf("it printed %d bytes", n)
				}
				if _, err := os.Stat(once); err == nil {
					t.Errorf("nothing went wrong: the test shows nothing\n%s", out)
				}
				if f.code == 125 {
					log, err := os.ReadFile(u.backendLog())
					if err != nil || !bytes.Contains(log, []byte(call)) {
						t.Errorf("the log does not tell of it: %v", err)
					}
				}
				if f.config != "" {
					if err := os.Remove(config); err != nil {
						t.Error(err)
					}
				}
				u.goesOn(t, call)
			})
		}
	}
}

// interrupt sends SIGINT as often as there is something to be said to it.
func interrupt(says ...string) func(t *testing.T, u *user, c *exec.Cmd, call string) {
	return func(t *testing.T, _ *user, c *exec.Cmd, _ string) {
		for _, said := range says {
			_ = c.Process.Signal(os.Interrupt)
			waitFor(t, said, func() bool { return strings.Contains(c.Stderr.(*e2e.Output).String(), "hutch: "+said) })
		}
	}
}

// besideStopped stops a hutch at once, as a debugger or a suspended terminal does, and checks that another one works
// beside it and takes nothing of it for lost.
func (u *user) besideStopped(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Error(err)
	}
	waitFor(t, "hutch to be stopped", func() bool {
		s, err := procstat.Of(c.Process.Pid)
		return err == nil && s.State == 'T'
	})
	u.nothingForGC(t)
	u.hutch(t, 0, "create", "beside.hcl", "--name", "beside")
	if out := u.hutch(t, 0, "exec", "beside", "--", "echo", "works"); !strings.HasPrefix(out, "works\n") {
		t.Errorf("a sandbox beside: %q", out)
	}
	u.hutch(t, 0, "run", "-q", "beside.hcl")
	u.hutch(t, 0, "ps")
	u.hutch(t, 0, "rm", "beside")
	u.nothingForGC(t)
}

// goesOn checks that the next commands work, and that nothing is left in the end.
func (u *user) goesOn(t *testing.T, call string) {
	t.Helper()
	if !e2e.Eventually(patience, func() bool { return len(e2e.Marked(u.work)) == 0 }) {
		t.Errorf("still runs: %v", e2e.Marked(u.work))
	}
	u.hutch(t, 0, "gc")
	if call == "create" || call == "destroy" {
		// Whether there is a sandbox depends on the moment; what there is works, or a new one does.
		if u.hutch(t, 0, "ps", "-q") == "" {
			u.hutch(t, 0, "create", "f.hcl", "--name", "box")
		}
	} else if out := u.hutch(t, 0, "exec", "box", "--", "cat", "kept"); !strings.HasPrefix(out, "precious\n") {
		t.Errorf("the files of the sandbox: %q", out)
	}
	u.hutch(t, 0, "exec", "box", "--", "true")
	u.hutch(t, 0, "cp", "note", "box:/workspace/again")
	u.hutch(t, 0, "rm", "-f", "box")
	u.nothingForGC(t)
	for _, found := range u.traces(t) {
		if !strings.HasPrefix(found, "mount ") { // others may have some
			t.Errorf("left: %s", found)
		}
	}
	left, _ := filepath.Glob(filepath.Join(u.home, "hutch", "sandboxes", "[0-9]*"))
	if len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	u.hutch(t, 0, "audit", "verify")
}

// backendLog is where the fake's log is.
func (u *user) backendLog() string {
	return filepath.Join(u.home, "hutch", "state", "backends", "fake.log")
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !e2e.Eventually(patience, ok) {
		t.Errorf("waited %s for %s", patience, what)
	}
}
