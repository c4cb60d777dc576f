package backend

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// actAsHost is the main of a host that will be killed: it starts a sandbox with a
// command in it, says so, and sleeps.
func actAsHost(dir string) {
	ctx := context.Background()
	p := NewPool(Options{Dir: filepath.Join(dir, "run"), Environ: []string{"PATH=" + os.Getenv("PATH")}, Paths: []string{os.Getenv("HUTCH_TEST_PLUGINS")}})
	b, err := p.Get(ctx, "plain")
	if err == nil {
		var sb *client.Sandbox
		if sb, err = b.Create(ctx, &sdk.CreateRequest{ID: "one", StateDir: filepath.Join(dir, "state")}); err == nil {
			var e *client.Exec
			if e, err = sb.Start(ctx, &client.Command{Argv: []string{"sleep", "1000"}, Stdout: &bytes.Buffer{}}); err == nil {
				<-e.Started()
			}
		}
	}
	if err != nil {
		fmt.Println("error", err)
		return
	}
	fmt.Println("ready", b.PID)
	time.Sleep(time.Hour)
}

// A host that is killed leaves no process, no sandbox, no socket and no directory.
func TestTheHostIsKilled(t *testing.T) {
	dir := t.TempDir()
	run, err := os.MkdirTemp("/tmp", "hutch-t-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(run)
	if err := os.Symlink(run, filepath.Join(dir, "run")); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "HUTCH_TEST_HOST="+dir, "HUTCH_TEST_PLUGINS="+install(t, "plain"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	var pid int
	if _, err := fmt.Sscanf(line, "ready %d", &pid); err != nil {
		_ = cmd.Process.Kill()
		t.Fatalf("the host said %q", line)
	}
	plugin, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(plugin)
	sleep := childOf(t, pid)
	defer unix.Close(sleep)

	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	ended(t, "the plugin", plugin, 5*time.Second)
	ended(t, "the command", sleep, 5*time.Second)
	if _, err := os.Stat(filepath.Join(state, "destroyed")); err != nil {
		t.Errorf("the sandbox was not destroyed: %v", err)
	}
	if left, err := os.ReadDir(run); err != nil || len(left) != 0 {
		t.Errorf("left in the private directory: %v %v", left, err)
	}
}

// childOf returns a pidfd of the only child of a process.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	var child int
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range tasks {
		b, _ := os.ReadFile(f)
		_, _ = fmt.Sscan(string(b), &child)
	}
	if child == 0 {
		t.Fatal("the plugin has no child")
	}
	fd, err := unix.PidfdOpen(child, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// ended waits until the process behind a pidfd has ended.
func ended(t *testing.T, what string, pidfd int, most time.Duration) {
	t.Helper()
	deadline := time.Now().Add(most)
	for {
		left := time.Until(deadline)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(max(left.Milliseconds(), 0)))
		if err == unix.EINTR {
			continue
		}
		if n != 1 {
			t.Errorf("%s still runs after %s (%v)", what, most, err)
			_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
		}
		return
	}
}

func TestSIGTERMCleansUp(t *testing.T) {
	p := pool(t, nil, "plain")
	ctx := context.Background()
	b, err := p.Get(ctx, "plain")
	if err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	sb, err := b.Create(ctx, &sdk.CreateRequest{ID: "one", StateDir: state})
	if err != nil {
		t.Fatal(err)
	}
	e, err := sb.Start(ctx, &client.Command{Argv: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	<-e.Started()
	if err := syscall.Kill(b.PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if exit, err := e.Wait(); err == nil && exit.Cause != sdk.CauseCancelled {
		t.Errorf("got %+v", exit)
	}
	<-b.Done()
	if _, err := os.Stat(filepath.Join(state, "destroyed")); err != nil {
		t.Errorf("the sandbox was not destroyed: %v", err)
	}
}
