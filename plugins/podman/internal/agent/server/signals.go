package server

import (
	"os/signal"
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

// deafen keeps the signals of the container's other processes from having any effect: Go catches nearly all of them,
// and some end the program then. They are ignored and not left to their defaults, which the kernel spares pid 1 only as
// long as the first thread does not happen to block them. Only those are left to Go that it needs: SIGCHLD, and SIGURG,
// with which it interrupts its own threads. A true fault of the program kills it, whatever stands here. SIGTERM ends
// the agent when it comes from outside, which os/signal cannot tell.
func deafen() error {
	const ignore = 1
	const saSiginfo, saOnstack, saRestart, saRestorer = 4, 0x08000000, 0x10000000, 0x04000000
	signal.Ignore(unix.SIGPIPE) // Go shall know, or it dies of a log that nobody reads
	term := sigaction{flags: saSiginfo | saOnstack | saRestart | saRestorer}
	term.handler, term.restorer = handler()
	for sig := unix.Signal(1); sig <= 64; sig++ {
		act := sigaction{handler: ignore}
		switch sig {
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGURG:
			continue
		case unix.SIGTERM:
			act = term
		}
		if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&act)), 0, 8, 0,
			0); errno != 0 {
			return errno
		}
	}
	return nil
}
