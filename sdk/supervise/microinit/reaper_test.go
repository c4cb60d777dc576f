package microinit

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/supervise/procstat"
)

// reaper starts script below a reaper, which leaves an orphan in its own session. It returns the reaper, the orphan and
// how the next report is read; kind 0 is the end of them.
func reaper(t *testing.T, end string) (cmd *exec.Cmd, orphan, socket int, next func() (Kind, uint32)) {
	t.Helper()
	image, err := Image(Options{})
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
	t.Cleanup(func() { unix.Close(pair[0]) })
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	hold, release, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	// The orphan ignores what it can, and has an orphan in turn.
	script := `(setsid sh -c 'trap "" TERM HUP; (sleep 1000 &); echo $$ >&3; exec 3>&-; exec sleep 1000' 3>&1 &); read x; ` + end
	cmd = exec.Command(path)
	cmd.Stdin, cmd.Stdout = hold, w
	cmd.ExtraFiles = []*os.File{os.NewFile(uintptr(pair[1]), "status"), BlockFD - 3: blockOf(t, args(t, "/", []string{"/bin/sh"}, []string{"PATH=/usr/bin:/bin"}, "sh", "-c", script))}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles[0].Close()
	w.Close()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	timeout := unix.NsecToTimeval((30 * time.Second).Nanoseconds())
	if err := unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		t.Fatal(err)
	}
	next = func() (Kind, uint32) {
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
	for _, want := range []Kind{Init, Started} {
		if kind, _ := next(); kind != want {
			t.Fatalf("report %d; want %d", kind, want)
		}
	}
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if orphan, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		t.Fatal(err)
	}
	release.Close()
	return cmd, orphan, pair[0], next
}

// A reaper reports the command's end, kills what that left behind, and says so.
func TestReaperKillsWhatIsLeft(t *testing.T) {
	cmd, orphan, _, next := reaper(t, "exit 7")
	if kind, value := next(); kind != Ended || syscall.WaitStatus(value).ExitStatus() != 7 {
		t.Errorf("report %d, value %#x; want the end with 7", kind, value)
	}
	if kind, _ := next(); kind != 0 {
		t.Errorf("report %d after the last one", kind)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("the reaper ended with %v; want 1, because it killed something", err)
	}
	if err := unix.Kill(orphan, 0); err != unix.ESRCH {
		t.Errorf("the orphan lives: %v", err)
	}
}

// The end of the socket is the end of everything, and how the command ended can still be read when only one direction
// of it has ended.
func TestReaperKillsWhenItsSocketEnds(t *testing.T) {
	cmd, orphan, socket, next := reaper(t, "sleep 1000")
	if stat, err := procstat.Of(orphan); err != nil || stat.Parent != cmd.Process.Pid {
		t.Errorf("the orphan's parent is %d, and not its reaper, %d: %v", stat.Parent, cmd.Process.Pid, err)
	}
	if err := unix.Shutdown(socket, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	if kind, value := next(); kind != Ended || syscall.WaitStatus(value).Signal() != unix.SIGKILL {
		t.Errorf("report %d, value %#x; want the end by SIGKILL", kind, value)
	}
	if kind, _ := next(); kind != 0 {
		t.Errorf("report %d after the last one", kind)
	}
	_ = cmd.Wait()
	if err := unix.Kill(orphan, 0); err != unix.ESRCH {
		t.Errorf("the orphan lives: %v", err)
	}
}

// A signal from a process of the same user has no effect.
func TestReaperOutlivesSignals(t *testing.T) {
	cmd, _, _, next := reaper(t, "for i in $(seq 1 64); do case $i in 9|19) ;; *) kill -$i $PPID;; esac; done; exit 3")
	if kind, value := next(); kind != Ended || syscall.WaitStatus(value).ExitStatus() != 3 {
		t.Errorf("report %d, value %#x; want the end with 3", kind, value)
	}
	_ = cmd.Wait()
}
