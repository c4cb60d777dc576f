package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hutch-run/hutch/plugins/lima/internal/limatest"
	"github.com/hutch-run/hutch/sdk"
)

func TestMain(m *testing.M) {
	if !limatest.StandIn() && os.Getenv(testGuestVariable) == "" {
		dir, err := build()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		code := limatest.Run(m)
		os.RemoveAll(dir)
		os.Exit(code)
	}
	os.Exit(limatest.Run(m))
}

// build builds hutch with this backend, as it is installed; every test process of this package finds the guest's program in there.
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
	} {
		cmd := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", to, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
	}
	return dir, os.Setenv(testGuestVariable, program)
}

// testConfig is the block of the VM that the tests share: the stand-in's, or the real one that HUTCH_TEST_LIMA_INSTANCE names.
func testConfig() map[string]any {
	name := "t"
	if real := os.Getenv("HUTCH_TEST_LIMA_INSTANCE"); real != "" && os.Getenv(limatest.RealVariable) == "1" {
		name = real
	}
	return map[string]any{"instance": name}
}

// started starts the tests' VM, once.
var started = sync.OnceValue(func() error {
	l, err := findLimactl()
	if err != nil {
		return err
	}
	name := testConfig()["instance"].(string)
	cfg := configOf(&sdk.Spec{})
	cfg.Instance = name
	m := &machine{name: name, limactl: l, records: l.records(name)}
	home, err := exchangeHome("")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	_, err = m.connect(ctx, &plan{cfg: cfg, exchange: exchangeOf{home, guestExchange}}, 10*time.Minute, nil)
	m.leave()
	return err
})

// needVM starts the tests' VM.
func needVM(t testing.TB) {
	t.Helper()
	limatest.Need(t)
	if err := started(); err != nil {
		t.Fatalf("start the tests' VM: %v", err)
	}
}
