package client

import (
	"os"

	"golang.org/x/sys/unix"
)

const bytesInPipe = unix.TIOCINQ

// growPipe makes the pipe as big as the kernel lets this user make it; a small
// pipe works too, only slower.
func growPipe(f *os.File) {
	if rc, err := f.SyscallConn(); err == nil {
		_ = rc.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	}
}
