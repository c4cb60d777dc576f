package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/limits"
)

// TestHelperPlugin is no test: it is the process that the tests below kill.
func TestHelperPlugin(t *testing.T) {
	seconds, dir, found := strings.Cut(os.Getenv("HUTCH_TEST_HELPER"), " ")
	if !found {
		t.Skip("runs only as a helper")
	}
	req := request(t, sdk.Spec{Limits: sdk.Limits{PIDs: 50}})
	req.StateDir = dir
	req.Allocated = func(h sdk.Handle) error {
		data, err := json.Marshal(h)
		fmt.Printf("handle %s\n", data)
		return err
	}
	s, err := create(t.Context(), req, limits.Probe(), nil)
	if err != nil {
		t.Fatal(err)
	}
	null := devNull(t)
	for i := range 3 {
		go func() {
			_, _ = s.Exec(t.Context(), &sdk.Command{Argv: []string{"sh", "-c",
				strings.ReplaceAll("setsid sleep SECONDS & (setsid sleep SECONDS &); exec sleep SECONDS", "SECONDS", seconds)},
				Stdin: null, Stdout: null, Stderr: null, Started: func() { fmt.Printf("started %d\n", i) }})
		}()
	}
	select {}
}

// TestSandboxDiesWithThePlugin kills the plugin at many points of its life and
// then finishes what a host would: Destroy, from this process, by the handle.
func TestSandboxDiesWithThePlugin(t *testing.T) {
	needBwrap(t)
	b := newBackend()
	for i := range 30 {
		seconds, dir := marker(t), t.TempDir()
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestHelperPlugin$")
		cmd.Env = append(os.Environ(), "HUTCH_TEST_HELPER="+seconds+" "+dir, "TMPDIR="+t.TempDir())
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var last sdk.Handle
		lines := bufio.NewScanner(out)
		started := 0
		// Half of them die at their own time after the handle, while the sandbox
		// and its commands are being made; the other half with everything running.
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), "handle "); ok {
				if err := json.Unmarshal([]byte(text), &last); err != nil {
					t.Fatal(err)
				}
				if i%2 == 0 {
					time.AfterFunc(time.Duration(i)*700*time.Microsecond, func() { _ = cmd.Process.Kill() })
				}
			}
			if strings.HasPrefix(lines.Text(), "started") {
				if started++; started == 3 && i%2 == 1 {
					break
				}
			}
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		gone := func() bool { return len(alive(t, seconds)) == 0 && len(childrenOf(t, dir)) == 0 }
		for deadline := time.Now().Add(time.Minute); !gone(); time.Sleep(2 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("round %d: %v and %v outlive the plugin", i, alive(t, seconds), childrenOf(t, dir))
			}
		}
		for range 2 { // the second time there is nothing to do
			if err := b.Destroy(t.Context(), last); err != nil {
				t.Fatalf("round %d: destroy: %v", i, err)
			}
		}
		if left, err := limits.List("bwrap-" + last.ID); err != nil || len(left) > 0 {
			t.Errorf("round %d: cgroups %v are left (%v)", i, left, err)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("round %d: %v is left", i, left)
		}
	}
}

// childrenOf lists processes that still use the directory dir, as a mount or a file.
func childrenOf(t testing.TB, dir string) (out []string) {
	t.Helper()
	tables, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range tables {
		if data, err := os.ReadFile(p); err == nil && strings.Contains(string(data), dir) {
			out = append(out, p)
		}
	}
	return out
}
