package procstat

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestNameWithParentheses reads a process whose own name looks like the fields that follow it.
func TestNameWithParentheses(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "a) Z 1 (b")
	if err := os.Symlink(sleep, program); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, "600")
	c.Args[0] = "sleep" // busybox and coreutils look at it
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	s, err := Of(c.Process.Pid)
	if err != nil || s.Parent != os.Getpid() || s.Dead() || s.Start == 0 || !Alive(c.Process.Pid) {
		t.Errorf("%+v, %v", s, err)
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	if s, err := Of(c.Process.Pid); err == nil || Alive(c.Process.Pid) {
		t.Errorf("a process that has ended: %+v", s)
	}
}
