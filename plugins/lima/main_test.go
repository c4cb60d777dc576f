package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hutch-run/hutch/internal/gobuild"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

func TestMain(m *testing.M) {
	if slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "-test.fuzz") }) {
		os.Exit(m.Run()) // as this user, who can read the cache of the fuzzer; no target needs a VM
	}
	if !isStandIn() && os.Getenv(testGuestVariable) == "" {
		dir, err := build()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		code := runStandIn(m)
		os.RemoveAll(dir)
		os.Exit(code)
	}
	os.Exit(runStandIn(m))
}

// build builds hutch with this backend, as it is installed; every test process of this package finds the guest's
// program in there.
func build() (dir string, err error) {
	dir, err = os.MkdirTemp("/tmp", "hlb-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return dir, err
	}
	program := filepath.Join(dir, "libexec", "hutch", guestProgram)
	for to, pkg := range map[string]string{
		program: "./guest", filepath.Join(dir, "libexec", "hutch", "hutch-backend-lima"): ".", filepath.Join(dir, "bin", "hutch"): "../../cmd/hutch",
		filepath.Join(dir, "libexec", "hutch", "hutch-agent"): "../../cmd/hutch-agent",
	} {
		if err := gobuild.Build(to, pkg, "-buildvcs=false", "-ldflags=-s -w"); err != nil {
			return dir, err
		}
	}
	return dir, os.Setenv(testGuestVariable, program)
}

// configVariable holds the block of the VM for tests with the real limactl, as JSON: {"image": "/guest.img", "kernel":
// …}. Without it the VM is hutch-test, made of Lima's own Debian.
const configVariable = "HUTCH_TEST_LIMA_CONFIG"

// testConfig is the block of the VM that the tests share.
func testConfig(t testing.TB) map[string]any {
	t.Helper()
	if os.Getenv(realVariable) != "1" {
		return map[string]any{"instance": "t"}
	}
	c := map[string]any{"instance": "hutch-test"}
	if text := os.Getenv(configVariable); text != "" {
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			t.Fatalf("%s: %v", configVariable, err)
		}
	}
	return c
}

// started starts the tests' VM, once, by making a sandbox in it: what is asked of the backend later has no time for
// that.
func started(t testing.TB) error {
	once.Do(func() {
		dir, err := os.MkdirTemp("", "started")
		if err != nil {
			startError = err
			return
		}
		defer os.RemoveAll(dir)
		var local *client.Local
		if local, startError = client.InProcess(&keepsConfig{newBackend()}, client.Options{PipeDir: dir}); startError != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
		defer cancel()
		req := &sdk.CreateRequest{ID: fmt.Sprintf("first-%d", os.Getpid()), Owner: "started", StateDir: dir, Progress: func(step string, _, _ int64) { t.Log(step) }}
		var block json.RawMessage
		block, startError = json.Marshal(testConfig(t))
		req.Config = block
		req.Workspace.Mode = sdk.WorkspacePrivate
		if startError == nil {
			_, startError = local.Client.Create(ctx, req)
		}
		startError = errors.Join(startError, local.Close())
	})
	return startError
}

var (
	once       sync.Once
	startError error
	made       *Config // what the real VM of all tests was made from; nil with the stand-in
)

// keepsConfig is the backend, which notes the block as the library has read it.
type keepsConfig struct{ *backend }

func (b *keepsConfig) Create(ctx context.Context, req *sdk.CreateRequest) (sdk.Sandbox, error) {
	if os.Getenv(realVariable) == "1" {
		made = configOf(&req.Spec)
	}
	return b.backend.Create(ctx, req)
}

// needVM starts the tests' VM.
func needVM(t testing.TB) {
	t.Helper()
	needStandIn(t)
	if err := started(t); err != nil {
		t.Fatalf("start the tests' VM: %v", err)
	}
}
