package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// status returns a field of /proc/self/status.
func status(field string) string {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return asked(field)
	}
	for _, line := range strings.Split(string(b), "\n") {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return "absent"
}

// asked is what the kernel says of this process where there is no /proc.
func asked(field string) string {
	number := func(n int, err error) string {
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(n)
	}
	header, sets := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err.Error()
	}
	words := func(of func(unix.CapUserData) uint32) string {
		return fmt.Sprintf("%08x%08x", of(sets[1]), of(sets[0]))
	}
	each := func(held func(c uintptr) (int, error)) string {
		var set uint64
		for c := range uintptr(64) {
			if n, _ := held(c); n == 1 {
				set |= 1 << c
			}
		}
		return fmt.Sprintf("%016x", set)
	}
	switch field {
	case "NoNewPrivs":
		return number(unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0))
	case "Seccomp":
		return number(unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0))
	case "CapEff":
		return words(func(s unix.CapUserData) uint32 { return s.Effective })
	case "CapPrm":
		return words(func(s unix.CapUserData) uint32 { return s.Permitted })
	case "CapInh":
		return words(func(s unix.CapUserData) uint32 { return s.Inheritable })
	case "CapBnd":
		return each(func(c uintptr) (int, error) { return unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0) })
	case "CapAmb":
		return each(func(c uintptr) (int, error) {
			return unix.PrctlRetInt(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET, c, 0, 0)
		})
	}
	return "absent"
}

func statusIs(field, want string) verdict {
	if got := status(field); got != want {
		return breached("%s is %s, not %s", field, got, want)
	}
	return held("%s is %s", field, want)
}

func noNewPrivs([]string) verdict { return statusIs("NoNewPrivs", "1") }
func seccomp([]string) verdict    { return statusIs("Seccomp", "2") }

func capabilities([]string) verdict {
	sets := []string{"CapEff", "CapPrm", "CapInh", "CapAmb"}
	if _, err := os.ReadFile("/proc/self/status"); err == nil || os.Getuid() == 0 {
		sets = append(sets, "CapBnd") // an ordinary user cannot empty it, and no-new-privileges makes it mean nothing
	}
	for _, set := range sets {
		if v := statusIs(set, "0000000000000000"); v.Breached {
			return v
		}
	}
	return held("every capability set is empty")
}

// userNamespace asks for a fresh user namespace in each way there is. A thread of
// its own is not needed: refusal comes before the kernel looks at threads.
func userNamespace([]string) verdict {
	var a attempts
	if pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD), 0, 0, 0, 0,
		0); errno == 0 {
		if pid == 0 {
			unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
		}
		a.try("clone", nil)
	} else {
		a.try("clone", errno)
	}
	// A multi-threaded process gets EINVAL where a single-threaded one would succeed.
	err := unix.Unshare(unix.CLONE_NEWUSER)
	if err == unix.EINVAL {
		err = nil
	}
	a.try("unshare", err)
	return a.verdict()
}

// riskySyscalls calls with bad arguments what a payload never needs: EPERM and
// ENOSYS mean that it cannot reach the code behind, anything else that it can.
func riskySyscalls([]string) verdict {
	const bad = ^uintptr(0)
	calls := []struct {
		name string
		nr   uintptr
		args [5]uintptr
	}{
		{"keyctl", unix.SYS_KEYCTL, [5]uintptr{0, bad, 0}},
		{"add_key", unix.SYS_ADD_KEY, [5]uintptr{bad, bad, 0, 0, bad}},
		{"request_key", unix.SYS_REQUEST_KEY, [5]uintptr{bad, bad, 0, bad}},
		{"bpf", unix.SYS_BPF, [5]uintptr{0, bad, 0}},
		{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, [5]uintptr{bad, 0, bad, bad, 0}},
		{"userfaultfd", unix.SYS_USERFAULTFD, [5]uintptr{bad}},
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, [5]uintptr{0, bad}},
		{"io_uring_enter", unix.SYS_IO_URING_ENTER, [5]uintptr{bad}},
		{"open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, [5]uintptr{bad, bad, 0}},
		{"process_vm_readv", unix.SYS_PROCESS_VM_READV, [5]uintptr{bad, 0, 0, 0, 0}},
		{"process_vm_writev", unix.SYS_PROCESS_VM_WRITEV, [5]uintptr{bad, 0, 0, 0, 0}},
		{"pidfd_getfd", unix.SYS_PIDFD_GETFD, [5]uintptr{bad, bad, 0}},
		{"ptrace", unix.SYS_PTRACE, [5]uintptr{16, bad, 0, 0}},
		{"mount", unix.SYS_MOUNT, [5]uintptr{bad, bad, bad, 0, 0}},
		{"umount2", unix.SYS_UMOUNT2, [5]uintptr{bad, 0}},
		{"pivot_root", unix.SYS_PIVOT_ROOT, [5]uintptr{bad, bad}},
		{"chroot", unix.SYS_CHROOT, [5]uintptr{bad}},
		{"setns", unix.SYS_SETNS, [5]uintptr{bad, 0}},
		{"fsopen", unix.SYS_FSOPEN, [5]uintptr{bad, 0}},
		{"open_tree", unix.SYS_OPEN_TREE, [5]uintptr{bad, bad, 0}},
		{"move_mount", unix.SYS_MOVE_MOUNT, [5]uintptr{bad, bad, bad, bad, 0}},
		{"mount_setattr", unix.SYS_MOUNT_SETATTR, [5]uintptr{bad, bad, 0, bad, 0}},
		{"kexec_load", unix.SYS_KEXEC_LOAD, [5]uintptr{0, bad, bad, 0}},
		{"init_module", unix.SYS_INIT_MODULE, [5]uintptr{bad, 0, bad}},
		{"quotactl", unix.SYS_QUOTACTL, [5]uintptr{bad, bad, 0, bad}},
	}
	var a attempts
	for _, c := range calls {
		_, _, errno := unix.Syscall6(c.nr, c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], 0)
		if errno != unix.EPERM && errno != unix.ENOSYS {
			a.try(fmt.Sprintf("%s answers %v", c.name, errno), nil)
		} else {
			a.try(c.name, errno)
		}
	}
	fd, err := unix.Socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	a.try("socket AF_ALG", err)
	fd, err = unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	a.try("socket AF_VSOCK", err)
	return a.verdict()
}

// sensitiveWrites opens for writing, and never writes, what would hand over the host.
func sensitiveWrites([]string) verdict {
	paths := []string{
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/overcommit_memory",
		"/proc/sys/fs/binfmt_misc/register", "/proc/sysrq-trigger", "/proc/sys/kernel/hostname",
		"/proc/irq/default_smp_affinity", "/proc/mtrr", "/proc/kcore", "/proc/kmsg", "/proc/timer_list",
		"/sys/kernel/uevent_helper", "/sys/power/state", "/sys/kernel/mm/transparent_hugepage/enabled",
		"/sys/fs/cgroup/cgroup.procs",
	}
	for _, glob := range []string{"/sys/fs/cgroup/*/release_agent", "/sys/fs/cgroup/*/cgroup.procs",
		"/sys/fs/cgroup/*/tasks"} {
		more, _ := filepath.Glob(glob)
		paths = append(paths, more...)
	}
	var a attempts
	for _, p := range paths {
		err := tryOpen(p, unix.O_WRONLY)
		var st unix.Stat_t
		if err == nil && unix.Stat(p, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3) {
			err = errors.New("masked by /dev/null")
		}
		a.try(p, err)
	}
	return a.verdict()
}

func kernelLog([]string) verdict {
	var a attempts
	buf := make([]byte, 4096)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, buf)
	if err == nil && len(bytes.TrimSpace(buf[:n])) == 0 {
		err = fmt.Errorf("empty")
	}
	a.try("syslog", err)
	for _, p := range []string{"/dev/kmsg", "/proc/kmsg"} {
		a.try(p, tryOpen(p, unix.O_RDONLY))
	}
	return a.verdict()
}

// injectInput pushes a character into a terminal's input queue, plainly and with
// the high bits set that early filters overlooked.
func injectInput([]string) verdict {
	var a attempts
	fd := 0
	if _, err := unix.IoctlGetTermios(0, unix.TCGETS); err != nil {
		return breached("standard input is no terminal, so this proves nothing: %v", err)
	}
	char := byte('\n')
	for _, request := range []uintptr{unix.TIOCSTI, unix.TIOCSTI | 1<<32, unix.TIOCLINUX} {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(&char)))
		if errno == 0 {
			a.try(fmt.Sprintf("ioctl %#x", request), nil)
		} else {
			a.try(fmt.Sprintf("ioctl %#x", request), errno)
		}
	}
	return a.verdict()
}
