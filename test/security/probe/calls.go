package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setIDBits makes set-id files and directories by every call that takes a mode, in the working directory and in /tmp.
// The files stay, so that the host can look.
func setIDBits([]string) verdict {
	const mode = unix.S_ISUID | unix.S_ISGID | 0o755
	var a attempts
	for _, dir := range []string{".", "/tmp"} {
		at := func(name string) string { return filepath.Join(dir, "setid-"+name) }
		ways := map[string]func(p string) error{
			"creat": func(p string) error { return raw(unix.SYS_OPENAT, cwd, str(p), unix.O_CREAT|unix.O_WRONLY, mode) },
			"openat": func(p string) error {
				return raw(unix.SYS_OPENAT, cwd, str(p), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, mode)
			},
			"openat, high bits": func(p string) error {
				return raw(unix.SYS_OPENAT, cwd, str(p), unix.O_CREAT|unix.O_WRONLY|1<<40, mode|1<<40)
			},
			"O_TMPFILE": func(p string) error {
				fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY, mode)
				if err != nil {
					return err
				}
				defer unix.Close(fd)
				return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, p, unix.AT_SYMLINK_FOLLOW)
			},
			"openat2": func(p string) error {
				fd, err := unix.Openat2(unix.AT_FDCWD, p, &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: mode})
				if err == nil {
					_ = unix.Close(fd)
				}
				return err
			},
			"mknodat": func(p string) error { return raw(unix.SYS_MKNODAT, cwd, str(p), unix.S_IFREG|mode, 0) },
			"mkdirat": func(p string) error { return raw(unix.SYS_MKDIRAT, cwd, str(p), mode) },
			"fchmod": func(p string) error {
				f, err := os.Create(p)
				if err != nil {
					return err
				}
				defer f.Close()
				return raw(unix.SYS_FCHMOD, f.Fd(), mode)
			},
			"fchmodat":  onFile(func(p string) error { return raw(unix.SYS_FCHMODAT, cwd, str(p), mode) }),
			"fchmodat2": onFile(func(p string) error { return raw(unix.SYS_FCHMODAT2, cwd, str(p), mode, 0) }),
			"io_uring":  func(string) error { return raw(unix.SYS_IO_URING_SETUP, 0, 0) },
		}
		for name, way := range oldModeCalls(mode) {
			ways[name] = way
		}
		for name, way := range ways {
			err := way(at(name))
			st, statErr := os.Lstat(at(name))
			if statErr == nil && st.Mode()&(os.ModeSetuid|os.ModeSetgid) == 0 {
				err = errors.Join(err, errors.New("no bit is set"))
			}
			a.try(name+" in "+dir, err)
		}
	}
	return a.verdict()
}

func onFile(change func(p string) error) func(p string) error {
	return func(p string) error {
		if err := os.WriteFile(p, nil, 0o644); err != nil {
			return err
		}
		return change(p)
	}
}

const cwd = ^uintptr(99) // AT_FDCWD

func str(s string) uintptr {
	b, err := unix.BytePtrFromString(s)
	if err != nil {
		return 0
	}
	kept = append(kept, b)
	return uintptr(unsafe.Pointer(b))
}

var kept []*byte // from the garbage collector, while a call has only their numbers

func raw(nr uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	fd, _, errno := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return errno
	}
	if nr == unix.SYS_OPENAT {
		_ = unix.Close(int(fd))
	}
	return nil
}

// foreignCalls makes system calls of the machine's other ABIs, each in a child, because the kernel may kill it.
func foreignCalls([]string) verdict {
	var a attempts
	for _, name := range foreign() {
		// Where the kernel kills the one thread that made the call, the others wait for ever.
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		out, err := exec.CommandContext(ctx, "/proc/self/exe", "foreign", name).Output()
		cancel()
		if err == nil {
			name += " answers " + strings.TrimSpace(string(out))
		}
		a.try(name, err)
	}
	return a.verdict()
}

// families opens sockets of the families and protocols that no program in a sandbox needs.
func families([]string) verdict {
	var a attempts
	open := func(name string, family, kind, protocol int) {
		fd, err := unix.Socket(family, kind, protocol)
		if err == nil {
			_ = unix.Close(fd)
		}
		a.try(name, err)
	}
	open("AF_VSOCK", unix.AF_VSOCK, unix.SOCK_STREAM, 0)
	open("AF_ALG", unix.AF_ALG, unix.SOCK_SEQPACKET, 0)
	open("AF_PACKET", unix.AF_PACKET, unix.SOCK_RAW, 0)
	open("AF_KEY", unix.AF_KEY, unix.SOCK_RAW, 2)
	for protocol := 1; protocol < 32; protocol++ { // all but NETLINK_ROUTE
		open(fmt.Sprintf("AF_NETLINK %d", protocol), unix.AF_NETLINK, unix.SOCK_RAW, protocol)
	}
	return a.verdict()
}

// personalities turns protections of programs off.
func personalities([]string) verdict {
	var a attempts
	for name, value := range map[string]uintptr{"ADDR_NO_RANDOMIZE": 0x40000, "READ_IMPLIES_EXEC": 0x400000,
		"MMAP_PAGE_ZERO": 0x100000, "high bits": 0x40000 | 1<<40} {
		a.try(name, raw(unix.SYS_PERSONALITY, value))
		_ = raw(unix.SYS_PERSONALITY, 0)
	}
	for name, try := range machineCalls() {
		a.try(name, try())
	}
	return a.verdict()
}

// hostUser looks whether this process is root to the host, or one of the host's own users.
func hostUser([]string) verdict {
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil && os.Getuid() == 0 {
		return breached("root, and nothing is known of a user namespace: %v", err)
	}
	for line := range strings.Lines(string(b)) {
		var inside, outside, n int
		if _, err := fmt.Sscan(line, &inside, &outside, &n); err == nil && os.Getuid() >= inside && os.Getuid()-inside < n &&
			os.Getuid()-inside+outside == 0 {
			return breached("uid %d is root of what the namespace is in: %s", os.Getuid(), line)
		}
	}
	return held("uid %d with %q", os.Getuid(), b)
}

// machineFiles reads what describes the machine and its other users.
func machineFiles([]string) verdict {
	var a attempts
	for _, p := range []string{"/proc/interrupts", "/proc/softirqs", "/proc/iomem", "/proc/ioports", "/proc/cmdline",
		"/proc/config.gz", "/proc/kallsyms", "/proc/modules",
		"/proc/keys", "/proc/key-users", "/proc/timer_list", "/proc/sched_debug", "/proc/slabinfo", "/proc/vmallocinfo",
		"/proc/kpageflags", "/proc/kpagecount", "/proc/diskstats",
		"/proc/partitions", "/proc/swaps", "/proc/acpi", "/proc/scsi", "/proc/asound", "/proc/bus", "/proc/driver",
		"/proc/irq", "/proc/fs", "/sys/firmware",
		"/sys/devices/virtual/powercap"} {
		b, err := os.ReadFile(p)
		if errors.Is(err, unix.EISDIR) {
			entries, dirErr := os.ReadDir(p)
			for _, e := range entries {
				b = append(b, e.Name()...)
			}
			err = dirErr
		}
		if err == nil && len(b) == 0 {
			err = errors.New("empty")
		}
		a.try(p, err)
	}
	return a.verdict()
}
