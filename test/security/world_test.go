package security

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/test/e2e"
)

var nonce = fmt.Sprintf("hutch-probe-%d-%d", os.Getpid(), time.Now().UnixNano())

func TestMain(m *testing.M) {
	os.Exit(e2e.Main(m, map[string]string{
		"probe": "test/security/probe", "libexec/hutch/hutch-backend-podman": "plugins/podman", "libexec/hutch/hutch-podman-agent": "plugins/podman/agent",
		"libexec/hutch/hutch-backend-landlock": "plugins/landlock",
	}))
}

// world is one user's machine, full of things that a payload must not reach.
type world struct {
	place
	nonce         string // no other world has it
	home, project string
	secrets       map[string]string // name -> path; each file holds the nonce
	decoy         string            // a host file to write to or link
	tcp           string            // a service on loopback
	abstract      string            // an abstract socket
	socket        string            // a pathname socket
	victim        *exec.Cmd         // a process that carries the nonce on its command line
	marker        string            // name of files that attacks drop
	mode          string            // of the workspace; "" for private
}

var worlds atomic.Int64

func newWorld(t *testing.T, p place) *world {
	t.Helper()
	base, err := os.MkdirTemp("/var/tmp", "hutch-world-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(base) })
	must(t, os.Chmod(base, 0o755))
	w := &world{
		place: p, nonce: fmt.Sprintf("%s-%d", nonce, worlds.Add(1)), secrets: map[string]string{},
		home: filepath.Join(base, "home"), project: filepath.Join(base, "home", "project"), decoy: filepath.Join(base, "decoy"),
	}
	w.marker = w.nonce + "-marker"
	for _, dir := range []string{w.home, filepath.Join(w.home, ".ssh"), w.project,
		filepath.Join(w.project, "dir"), filepath.Join(w.project, ".git", "hooks")} {
		must(t, os.MkdirAll(dir, 0o755))
	}
	w.secrets["ssh"] = filepath.Join(w.home, ".ssh", "id_probe")
	w.secrets["home"] = filepath.Join(w.home, "notes.txt")
	w.secrets["vartmp"] = filepath.Join(base, "secret")
	w.secrets["tmp"] = filepath.Join("/tmp", w.nonce)
	if os.Getuid() == 0 {
		w.secrets["etc"] = filepath.Join("/etc", w.nonce)
	}
	for _, p := range w.secrets {
		must(t, os.WriteFile(p, []byte(w.nonce+"\n"), 0o644))
		t.Cleanup(func() { os.Remove(p) })
	}
	for p, content := range map[string]string{
		w.decoy:                                 "untouched\n",
		filepath.Join(w.project, "kept"):        "kept\n",
		filepath.Join(w.project, "dir/in"):      "in\n",
		filepath.Join(w.project, ".git/config"): "[core]\n\tbare = false\n",
		filepath.Join(w.project, ".git/HEAD"):   "ref: refs/heads/main\n",
	} {
		must(t, os.WriteFile(p, []byte(content), 0o644))
	}
	b, err := os.ReadFile(filepath.Join(e2e.Dir, "probe"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(w.project, "probe"), b, 0o755))

	w.tcp = listen(t, "tcp", "127.0.0.1:0").String()
	w.abstract = "@" + w.nonce
	listen(t, "unix", w.abstract)
	w.socket = filepath.Join(base, "socket")
	listen(t, "unix", w.socket)

	if os.Getuid() == 0 {
		must(t, filepath.WalkDir(base, func(p string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(p, w.uid, w.gid)
		}))
	}
	w.victim = exec.Command(filepath.Join(e2e.Dir, "probe"), "linger", w.nonce)
	w.as(w.victim)
	must(t, w.victim.Start())
	t.Cleanup(func() { w.victim.Process.Kill(); w.victim.Wait() })
	return w
}

// listen serves connections by closing them.
func listen(t *testing.T, network, addr string) net.Addr {
	t.Helper()
	l, err := net.Listen(network, addr)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	if network == "unix" && !strings.HasPrefix(addr, "@") {
		must(t, os.Chmod(addr, 0o777))
	}
	return l.Addr()
}

// as makes cmd run as the world's user, with an environment that holds a token.
func (w *world) as(cmd *exec.Cmd) {
	cmd.Dir = w.project
	cmd.Env = []string{
		"HOME=" + w.home, "HUTCH_HOME=" + filepath.Join(w.home, ".hutch"), "PATH=/usr/local/bin:/usr/bin:/bin",
		"PROBE_TOKEN=" + w.nonce, "GITHUB_TOKEN=" + w.nonce,
	}
	cmd.Env = append(cmd.Env, w.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(w.uid), Gid: uint32(w.gid)}
	}
}

// outcome is what one attack came to, seen from outside.
type outcome struct {
	verdict *verdict // nil when the probe did not live to tell
	result  *result  // empty in a control run
	code    int
	output  string // all that was printed, for messages
}

type verdict struct {
	Breached bool   `json:"breached"`
	Detail   string `json:"detail"`
}

// result is what the tests read of hutch.result/v1.
type result struct {
	Schema   string `json:"schema"`
	Cause    string `json:"cause"`
	ExitCode int    `json:"exit_code"`
	Stdout   struct {
		Text    string `json:"text"`
		Bytes   int64  `json:"bytes"`
		Dropped int64  `json:"dropped"`
	} `json:"stdout"`
	Limits []struct {
		Limit  string `json:"limit"`
		HeldBy string `json:"held_by"`
	} `json:"limits"`
	Changes []struct {
		Path string `json:"path"`
		Kind string `json:"kind"`
	} `json:"changes"`
	Error struct {
		Phase, Reason, Summary string
	} `json:"error"`
}

// heldBy says whether a limit was held by such a mechanism.
func (r *result) heldBy(limit, mechanism string) bool {
	for _, l := range r.Limits {
		if l.Limit == limit {
			return strings.HasPrefix(l.HeldBy, mechanism)
		}
	}
	return false
}

// sandboxed runs the probe through hutch.
func (w *world) sandboxed(t *testing.T, flags, probe []string) outcome {
	t.Helper()
	args := append([]string{"run", "--backend", w.backend, "--workspace", w.workspace(), "-o", "json"}, flags...)
	args = append(append(args, "--", "./probe"), probe...)
	stdout, stderr, code := w.run(t, e2e.Hutch(), args...)
	o := outcome{code: code, output: stdout + stderr, result: &result{}}
	if err := json.Unmarshal([]byte(stdout), o.result); err != nil {
		t.Fatalf("hutch %s: no result object: %v\nstdout: %s\nstderr: %s", strings.Join(args, " "), err, stdout, stderr)
	}
	o.verdict = parseVerdict(o.result.Stdout.Text)
	return o
}

func (w *world) workspace() string {
	if w.mode == "" {
		return w.project
	}
	return w.project + ":" + w.mode
}

// bare runs the probe with no sandbox at all.
func (w *world) bare(t *testing.T, probe []string) outcome {
	t.Helper()
	stdout, stderr, code := w.run(t, filepath.Join(w.project, "probe"), probe...)
	return outcome{code: code, output: stdout + stderr, verdict: parseVerdict(stdout), result: &result{}}
}

func (w *world) run(t *testing.T, name string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	w.as(cmd)
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		t.Fatalf("%s: %v\n%s", name, err, e.String())
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// parseVerdict finds the probe's JSON line.
func parseVerdict(out string) *verdict {
	for _, line := range strings.Split(out, "\n") {
		if i := strings.Index(line, `{"breached":`); i >= 0 {
			var v verdict
			if json.Unmarshal([]byte(strings.TrimSpace(line[i:])), &v) == nil {
				return &v
			}
		}
	}
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
