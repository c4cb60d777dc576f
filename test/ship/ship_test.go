// Package ship runs what brings backends from their publisher to a user as users do: the built hutch with its helper
// hutch-agent, and a real registry on this machine.
package ship

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/hutch-run/hutch/host/install"
	"github.com/hutch-run/hutch/host/release"
	"github.com/hutch-run/hutch/test/e2e"
)

func TestMain(m *testing.M) {
	os.Exit(e2e.Main(m, map[string]string{"libexec/hutch/hutch-agent": "cmd/hutch-agent", "fakes/hutch-backend-fake": "plugins/fake"}))
}

// patience is how long a call may take that is expected to end by itself; it is long, for a busy machine.
const patience = 2 * time.Minute

// before answers a request in the place of the registry, or returns false.
type before func(rw http.ResponseWriter, r *http.Request) bool

// newRegistry runs a registry on this machine with h before it, which may be nil, and returns its HOST:PORT.
func newRegistry(t testing.TB, h before) string {
	reg := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if h == nil || !h(rw, r) {
			reg.ServeHTTP(rw, r)
		}
	}))
	t.Cleanup(func() {
		s.CloseClientConnections() // one that never answers would be waited for
		s.Close()
	})
	return s.Listener.Addr().String()
}

// private lets in who says that they are me, with the password secret.
func private(rw http.ResponseWriter, r *http.Request) bool {
	if user, password, ok := r.BasicAuth(); ok && user == "me" && password == "secret" {
		return false
	}
	rw.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
	rw.WriteHeader(http.StatusUnauthorized)
	return true
}

// helper runs hutch-agent registry to its end. data is what it wrote to stdout when the call is archive.
func helper(t *testing.T, env []string, args ...string) (a install.Answer, data []byte, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := command(ctx, env, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) || ctx.Err() != nil {
		t.Fatalf("hutch-agent registry %q: %v, %v\n%s%s", args, err, ctx.Err(), stdout.Bytes(), stderr.Bytes())
	}
	answer, other := &stdout, &stderr
	if len(args) > 0 && args[0] == "archive" {
		answer, other = &stderr, &stdout
		data = stdout.Bytes()
	}
	if err := json.Unmarshal(answer.Bytes(), &a); err != nil {
		t.Fatalf("hutch-agent registry %q answered %q, which is no answer: %v", args, answer, err)
	}
	if data == nil && other.Len() > 0 {
		t.Errorf("hutch-agent registry %q wrote %q besides", args, other)
	}
	if code = cmd.ProcessState.ExitCode(); (code == 0) != (a.Error == "") {
		t.Errorf("hutch-agent registry %q ended with %d and said %q", args, code, a.Error)
	}
	return a, data, code
}

// command is a call of hutch-agent registry, with nobody's credentials.
func command(ctx context.Context, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(e2e.Dir, "libexec", "hutch", "hutch-agent"), append([]string{"registry"}, args...)...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "DOCKER_CONFIG=/nonexistent"}, env...)
	return cmd
}

// packed makes a release whose program is a few bytes of text, and returns the path of its manifest.
func packed(t *testing.T, dir, version string) (manifest string, m *release.Manifest) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho "+version+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	m, err := release.Pack(dir, "acme", version, []int{1}, []release.Build{{Platform: "linux/amd64", Binary: program}, {Platform: "linux/arm64", Binary: program}})
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, release.ManifestName("acme", version)), m
}

func has(t *testing.T, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("got %q, want %q in it", text, want)
	}
}
