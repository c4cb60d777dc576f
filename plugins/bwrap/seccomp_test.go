package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/visible"
)

// attempts are system calls with arguments that the kernel itself would refuse
// with something else than what the filter says, or accept; as flatpak's tests do.
var attempts = map[string]func() error{
	"unshare":         func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
	"setns":           func() error { return unix.Setns(-1, 0) },
	"clone NEWUSER":   func() error { return call(unix.SYS_CLONE, unix.CLONE_NEWUSER|unix.CLONE_SIGHAND, 0, 0, 0, 0) },
	"clone3":          func() error { return call(unix.SYS_CLONE3, 0, 0) },
	"mount":           func() error { return call(unix.SYS_MOUNT, 0, 0, 0, 0, 0) },
	"umount2":         func() error { return call(unix.SYS_UMOUNT2, 0, 0) },
	"pivot_root":      func() error { return call(unix.SYS_PIVOT_ROOT, 0, 0) },
	"chroot":          func() error { return call(unix.SYS_CHROOT, 0) },
	"open_tree":       func() error { return call(unix.SYS_OPEN_TREE, ^uintptr(0), 0, 0) },
	"move_mount":      func() error { return call(unix.SYS_MOVE_MOUNT, 0, 0, 0, 0, ^uintptr(0)) },
	"fsopen":          func() error { return call(unix.SYS_FSOPEN, 0, 0) },
	"fsconfig":        func() error { return call(unix.SYS_FSCONFIG, ^uintptr(0), 0, 0, 0, 0) },
	"fsmount":         func() error { return call(unix.SYS_FSMOUNT, ^uintptr(0), 0, 0) },
	"fspick":          func() error { return call(unix.SYS_FSPICK, ^uintptr(0), 0, 0) },
	"mount_setattr":   func() error { return call(unix.SYS_MOUNT_SETATTR, ^uintptr(0), 0, 0, 0, 0) },
	"syslog":          func() error { return call(unix.SYS_SYSLOG, 10, 0, 0) },
	"acct":            func() error { return call(unix.SYS_ACCT, 1) },
	"quotactl":        func() error { return call(unix.SYS_QUOTACTL, 0, 0, 0, 0) },
	"add_key":         func() error { return call(unix.SYS_ADD_KEY, 0, 0, 0, 0, 0) },
	"keyctl":          func() error { return call(unix.SYS_KEYCTL, 0, ^uintptr(2), 0) },
	"request_key":     func() error { return call(unix.SYS_REQUEST_KEY, 0, 0, 0, 0) },
	"bpf":             func() error { return call(unix.SYS_BPF, ^uintptr(0), 0, 0) },
	"perf_event_open": func() error { return call(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0, 0, 0) },
	"userfaultfd":     func() error { return call(unix.SYS_USERFAULTFD, ^uintptr(0)) },
	"io_uring_setup":  func() error { return call(unix.SYS_IO_URING_SETUP, 0, 0) },
	"open_by_handle":  func() error { return call(unix.SYS_OPEN_BY_HANDLE_AT, ^uintptr(0), 0, 0) },
	"move_pages":      func() error { return call(unix.SYS_MOVE_PAGES, 0, 0, 0, 0, 0, ^uintptr(0)) },
	"mbind":           func() error { return call(unix.SYS_MBIND, 1, 0, 0, 0, 0, 0) },
	"ptrace":          func() error { return call(unix.SYS_PTRACE, ^uintptr(0), 1, 0, 0) },
	"process_vm_read": func() error { return call(unix.SYS_PROCESS_VM_READV, 1, 0, 0, 0, 0, 1) },
	"pidfd_getfd":     func() error { return call(unix.SYS_PIDFD_GETFD, ^uintptr(0), 0, 0) },
	"kcmp":            func() error { return call(unix.SYS_KCMP, 0, 0, ^uintptr(0), 0, 0) },
	"personality":     func() error { return call(unix.SYS_PERSONALITY, 0x0040000) },
	"TIOCSTI":         func() error { return call(unix.SYS_IOCTL, ^uintptr(0), unix.TIOCSTI, 0) },
	"TIOCSTI, high":   func() error { return call(unix.SYS_IOCTL, ^uintptr(0), unix.TIOCSTI|1<<32, 0) },
	"TIOCLINUX":       func() error { return call(unix.SYS_IOCTL, ^uintptr(0), 0x541c, 0) },
	"AF_ALG":          socket(unix.AF_ALG),
	"AF_VSOCK":        socket(unix.AF_VSOCK),
	"AF_PACKET":       socket(unix.AF_PACKET),
	"openat2":         func() error { return call(unix.SYS_OPENAT2, ^uintptr(0), 0, 0, 0) },
	"whiteout":        func() error { return unix.Renameat2(-1, "", -1, "", unix.RENAME_WHITEOUT) },
	"mknod char":      func() error { return unix.Mknodat(-1, "x", unix.S_IFCHR, 0) },
	"setuid by chmod": func() error { return unix.Fchmodat(-1, "x", unix.S_ISUID|0o755, 0) },
	"setuid by fchmod": func() error {
		return unix.Fchmod(-1, unix.S_ISGID|0o755)
	},
	"setuid by creat": func() error {
		_, err := unix.Openat(-1, "x", unix.O_CREAT|unix.O_WRONLY, unix.S_ISUID|0o755)
		return err
	},
}

// allowed are calls that programs need and the filter must leave alone.
var allowed = map[string]func() error{
	"clone":       func() error { return call(unix.SYS_CLONE, unix.CLONE_THREAD, 0, 0, 0, 0) }, // EINVAL: a thread shares memory
	"AF_UNIX":     socket(unix.AF_UNIX),
	"AF_INET":     socket(unix.AF_INET),
	"AF_INET6":    socket(unix.AF_INET6),
	"AF_NETLINK":  socket(unix.AF_NETLINK),
	"personality": func() error { return call(unix.SYS_PERSONALITY, 0xffffffff) },
	"mkfifo":      func() error { return unix.Mknodat(unix.AT_FDCWD, os.TempDir()+"/a-fifo", unix.S_IFIFO|0o600, 0) },
	"creat": func() error {
		_, err := unix.Openat(unix.AT_FDCWD, os.TempDir()+"/a-file", unix.O_CREAT|unix.O_WRONLY, 0o600)
		return err
	},
	"open, junk mode": func() error {
		return call(unix.SYS_OPENAT, ^uintptr(0), 0, unix.O_RDONLY, 0o6777)
	},
	"chmod": func() error { return unix.Fchmodat(unix.AT_FDCWD, os.TempDir()+"/a-file", 0o640, 0) },
	"sched_setaffinity": func() error {
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(0, &set); err != nil {
			return err
		}
		return unix.SchedSetaffinity(0, &set)
	},
}

func call(nr uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	if _, _, errno := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return errno
	}
	return nil
}

func socket(family int) func() error {
	return func() error {
		fd, err := unix.Socket(family, unix.SOCK_DGRAM, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
}

// TestHelperSyscalls runs inside the sandbox and prints what each call gave.
func TestHelperSyscalls(t *testing.T) {
	if os.Getenv("HUTCH_TEST_SYSCALLS") == "" {
		t.Skip("runs only as a helper")
	}
	for kind, table := range map[string]map[string]func() error{"deny": attempts, "allow": allowed} {
		for name, try := range table {
			err := try()
			blocked := errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EAFNOSUPPORT) ||
				(name == "whiteout" && errors.Is(err, unix.EINVAL))
			fmt.Printf("%s\t%s\t%v\t%v\n", kind, name, blocked, err)
		}
	}
}

func TestSandboxRefusesSystemCalls(t *testing.T) {
	dir := t.TempDir()
	data, err := os.ReadFile("/proc/self/exe") // its path may be closed to an ordinary user
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "helper"), data, 0o755); err != nil {
		t.Fatal(err)
	}
	s := newSandbox(t, sdk.Spec{Mounts: []sdk.Mount{{Source: dir, Target: "/exe", ReadOnly: true}}})
	r := run(t, t.Context(), s, &sdk.Command{Argv: []string{"/exe/helper", "-test.run=^TestHelperSyscalls$"}, Env: map[string]string{"HUTCH_TEST_SYSCALLS": "1"}})
	lines := syscallLines(r.out)
	if len(lines) != len(attempts)+len(allowed) {
		t.Fatalf("%d of %d calls were tried: %+v %q %q", len(lines), len(attempts)+len(allowed), r.Exit, r.out, r.err)
	}
	for _, f := range lines {
		if (f[0] == "deny") != (f[2] == "true") {
			t.Errorf("%s: %s is wrong: %s", f[0], f[1], f[3])
		}
	}
	// Without the sandbox the same calls reach the kernel, or this would prove nothing.
	control := exec.Command(filepath.Join(dir, "helper"), "-test.run=^TestHelperSyscalls$")
	control.Env = []string{"HUTCH_TEST_SYSCALLS=1", "TMPDIR=" + t.TempDir()}
	out, err := control.Output()
	if err != nil {
		t.Fatal(err)
	}
	reached := 0
	for _, f := range syscallLines(string(out)) {
		if f[0] == "deny" && f[2] != "true" {
			reached++
		}
	}
	t.Logf("%d of %d attempts reach the kernel without the sandbox", reached, len(attempts))
	if want := map[bool]int{true: 30, false: 20}[os.Getuid() == 0]; reached < want {
		t.Errorf("only %d attempts reach the kernel without the sandbox:\n%s", reached, out)
	}
}

func syscallLines(out string) (lines [][]string) {
	for _, line := range strings.Split(out, "\n") {
		if f := strings.Split(line, "\t"); len(f) == 4 {
			lines = append(lines, f)
		}
	}
	return lines
}

// TestS16 reads what the kernel says of the machine and not of the sandbox.
func TestS16(t *testing.T) {
	s := newSandbox(t, sdk.Spec{Workspace: sdk.Workspace{Source: t.TempDir()}})
	r := sh(t, s, "for p in "+strings.Join(visible.Masked, " ")+"; do test -d $p && ls -A $p || cat $p; done 2>/dev/null")
	if r.out != "" {
		t.Errorf("it reads %.200q", r.out)
	}
	// The kernel names the source of each mount. What is left of the host's paths is the sandbox's own directory.
	for line := range strings.Lines(sh(t, s, "cat /proc/self/mountinfo").out) {
		if strings.Contains(strings.ReplaceAll(line, s.dir, ""), s.spec.Workspace.Source) {
			t.Errorf("a mount shows where the project is: %s", line)
		}
	}
}
