package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hutch-run/hutch/plugins/e2b/e2btest"
	"github.com/hutch-run/hutch/plugins/e2b/internal/control"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// local is a local server whose key and addresses the environment reports.
func local(t *testing.T) *e2btest.Server {
	t.Helper()
	s := e2btest.ForTest(t, e2btest.Options{MaxSandboxes: 200, HostNetwork: true})
	t.Setenv(envKey, s.Key)
	t.Setenv(envAPIURL, s.URL)
	t.Setenv(envSandboxURL, s.URL)
	t.Setenv(envDomain, "")
	return s
}

// host is a backend with a host's half of the contract before it.
type host struct {
	*client.Local
	t       *testing.T
	backend *backend
	slept   func() []time.Duration
}

// newHost serves its own backend, which does not really wait between two attempts.
func newHost(t *testing.T) *host {
	t.Helper()
	b := newBackend()
	var mu sync.Mutex
	var slept []time.Duration
	b.sleep = func(ctx context.Context, d time.Duration) error {
		mu.Lock()
		slept = append(slept, d)
		mu.Unlock()
		return control.Sleep(ctx, min(d, 10*time.Millisecond))
	}
	dir, err := os.MkdirTemp("/tmp", "e2b")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := client.InProcess(b, client.Options{PipeDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close the backend: %v", err)
		}
	})
	return &host{l, t, b, func() []time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return append([]time.Duration(nil), slept...)
	}}
}

// request asks for a sandbox of project, "" being none.
func request(t *testing.T, project string, change ...func(*sdk.CreateRequest)) *sdk.CreateRequest {
	t.Helper()
	req := &sdk.CreateRequest{ID: fmt.Sprintf("box-%d", time.Now().UnixNano()), Owner: "tests", StateDir: t.TempDir()}
	req.Network = sdk.NetworkNone
	req.Workspace = sdk.Workspace{Source: project, Mode: sdk.WorkspacePrivate}
	for _, c := range change {
		c(req)
	}
	return req
}

// box makes a sandbox.
func (h *host) box(req *sdk.CreateRequest) *client.Sandbox {
	h.t.Helper()
	sb, err := h.Create(h.t.Context(), req)
	if err != nil {
		h.t.Fatalf("create: %v", err)
	}
	return sb
}

// ran is what a command printed and how it ended.
type ran struct {
	exit           *sdk.Exit
	err            error
	stdout, stderr string
}

// sh runs a script, for at most a minute.
func sh(t *testing.T, sb *client.Sandbox, script string, change ...func(*client.Command)) ran {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c := &client.Command{Argv: []string{"/bin/sh", "-c", script}, Env: map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin"}, Stdout: &stdout, Stderr: &stderr, Grace: 300 * time.Millisecond}
	for _, f := range change {
		f(c)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	exit, err := sb.Exec(ctx, c)
	return ran{exit, err, stdout.String(), stderr.String()}
}

// must runs a script that has to end well.
func must(t *testing.T, sb *client.Sandbox, script string, change ...func(*client.Command)) string {
	t.Helper()
	r := sh(t, sb, script, change...)
	if r.err != nil || r.exit.Cause != sdk.CauseExited || r.exit.Code != 0 {
		t.Fatalf("%q: %+v %v, stderr %q", script, r.exit, r.err, r.stderr)
	}
	return r.stdout
}

// project makes a directory of files: name -> content.
func project(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// machines counts those that the service has.
func machines(t *testing.T, h *host) int {
	t.Helper()
	all, err := h.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// count counts the requests of a kind that the server has seen.
func count(s *e2btest.Server, method, path string) (n int) {
	for _, r := range s.Requests() {
		if r.Method == method && r.Path == path {
			n++
		}
	}
	return n
}

// clientFor speaks to the control plane of the environment.
func (b *backend) clientFor(t *testing.T) *control.Client {
	t.Helper()
	s, err := (&Config{}).service()
	if err != nil {
		t.Fatal(err)
	}
	return control.New(s.apiURL, s.key, b.transport)
}

// mustFind names the machines of a sandbox.
func mustFind(t *testing.T, h *host, id string) (out []string) {
	t.Helper()
	found, err := h.backend.clientFor(t).Find(context.Background(), map[string]string{metaID: id})
	if err != nil {
		t.Error(err)
	}
	for _, d := range found {
		out = append(out, d.ID)
	}
	return out
}
