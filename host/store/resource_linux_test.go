package store

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	helpers["sleep"] = func(*Store, string) error { fmt.Println("ready"); time.Sleep(time.Hour); return nil }
}

// newCgroup makes a cgroup where this process may, v1 or v2.
func newCgroup(t *testing.T) string {
	t.Helper()
	var err error
	for _, parent := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		dir := filepath.Join(parent, fmt.Sprintf("hutch-store-test-%d", os.Getpid()))
		if _, serr := os.Stat(filepath.Join(parent, "cgroup.procs")); serr != nil {
			err = serr
			continue
		}
		if err = os.Mkdir(dir, 0o755); err == nil {
			t.Cleanup(func() {
				_ = os.Remove(filepath.Join(dir, "child"))
				_ = os.Remove(dir)
			})
			return dir
		}
	}
	require(t, "cgroup", err)
	return ""
}

func TestRemoveCgroupWithProcessesInIt(t *testing.T) {
	dir := newCgroup(t)
	if err := os.Mkdir(filepath.Join(dir, "child"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := newStore(t)
	var procs []*exec.Cmd
	for _, d := range []string{dir, filepath.Join(dir, "child")} {
		cmd, lines := startHelper(t, s, "sleep", "")
		lines.Scan()
		if err := os.WriteFile(filepath.Join(d, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			if d == dir { // v2 may refuse processes beside children; those in the child are the case
				continue
			}
			t.Fatal(err)
		}
		procs = append(procs, cmd)
	}
	if err := removeResource(t.Context(), Resource{ResourceCgroup, dir}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Error("the cgroup is still there")
	}
	for _, cmd := range procs {
		if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
			t.Errorf("a process of the cgroup: %v", err)
		}
	}
	if err := removeResource(t.Context(), Resource{ResourceCgroup, dir}); err != nil {
		t.Errorf("a cgroup that is gone: %v", err)
	}
}

// TestRemoveMount runs itself again in a mount namespace, as TestNoSpace does.
func TestRemoveMount(t *testing.T) {
	if os.Getenv("HUTCH_STORE_TEST_INSIDE") == "" {
		inside(t, "TestRemoveMount")
		return
	}
	dir := t.TempDir()
	unmount, err := mountTmpfs(dir, 1<<20)
	if err != nil {
		t.Fatalf("%s: %v", noMount, err)
	}
	t.Cleanup(unmount)
	f, err := os.Create(filepath.Join(dir, "busy"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 2 { // the second time it is no mount point any more
		if err := removeResource(t.Context(), Resource{ResourceMount, dir}); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("still mounted: %v %v", left, err)
	}
}

// TestProcessAlive: a zombie is dead, and so is a process whose number was reused.
func TestProcessAlive(t *testing.T) {
	s := newStore(t)
	cmd, lines := startHelper(t, s, "hold deps", "k")
	lines.Scan()
	p := Self()
	p.PID = cmd.Process.Pid
	var ok bool
	if p.Start, ok = processStart(p.PID); !ok || !p.Alive() {
		t.Fatalf("%+v is not alive", p)
	}
	other := p
	other.Start++
	if other.Alive() {
		t.Error("another process of the same number is alive")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // until its end of the pipe is closed
	}
	var status unix.Siginfo
	if err := unix.Waitid(unix.P_PID, p.PID, &status, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if p.Alive() {
		t.Error("a zombie is alive")
	}
}
