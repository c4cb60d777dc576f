package main

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// int80 makes a system call of the 32-bit ABI.
func int80(nr, a, b, c uint32) int32

// foreign lists the calls that foreignCall knows.
func foreign() []string { return []string{"getpid", "socketcall", "personality", "x32 getpid"} }

// foreignCall makes one of them, says what it gave, and exits with 1 if that was an error.
func foreignCall(name string) {
	answer := -1
	switch name {
	case "getpid":
		answer = int(int80(20, 0, 0, 0))
	case "socketcall": // the arguments are in memory: at an address that is no pointer, EFAULT shows that it was reached
		if answer = int(int80(102, 1, 0, 0)); answer == -int(unix.EFAULT) {
			answer = 0
		}
	case "personality":
		answer = int(int80(136, 0xffffffff, 0, 0))
	case "x32 getpid":
		pid, _, errno := unix.RawSyscall(unix.SYS_GETPID|0x40000000, 0, 0, 0)
		if answer = int(pid); errno != 0 {
			answer = -int(errno)
		}
	}
	fmt.Println(answer)
	if answer < 0 {
		os.Exit(1)
	}
	os.Exit(0)
}

// oldModeCalls are the calls with a mode that newer architectures do not have.
func oldModeCalls(mode uintptr) map[string]func(p string) error {
	return map[string]func(p string) error{
		"old creat": func(p string) error { return rawOpen(unix.SYS_CREAT, str(p), mode) },
		"old open":  func(p string) error { return rawOpen(unix.SYS_OPEN, str(p), unix.O_CREAT|unix.O_WRONLY, mode) },
		"old mknod": func(p string) error { return raw(unix.SYS_MKNOD, str(p), unix.S_IFREG|mode, 0) },
		"old mkdir": func(p string) error { return raw(unix.SYS_MKDIR, str(p), mode) },
		"old chmod": onFile(func(p string) error { return raw(unix.SYS_CHMOD, str(p), mode) }),
	}
}

func rawOpen(nr uintptr, args ...uintptr) error {
	var a [3]uintptr
	copy(a[:], args)
	fd, _, errno := unix.Syscall(nr, a[0], a[1], a[2])
	if errno != 0 {
		return errno
	}
	return unix.Close(int(fd))
}

// machineCalls reach into the machine in ways that only this architecture has.
func machineCalls() map[string]func() error {
	return map[string]func() error{
		"modify_ldt": func() error {
			var buf [64]byte
			return raw(unix.SYS_MODIFY_LDT, 0, uintptr(unsafe.Pointer(&buf)), uintptr(len(buf)))
		},
	}
}
