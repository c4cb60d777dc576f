package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/sdk"
)

// TestMain builds the agent once, where every user may execute it.
func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if len(os.Args) > 1 && os.Args[1] == filterCommand { // by nsenter, as the plugin is
		if err := filterNetwork(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	if os.Getenv(testAgentVariable) != "" {
		return m.Run() // started again as another user
	}
	dir, err := os.MkdirTemp("/var/tmp", "hutch-podman-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	agent, err := podmantest.Agent(dir)
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	os.Setenv(testAgentVariable, agent)
	return m.Run()
}

// config is a backend block for tests: an image of this machine.
func config(t testing.TB) *Config {
	c := configOf(&sdk.Spec{})
	c.Image, c.Pull = podmantest.Busybox(t), "never"
	return c
}

// project makes a host directory with a few files.
func project(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range map[string]string{"a.txt": "a\n", "b.txt": "b\n", "dir/c.txt": "c\n", "dir/d.txt": "d\n"} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// private is a spec with a private workspace over dir.
func private(t testing.TB, dir string) sdk.Spec {
	return sdk.Spec{Config: config(t), Network: sdk.NetworkNone, Workspace: sdk.Workspace{Source: dir, Mode: sdk.WorkspacePrivate}}
}

// newSandbox makes a sandbox of spec and removes it when the test ends.
func newSandbox(t testing.TB, b *backend, spec sdk.Spec, change ...func(*sdk.CreateRequest)) *sandbox {
	t.Helper()
	s, h, err := makeSandbox(t, b, spec, change...)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	t.Cleanup(func() {
		if err := b.Destroy(context.Background(), h); err != nil {
			t.Errorf("destroy: %v", err)
		}
	})
	return s
}

// makeSandbox makes a sandbox of spec.
func makeSandbox(t testing.TB, b *backend, spec sdk.Spec, change ...func(*sdk.CreateRequest)) (*sandbox, sdk.Handle, error) {
	t.Helper()
	var handle sdk.Handle
	req := &sdk.CreateRequest{
		Spec: spec, ID: fmt.Sprintf("test-%d-%d", os.Getpid(), time.Now().UnixNano()), Owner: fmt.Sprintf("test-%d", os.Getpid()), StateDir: t.TempDir(),
		Allocated: func(h sdk.Handle) error { handle = h; return nil }, Progress: func(string, int64, int64) {},
	}
	for _, c := range change {
		c(req)
	}
	sb, err := b.Create(t.Context(), req)
	if err != nil {
		return nil, handle, err
	}
	return sb.(*sandbox), handle, nil
}

func kept(r *sdk.CreateRequest) { r.Keep = true }

// ran is what one command did.
type ran struct {
	*sdk.Exit
	out, err string
}

// sh runs a shell script in the sandbox.
func sh(t testing.TB, s *sandbox, script string, change ...func(*sdk.Command)) ran {
	t.Helper()
	c := &sdk.Command{Argv: []string{"/bin/sh", "-c", script}}
	for _, f := range change {
		f(c)
	}
	r, err := run(t.Context(), s, c)
	if err != nil {
		t.Fatalf("exec %q: %v", script, err)
	}
	return r
}

// must runs a script that has to end well, and returns what it printed.
func must(t testing.TB, s *sandbox, script string) string {
	t.Helper()
	r := sh(t, s, script)
	if r.Code != 0 || r.Cause != sdk.CauseExited {
		t.Fatalf("%q ended with %+v\nstdout: %s\nstderr: %s", script, r.Exit, r.out, r.err)
	}
	return r.out
}

// run runs a command; its streams are pipes, as a host's FIFOs would be.
func run(ctx context.Context, s *sandbox, c *sdk.Command) (ran, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return ran{}, err
	}
	defer null.Close()
	c.Stdin = null
	var r ran
	outs := []struct {
		to   *string
		file *sdk.File
	}{{&r.out, &c.Stdout}, {&r.err, &c.Stderr}}
	done := make(chan struct{}, len(outs))
	for _, o := range outs {
		read, write, err := os.Pipe()
		if err != nil {
			return r, err
		}
		*o.file = write
		go func() {
			var b bytes.Buffer
			_, _ = io.Copy(&b, read)
			read.Close()
			*o.to = b.String()
			done <- struct{}{}
		}()
	}
	r.Exit, err = s.Exec(ctx, c)
	c.Stdout.Close()
	c.Stderr.Close()
	for range outs {
		<-done
	}
	return r, err
}

func contains(t testing.TB, what, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%s does not say %q:\n%s", what, p, text)
		}
	}
}
