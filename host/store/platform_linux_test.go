package store

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

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

// TestK1ProcessesOfALostSandbox: gc kills what still has a layer mounted that was removed, and leaves what belongs to a
// sandbox.
func TestK1ProcessesOfALostSandbox(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", mkdir(t, shortTemp(t), "r", 0o700))
	t.Setenv("TMPDIR", mkdir(t, shortTemp(t), "t", 0o700))
	s := newStore(t)
	holder := func(id string) *exec.Cmd {
		state := s.paths.SandboxState(id)
		layer := mkdir(t, state, "layer", 0o700)
		cmd := exec.Command("sh", "-c", `mount --bind "$1" "$2" && echo ready && exec sleep 600`, "sh", layer, t.TempDir())
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Skipf("no user namespace: %v", err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
			t.Skipf("nothing can be mounted: %v", err)
		}
		return cmd
	}
	begin(t, s, "alive")
	kept := holder("alive")
	mkdir(t, s.paths.Sandboxes(), "lost.state", 0o700)
	lost := holder("lost")
	ended := make(chan struct{})
	go func() { _ = lost.Wait(); close(ended) }()
	if err := os.RemoveAll(s.paths.SandboxState("lost")); err != nil {
		t.Fatal(err)
	}
	items, err := collect(t, s, GCOptions{})
	if err != nil || len(items) != 1 || items[0].Kind != GCProcess || items[0].Error != "" {
		t.Errorf("gc: %+v, %v", items, err)
	}
	<-ended
	if !ProcessOf(kept.Process.Pid).Alive() {
		t.Error("the process of a sandbox that is there was killed")
	}
}

// TestMountedStateBehindALongLine: the line of an overlay with many layers is longer than a bufio.Scanner takes.
func TestMountedStateBehindALongLine(t *testing.T) {
	s := newStore(t)
	c := &collector{store: s}
	file := filepath.Join(t.TempDir(), "mountinfo")
	text := "23 1 0:5 / / rw - overlay overlay rw,lowerdir=" + strings.Repeat("/a/layer:", 20_000) + "/\n" +
		"24 1 8:1 " + s.paths.SandboxState("lost") + "/layer /mnt rw - ext4 /dev/sda rw\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if id := c.mountedState(file, "8:1"); id != "lost" {
		t.Errorf("the sandbox is %q", id)
	}
}
