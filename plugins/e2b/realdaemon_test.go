package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/backendtest"
)

// realDaemon names E2B's own daemon to run the suite against: the path of an envd program, of which each sandbox gets
// one in namespaces of its own (as root only), or the address of one that runs already, which all sandboxes then share.
// docs/e2b.md says how to build it.
const realDaemon = "HUTCH_TEST_ENVD"

// TestRealDaemon runs the conformance suite on E2B's own in-sandbox daemon.
func TestRealDaemon(t *testing.T) {
	envd := os.Getenv(realDaemon)
	if envd == "" {
		t.Skip(realDaemon + " names no envd to run this with; see docs/e2b.md")
	}
	p := &plane{t: t, envd: envd, dir: t.TempDir(), live: map[string]*machine{}}
	s := httptest.NewServer(p)
	defer s.Close()
	defer p.close()
	t.Setenv(envKey, "e2b_0")
	t.Setenv(envAPIURL, s.URL)
	t.Setenv(envSandboxURL, s.URL)
	suite := backendtest.Suite{StandIn: true, New: func() sdk.Backend { return newBackend() }, Only: picked()}
	if strings.HasPrefix(envd, "http") { // one machine for all: a test that looks for its own workspace finds others' files
		suite.Only = regexp.MustCompile("^(exec|stream|end|tty|argv|env|user|process)/")
	}
	backendtest.Run(t, suite)
}

// plane is a control plane that knows as much as the backend asks for.
type plane struct {
	t    *testing.T
	envd string
	dir  string

	mu   sync.Mutex
	live map[string]*machine
}

// machine is one sandbox with its daemon.
type machine struct {
	ID       string            `json:"sandboxID"`
	Template string            `json:"templateID"`
	Version  string            `json:"envdVersion"`
	Token    string            `json:"envdAccessToken"`
	State    string            `json:"state"`
	Metadata map[string]string `json:"metadata"`

	proxy http.Handler
	stop  func()
}

// ServeHTTP implements [http.Handler].
func (p *plane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("E2b-Sandbox-Id")
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if id == "" && len(parts) > 1 && parts[0] == "sandboxes" {
		id = parts[1]
	}
	p.mu.Lock()
	m, paused := p.live[id], false
	if m != nil {
		paused = m.State == "paused"
	}
	p.mu.Unlock()
	answer := func(status int, v any) {
		w.WriteHeader(status)
		if v != nil {
			_ = json.NewEncoder(w).Encode(v)
		}
	}
	switch {
	case r.Header.Get("E2b-Sandbox-Id") != "" && (m == nil || paused):
		answer(http.StatusBadGateway, map[string]any{"code": 502, "message": "The sandbox was not found"})
	case r.Header.Get("E2b-Sandbox-Id") != "":
		_ = http.NewResponseController(w).EnableFullDuplex()
		m.proxy.ServeHTTP(w, r)
	case r.URL.Path == "/v2/sandboxes":
		all := []machine{}
		p.mu.Lock()
		for _, m := range p.live {
			all = append(all, *m)
		}
		p.mu.Unlock()
		answer(http.StatusOK, all)
	case r.Method == http.MethodPost && len(parts) == 1:
		var in machine
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			answer(http.StatusBadRequest, map[string]any{"code": 400, "message": err.Error()})
			return
		}
		m, err := p.start(in.Metadata)
		if err != nil {
			p.t.Errorf("start a daemon: %v", err)
			answer(http.StatusInternalServerError, map[string]any{"code": 500, "message": err.Error()})
			return
		}
		answer(http.StatusCreated, m)
	case m == nil:
		answer(http.StatusNotFound, map[string]any{"code": 404, "message": "no such sandbox"})
	case r.Method == http.MethodDelete:
		p.mu.Lock()
		delete(p.live, id)
		p.mu.Unlock()
		m.stop()
		answer(http.StatusNoContent, nil)
	case len(parts) == 3 && parts[2] == "timeout":
		answer(http.StatusNoContent, nil)
	case len(parts) == 3 && parts[2] == "pause" && paused:
		answer(http.StatusConflict, map[string]any{"code": 409, "message": "it is paused already"})
	case len(parts) == 3 && parts[2] == "pause": // its daemon is only not reached
		p.turn(m, "paused")
		answer(http.StatusNoContent, nil)
	case len(parts) == 3 && parts[2] == "connect":
		answer(http.StatusOK, p.turn(m, "running"))
	default:
		answer(http.StatusOK, p.turn(m, ""))
	}
}

// turn puts a machine into a state, unless that is "", and returns what it is then.
func (p *plane) turn(m *machine, state string) machine {
	p.mu.Lock()
	defer p.mu.Unlock()
	if state != "" {
		m.State = state
	}
	return *m
}

func (p *plane) close() {
	for _, m := range p.live {
		m.stop()
	}
}

// start starts a daemon, or uses the one there is, and configures it as E2B's orchestrator would.
func (p *plane) start(metadata map[string]string) (*machine, error) {
	m := &machine{ID: "i" + strings.ToLower(rand.Text()[:20]), Template: "base", Version: "0.6.13", State: "running", Metadata: metadata, stop: func() {}}
	target, transport := p.envd, http.RoundTripper(http.DefaultTransport)
	if !strings.HasPrefix(p.envd, "http") {
		target = "http://127.0.0.1:49983"
		var err error
		if transport, m.stop, err = p.spawn(m.ID); err != nil {
			return nil, err
		}
		m.Token = rand.Text()
	}
	u, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	m.proxy = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }, Transport: transport, FlushInterval: -1, ErrorLog: nil}
	if m.Token != "" {
		init, _ := json.Marshal(map[string]any{"accessToken": m.Token, "envVars": map[string]string{}, "defaultUser": "user", "defaultWorkdir": "/home/user"})
		for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			resp, err := (&http.Client{Transport: transport}).Post(target+"/init", "application/json", bytes.NewReader(init))
			if err == nil {
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if resp.StatusCode == http.StatusNoContent {
					break
				}
				err = fmt.Errorf("init: %s %s", resp.Status, body)
			}
			if time.Since(began) > 30*time.Second {
				m.stop()
				return nil, err
			}
		}
	}
	p.mu.Lock()
	p.live[m.ID] = m
	p.mu.Unlock()
	return m, nil
}

// spawn starts an envd with a root directory, processes and its own network.
func (p *plane) spawn(id string) (http.RoundTripper, func(), error) {
	root := filepath.Join(p.dir, id)
	for _, d := range []string{"etc", "home/user", "root", "run", "tmp", "var/lib", "var/tmp", "proc", "dev", "usr"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return nil, nil, err
		}
	}
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n", "etc/group": "root:x:0:\nuser:x:1000:\n",
		"etc/hosts": "127.0.0.1 localhost\n", "etc/nsswitch.conf": "passwd: files\ngroup: files\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			return nil, nil, err
		}
	}
	for _, d := range []string{"tmp", "var/tmp"} {
		if err := os.Chmod(filepath.Join(root, d), 0o777|os.ModeSticky); err != nil {
			return nil, nil, err
		}
	}
	if err := os.Chown(filepath.Join(root, "home/user"), 1000, 1000); err != nil {
		return nil, nil, err
	}
	// No --die-with-parent: that is the end of the thread which starts it, and threads come and go here.
	args := []string{"--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--clearenv", "--setenv", "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"--bind", root, "/", "--ro-bind", "/usr", "/usr", "--ro-bind", p.envd, "/run/envd", "--ro-bind-try", "/etc/alternatives", "/etc/alternatives", "--proc", "/proc", "--dev", "/dev",
		"--cap-add", "ALL", "--info-fd", "3"}
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		args = append(args, "--symlink", "usr/"+d, "/"+d)
	}
	if socat := "/usr/bin/socat"; exec.Command("test", "-e", socat).Run() == nil { // it would forward every port that it sees
		args = append(args, "--ro-bind", "/dev/null", socat)
	}
	args = append(args, "--", "/run/envd", "-isnotfc", "-no-cgroups")
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	var log bytes.Buffer
	cmd := exec.Command("bwrap", args...)
	cmd.ExtraFiles, cmd.Stderr, cmd.Stdout = []*os.File{w}, &log, io.Discard
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	w.Close()
	var info struct {
		Child int `json:"child-pid"`
	}
	stop := func() {
		if child, err := os.FindProcess(info.Child); err == nil && info.Child > 0 {
			_ = child.Kill()
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(root)
	}
	if err := json.NewDecoder(r).Decode(&info); err != nil {
		stop()
		return nil, nil, fmt.Errorf("bwrap: %w: %s", err, &log)
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", info.Child))
	if err != nil {
		stop()
		return nil, nil, err
	}
	transport := &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return dialIn(ctx, ns, network, address)
	}}
	return transport, func() { transport.CloseIdleConnections(); ns.Close(); stop() }, nil
}

// dialIn connects from within a network namespace. The thread that was in it is not used for anything else.
func dialIn(ctx context.Context, ns *os.File, network, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- result{nil, err}
			return
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}
