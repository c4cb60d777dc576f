package microinit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A reaper keeps what its command leaves behind below itself, reports the command's
// end at once, and ends when nothing is left.
func TestReaper(t *testing.T) {
	image, err := Reaper(nil)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "reaper")
	if err := os.WriteFile(path, image, 0o755); err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	note := filepath.Join(t.TempDir(), "pid")
	// The orphan is a grandchild in its own session.
	script := fmt.Sprintf("(setsid sh -c 'echo $$ > %s.new; mv %[1]s.new %[1]s; exec sleep 1000' &) ; while [ ! -e %[1]s ]; do sleep 0.01; done; exit 7", note)
	cmd := exec.Command(path)
	// A descriptor of its own for stderr and the end of execution would do; none is needed here.
	cmd.ExtraFiles = []*os.File{os.NewFile(uintptr(pair[1]), "status"), BlockFD - 3: blockOf(t, args(t, "/", []string{"/bin/sh"}, []string{"PATH=/usr/bin:/bin"}, "sh", "-c", script))}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles[0].Close()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	timeout := unix.NsecToTimeval((30 * time.Second).Nanoseconds())
	if err := unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		t.Fatal(err)
	}
	next := func() (Kind, uint32) {
		b := make([]byte, 64)
		n, err := unix.Read(pair[0], b)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return 0, 0
		}
		kind, value, err := ParseReport(b[:n])
		if err != nil {
			t.Fatal(err)
		}
		return kind, value
	}
	for _, want := range []Kind{Init, Started, Ended} {
		kind, value := next()
		if kind != want || kind == Ended && syscall.WaitStatus(value).ExitStatus() != 7 {
			t.Fatalf("report %d, value %#x; want report %d", kind, value, want)
		}
	}
	text, err := os.ReadFile(note)
	if err != nil {
		t.Fatal(err)
	}
	orphan, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", orphan))
	if err != nil {
		t.Fatalf("the orphan is gone before anybody killed it: %v", err)
	}
	if parent := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))[1]; parent != strconv.Itoa(cmd.Process.Pid) {
		t.Errorf("the orphan's parent is %s and not its reaper, %d", parent, cmd.Process.Pid)
	}
	if _, err := unix.Wait4(cmd.Process.Pid, nil, unix.WNOHANG, nil); err != nil {
		t.Errorf("the reaper has ended although an orphan lives: %v", err)
	}
	if err := unix.Kill(orphan, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if kind, _ := next(); kind != 0 {
		t.Errorf("report %d after the last one", kind)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the reaper ended with %v", err)
	}
}
