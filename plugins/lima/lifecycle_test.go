package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hutch-run/hutch/test/e2e"
)

// TestLifeCycle interrupts each phase of a sandbox's life by each event, as test/crash does for the other backends. The
// holder of a sandbox is its VM.
func TestLifeCycle(t *testing.T) {
	standIn(t)
	t.Parallel()
	base, err := os.MkdirTemp("", "l") // short: sockets lie in it
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(base, name) }
	t.Cleanup(func() {
		stopAll(in("v"))
		os.RemoveAll(base)
	})
	for _, dir := range []string{"h", "r", "t", "v", "w"} {
		if err := os.Mkdir(in(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	vm, err := exec.LookPath("limatest-machine")
	if err != nil {
		t.Fatal(err)
	}
	e2e.Dir = filepath.Join(filepath.Dir(os.Getenv(testGuestVariable)), "..", "..")
	(&e2e.Life{
		Backend: `backend "lima" { stop_when_idle = true }`, Base: base, Home: in("h"), Work: in("w"), Runtime: in("r"), Tmp: in("t"), Holders: []string{vm},
		Command: func(args ...string) *exec.Cmd {
			c := exec.Command(e2e.Hutch(), args...)
			c.Dir = in("w")
			c.Env = []string{"HOME=" + base, "HUTCH_HOME=" + in("h"), "XDG_RUNTIME_DIR=" + in("r"), "TMPDIR=" + in("t"), "LIMA_HOME=" + in("v"), "PATH=" + os.Getenv("PATH")}
			return c
		},
	}).Run(t)
}
