package e2b

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hutch-run/hutch/plugins/e2b/e2btest"
	"github.com/hutch-run/hutch/test/e2e"
)

// user is somebody with a project, a run file and its own service.
type user struct {
	t      *testing.T
	server *e2btest.Server
	dir    string
	env    []string
}

func newUser(t *testing.T, command string) *user {
	t.Helper()
	u := &user{t: t, server: e2btest.ForTest(t, e2btest.Options{MaxSandboxes: 1}), dir: t.TempDir()}
	home, err := os.MkdirTemp(e2e.Dir, "home-")
	if err != nil {
		t.Fatal(err)
	}
	u.env = append(os.Environ(), "HUTCH_HOME="+home, "HOME="+home, "NO_COLOR=1", "TMPDIR="+home)
	u.env = append(u.env, u.server.Env()...)
	file := "run \"tests\" {\n  backend \"e2b\" {}\n  workspace { source = \"project\" }\n  command = [\"sh\", \"-c\", \"" + command + "\"]\n}\n"
	for name, text := range map[string]string{"project/a.txt": "a\n", "run.hcl": file, "template.hcl": strings.Replace(file, "{}", "{ template = \"nonesuch\" }", 1)} {
		p := filepath.Join(u.dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

func (u *user) command(env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(e2e.Hutch(), args...)
	cmd.Dir, cmd.Env = u.dir, append(u.env, env...)
	return cmd
}

// types runs hutch, and returns what it printed and its exit code.
func (u *user) types(env []string, args ...string) (stdout, stderr string, code int) {
	u.t.Helper()
	cmd := u.command(env, args...)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	if e := cmd.Run(); cmd.ProcessState == nil {
		u.t.Fatal(e)
	}
	return out.String(), err.String(), cmd.ProcessState.ExitCode()
}

// TestMessages: what goes wrong with the service is said once, with what, where and what to do, and leaves nothing
// behind.
func TestMessages(t *testing.T) {
	u := newUser(t, "true")
	down := e2btest.ForTest(t, e2btest.Options{})
	if err := down.Close(); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name  string
		env   []string
		file  string
		fault *e2btest.Fault
		says  []string
	}{
		{"no key", []string{"E2B_API_KEY="}, "run.hcl", nil, []string{"there is no API key for E2B", "run.hcl:2:3", "set E2B_API_KEY, or api_key"}},
		{"a wrong key", []string{"E2B_API_KEY=e2b_00"}, "run.hcl", nil, []string{"does not take the API key", "look at E2B_API_KEY"}},
		{"a key with a line break", []string{"E2B_API_KEY=e2b_00\n"}, "run.hcl", nil, []string{"the key in E2B_API_KEY holds characters", "set it to the key alone"}},
		{"the service is down", []string{"E2B_API_URL=" + down.URL}, "run.hcl", nil, []string{down.URL + " cannot be reached", "connection refused", "hutch doctor"}},
		{"no such template", nil, "template.hcl", nil, []string{"template 'nonesuch' not found", "template.hcl:2:30", "name a template that exists"}},
		{"too many machines", nil, "run.hcl", &e2btest.Fault{Status: 429, Body: `{"code":429,"message":"you have reached the maximum number of concurrent E2B sandboxes (20)"}`}, []string{"maximum number", "hutch rm"}},
		{"too many calls", nil, "run.hcl", &e2btest.Fault{Status: 429, Body: `{"code":429,"message":"Rate limit exceeded"}`}, []string{"Rate limit exceeded", "run fewer at once (-j)"}},
		{"no room", nil, "run.hcl", &e2btest.Fault{Status: 503, Body: `{"code":503,"message":"no room","error_code":"sandbox_capacity_unavailable"}`}, []string{"503 no room", "try again in a while"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.fault != nil {
				c.fault.Method, c.fault.Path = "POST", "/sandboxes"
				defer u.server.Inject(*c.fault).Remove()
			}
			stdout, stderr, code := u.types(c.env, "run", c.file)
			if code != 125 || stdout != "" {
				t.Errorf("it ended with %d, and printed %q", code, stdout)
			}
			for _, text := range c.says {
				if !strings.Contains(stderr, text) {
					t.Errorf("it does not say %q:\n%s", text, stderr)
				}
			}
			if strings.Contains(stderr, "left behind") || strings.Contains(stderr, u.server.Key) || strings.Count(stderr, c.says[0]) > 2 {
				t.Errorf("it says too much:\n%s", stderr)
			}
		})
	}
	if stdout, stderr, code := u.types(nil, "gc"); code != 0 || strings.Contains(stdout, "sandbox") {
		t.Errorf("hutch gc: %d %s %s", code, stdout, stderr)
	}
}

// TestLostOutputIsReported: the connection to a command breaks after its first words. How it ended is reported truly,
// and that words are missing stands in the result and on the terminal; a run that expects something of them is not ok.
func TestLostOutputIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		command, expect string
		code            int
		ok              bool
	}{
		"it fails":              {"echo one; exit 7", "", 7, false},
		"it ends well":          {"echo one", "", 0, true},
		"nothing bad was heard": {"echo FAILED", "expect {\n stdout {\n excludes = [\"FAILED\"]\n }\n }\n", 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUser(t, c.command)
			file := filepath.Join(u.dir, "run.hcl")
			b, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(file, []byte(strings.TrimSuffix(string(b), "}\n")+c.expect+"}\n"), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			fault := u.server.Inject(e2btest.Fault{Path: "/process.Process/Start", Skip: 2, CutMessages: new(2)}) // its start, and hutch's own sign
			stdout, stderr, code := u.types(nil, "run", "-o", "json", "run.hcl")
			if fault.Hits() != 1 || code != c.code {
				t.Fatalf("met %d times, it ended with %d: %s", fault.Hits(), code, stderr)
			}
			var result struct {
				Cause  string
				OK     bool
				Stdout struct{ Lost string }
			}
			if err := json.Unmarshal([]byte(stdout), &result); err != nil {
				t.Fatal(err)
			}
			if result.OK != c.ok || result.Cause != "exited" || result.Stdout.Lost != "the connection to the command broke once, and what it printed meanwhile is lost" {
				t.Errorf("the result is %+v", result)
			}
			if !strings.Contains(stderr, "what it printed meanwhile is lost") {
				t.Errorf("nobody says that words are missing: %s", stderr)
			}
		})
	}
}

// TestKilledWhileFilesTravel: hutch is killed while it sends or fetches. Its backend notices and ends the machine, or
// hutch gc finds it by what it is marked with.
func TestKilledWhileFilesTravel(t *testing.T) {
	for name, fault := range map[string]e2btest.Fault{
		"sending": {Method: "POST", Path: "/files", DelayMS: 3000}, "fetching": {Method: "GET", Path: "/files", DelayMS: 3000},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUser(t, "true")
			met := u.server.Inject(fault)
			cmd := u.command(nil, "run", "run.hcl")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if !e2e.Eventually(time.Minute, func() bool { return met.Hits() > 0 }) {
				t.Error("no file travelled")
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
			_ = cmd.Wait()
			gone := e2e.Eventually(time.Minute, func() bool {
				_, stderr, code := u.types(nil, "gc")
				if code != 0 {
					t.Errorf("hutch gc: %d %s", code, stderr)
				}
				return len(u.server.Sandboxes()) == 0
			})
			if !gone {
				t.Errorf("the machines %v are left", u.server.Sandboxes())
			}
		})
	}
}

// TestL4SecondInterrupt: hutch does not wait any longer after a second ^C, and its backend ends the machine all the
// same, as it does when hutch is killed. Nobody runs hutch gc.
func TestL4SecondInterrupt(t *testing.T) {
	for name, signals := range map[string][]os.Signal{"^C twice": {os.Interrupt, os.Interrupt}, "killed": {os.Kill}} {
		t.Run(name, func(t *testing.T) {
			u := newUser(t, "sleep 600")
			slow := u.server.Inject(e2btest.Fault{Method: "DELETE", Path: "/sandboxes/*", DelayMS: 2000})
			cmd := u.command(nil, "run", "run.hcl")
			var said syncBuffer
			cmd.Stderr = &said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if !e2e.Eventually(time.Minute, func() bool { return len(u.server.Sandboxes()) == 1 }) {
				t.Error("no machine was made")
			}
			if err := cmd.Process.Signal(signals[0]); err != nil {
				t.Error(err)
			}
			if len(signals) > 1 {
				// While the machine is being ended: the second one meets hutch as it waits for that.
				if !e2e.Eventually(time.Minute, func() bool { return slow.Hits() > 0 }) {
					t.Errorf("nothing is being destroyed: %s", said.String())
				}
				if err := cmd.Process.Signal(signals[1]); err != nil {
					t.Error(err)
				}
			}
			_ = cmd.Wait()
			if len(signals) > 1 && !strings.Contains(said.String(), "backends finish by themselves, and hutch gc removes what they cannot") {
				t.Errorf("it does not say who finishes: %s", said.String())
			}
			if !e2e.Eventually(time.Minute, func() bool { return len(u.server.Sandboxes()) == 0 }) {
				t.Errorf("the machines %v are left", u.server.Sandboxes())
			}
			if _, stderr, code := u.types(nil, "gc"); code != 0 {
				t.Errorf("hutch gc: %d %s", code, stderr)
			}
		})
	}
}

// syncBuffer is a buffer that one may read while another one writes.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
