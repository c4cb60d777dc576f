// Package agents runs real coding agents in sandboxes against a scripted model of this machine, as users start them.
package agents

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/test/e2e"
)

func TestMain(m *testing.M) {
	os.Exit(e2e.Main(m, map[string]string{"libexec/hutch/hutch-agent": "cmd/hutch-agent"}))
}

//go:embed npm
var packages embed.FS

const key = "sk-the-value-that-stays-outside"

// world is a user with a project and agents.
type world struct {
	t       *testing.T
	dir     string // of the user
	project string
	env     []string
	user    *syscall.Credential // nil for the one who runs the test
}

// install brings the packages below npm from the registry to where sandboxes can see them, and returns the directory of
// their commands.
func install(t *testing.T, which string) string {
	e2e.Require(t, "npm")
	base, err := "/opt", error(nil) // temporary directories are the sandbox's own
	if os.Getuid() != 0 {
		base, err = os.UserCacheDir()
	}
	if err == nil {
		err = os.MkdirAll(base, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(base, "hutch-agents-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	from, err := fs.Sub(packages, "npm/"+which)
	if err == nil {
		err = os.CopyFS(dir, from)
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--no-progress")
	npm.Dir, npm.Env = dir, os.Environ()
	for _, what := range []string{"CACHE", "CONFIG", "DATA", "STATE"} { // where what npm installs writes as well
		npm.Env = append(npm.Env, "XDG_"+what+"_HOME="+filepath.Join(dir, "home"))
	}
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm install: %v\n%s", err, out)
	}
	bin := filepath.Join(dir, "node_modules", ".bin")
	if node := e2e.Node(t); node != "node" { // scripts find it in PATH
		own := filepath.Join(dir, "node")
		if err := os.Mkdir(own, 0o755); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(node)
		if err == nil {
			err = os.WriteFile(filepath.Join(own, "node"), data, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		bin = own + ":" + bin
	}
	return bin
}

func newWorld(t *testing.T, bin string, s *service) *world {
	dir, err := os.MkdirTemp("/var/tmp", "hutch-agents-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &world{t: t, dir: dir, project: filepath.Join(dir, "My Shop"), env: []string{
		"PATH=" + bin + ":/usr/local/bin:/usr/bin:/bin", "HOME=" + dir, "HUTCH_HOME=" + filepath.Join(dir, "home"), "TMPDIR=" + dir,
		"ANTHROPIC_API_KEY=" + key, "ANTHROPIC_BASE_URL=" + s.URL, "GEMINI_API_KEY=" + key, "GOOGLE_GEMINI_BASE_URL=" + s.URL,
		"OPENAI_API_KEY=" + key, "OPENAI_BASE_URL=" + s.URL + "/v1",
	}}
	if err := os.Mkdir(w.project, 0o755); err != nil {
		t.Fatal(err)
	}
	// OpenCode reads no variable for the address.
	config := `{"$schema": "https://opencode.ai/config.json", "autoupdate": false, "model": "anthropic/claude-sonnet-4-5", "small_model": "anthropic/claude-sonnet-4-5",
  "provider": {"anthropic": {"options": {"baseURL": "` + strings.Replace(s.URL, "127.0.0.1", "host", 1) + `/v1"}}}}`
	test := "grep -qx 'hello from the box' hello.txt && echo the greeting is \"$(echo right)\"\n"
	for name, text := range map[string]string{"opencode.json": config, "check.sh": test} {
		if err := os.WriteFile(filepath.Join(w.project, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// ordinary makes the user one who is not root.
func (w *world) ordinary() {
	w.t.Helper()
	uid, gid, _ := e2e.Rootless(w.t)
	w.user = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	err := filepath.WalkDir(w.dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, uid, gid))
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// budgetCode is any exit code: agents end differently when their provider refuses.
const budgetCode = -1

// hutch runs hutch in the project.
func (w *world) hutch(code int, args ...string) (stdout, stderr string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, e2e.Hutch(), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	var out, errs strings.Builder
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = w.project, w.env, &out, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: w.user}
	if _ = cmd.Run(); code != budgetCode && cmd.ProcessState.ExitCode() != code {
		w.t.Fatalf("hutch %q ended with %d, want %d\n%s%s", args, cmd.ProcessState.ExitCode(), code, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

// nowhere fails where a file of the user has the key.
func (w *world) nowhere() {
	w.t.Helper()
	err := filepath.WalkDir(w.dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) { // the kernel's working directory of an overlay
			return fs.SkipDir
		}
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(key)) {
			w.t.Errorf("%s holds the key", path)
		}
		return err
	})
	if err != nil {
		w.t.Error(err)
	}
}

func (w *world) greeting() string {
	data, err := os.ReadFile(filepath.Join(w.project, "hello.txt"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
	return string(data)
}

// TestAgents has each agent work in a sandbox, looks at what it left, and takes it.
func TestAgents(t *testing.T) {
	e2e.Require(t, "bwrap")
	bin := install(t, "agents")
	t.Run("mcp install", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, bin, newService(t))
		for _, agent := range []string{"claude", "codex", "gemini", "opencode"} {
			list := func() string {
				cmd := exec.CommandContext(t.Context(), "env", agent, "mcp", "list")
				cmd.Dir, cmd.Env = w.project, w.env
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Errorf("%s mcp list: %v\n%s", agent, err, out)
				}
				return string(out)
			}
			for range 2 {
				w.hutch(0, "mcp", "install", agent, "--name", "box", "--yes", "--", "-m", "2g")
			}
			if got := list(); strings.Count(got, "box") != 1 || !strings.Contains(got, "mcp --workspace") || strings.Contains(got, "ailed") {
				t.Errorf("%s lists\n%s", agent, got)
			}
			w.hutch(0, "mcp", "install", agent, "--name", "box", "--remove", "--yes")
			if got := list(); strings.Contains(got, "box") {
				t.Errorf("after its removal %s lists\n%s", agent, got)
			}
		}
		if data, err := os.ReadFile(filepath.Join(w.project, "opencode.json")); err != nil || !strings.Contains(string(data), `"small_model"`) {
			t.Errorf("opencode.json is now %q, %v", data, err)
		}
	})
	for _, agent := range []string{"claude", "gemini", "opencode"} {
		t.Run("acp "+agent, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			var flags []string
			if agent == "opencode" {
				flags = s.secret()
			}
			workByACP(t, newWorld(t, bin, s), s, agent, flags...)
		})
	}
	for _, agent := range []string{"claude", "codex", "gemini", "opencode"} {
		t.Run(agent+" at a terminal", func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			var flags []string
			if agent == "opencode" {
				flags = s.secret()
			}
			workAtTerminal(t, newWorld(t, bin, s), agent, flags...)
		})
	}
	t.Run("installed in the sandbox", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, "/nowhere", newService(t))
		w.env = append(w.env, "NODE_EXTRA_CA_CERTS="+os.Getenv("NODE_EXTRA_CA_CERTS"))
		if out, _ := w.hutch(0, "agent"); !strings.Contains(out, "in its sandbox: @openai/codex") {
			t.Errorf("hutch agent lists %s", out)
		}
		if out, errs := w.hutch(0, "agent", "codex", "-p", task, "--apply", "on-success"); w.greeting() != greeting ||
			!strings.Contains(errs, "its sandbox has @openai/codex") {
			t.Errorf("it says %s%s", out, errs)
		}
	})
	for _, name := range []string{"claude", "claude of a user", "codex", "codex of a user", "gemini", "gemini of a user",
		"opencode", "opencode of a user"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			w := newWorld(t, bin, s)
			agent, user := strings.CutSuffix(name, " of a user")
			if user && os.Getuid() == 0 {
				w.ordinary()
			}
			var flags []string
			if agent == "opencode" {
				flags = s.secret()
			}
			sandbox := agent + "-my-shop"

			out, errs := w.hutch(0, slices.Concat([]string{"agent", agent, "-p", task}, flags)...)
			if !strings.Contains(out, "The greeting is written.") {
				t.Errorf("it said %q\n%s\n%s", out, errs, strings.Join(s.log, "\n"))
			}
			if !strings.Contains(errs, "in sandbox "+sandbox+": hutch diff "+sandbox) {
				t.Errorf("hutch said %q", errs)
			}
			if w.greeting() != "" {
				t.Error("the project was changed without review")
			}
			if len(s.keys) != 1 || !s.keys[key] {
				t.Errorf("the service was asked with the keys %v", s.keys)
			}
			w.nowhere()
			if agent != "opencode" && !strings.Contains(errs, " tokens (") {
				t.Errorf("hutch does not say what was used: %s", errs)
			}

			if _, errs = w.hutch(125, "agent", agent, "--forget"); !strings.Contains(errs, "has changes that were not applied") {
				t.Errorf("--forget says %q", errs)
			}

			// Again, in the same sandbox, and taken.
			_, errs = w.hutch(0, slices.Concat([]string{"agent", agent, "--continue", "-p", task, "--apply", "on-success"}, flags)...)
			if strings.Contains(errs, "recreating") || !strings.Contains(errs, "applied") && !strings.Contains(errs, "allow-tools") {
				t.Errorf("hutch said %q", errs)
			}
			if agent != "opencode" && w.greeting() != "hello from the box\n" { // that one rewrites its settings, which are for review
				t.Errorf("the project has %q\n%s", w.greeting(), errs)
			}
			if out, _ = w.hutch(0, "agent"); !strings.Contains(out, sandbox) {
				t.Errorf("hutch agent says %q", out)
			}
			// A budget that is used up is said to the agent and to the user, and each request is in the record.
			out, errs = w.hutch(budgetCode, slices.Concat([]string{"agent", agent, "-p", task, "--budget", "requests=1", "--budget", "cost=5", "--price", "*=3/15"}, flags)...)
			if all := out + errs; !strings.Contains(errs, "the budget of 1 request is used up") || !strings.Contains(errs, " refused") {
				t.Errorf("beyond the budget: %s", all)
			}
			runs, _ := w.hutch(0, "runs", "-q")
			if events, _ := w.hutch(0, "show", strings.Fields(runs)[0], "--events"); !strings.Contains(events, `"network.requests"`) || !strings.Contains(events, `"status":402`) {
				t.Errorf("the record has %s", events)
			}
			w.hutch(0, "agent", agent, "--forget")
			if out, _ = w.hutch(0, "ps", "-q"); out != "" {
				t.Errorf("there is still %q", out)
			}
		})
	}
}
