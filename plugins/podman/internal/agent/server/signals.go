package server

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

func terminate() //nolint:unused // the kernel calls it
func restore()   //nolint:unused // likewise
func handler() (terminate, restore uintptr)

// sigaction is the kernel's struct of that name.
type sigaction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

// deafen keeps the signals of the container's other processes from having any
// effect. Pid 1 does not get a signal from its own container when it has its default
// effect; but Go catches nearly all of them, and some end the program then. Only those
// are left to Go that it needs: SIGCHLD, SIGURG, with which it interrupts its own
// threads, SIGPIPE, and the C library's two. SIGTERM ends the agent when it comes from
// outside, which os/signal cannot tell.
func deafen() error {
	const saSiginfo, saOnstack, saRestart, saRestorer = 4, 0x08000000, 0x10000000, 0x04000000
	term := sigaction{flags: saSiginfo | saOnstack | saRestart | saRestorer}
	term.handler, term.restorer = handler()
	for sig := unix.Signal(1); sig <= 64; sig++ {
		var act sigaction
		switch sig {
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGURG, unix.SIGPIPE, 32, 33:
			continue
		case unix.SIGTERM:
			act = term
		}
		if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&act)), 0, 8, 0, 0); errno != 0 {
			return errno
		}
	}
	return nil
}
