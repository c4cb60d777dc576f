package sdk

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// keepDescriptors marks every descriptor that this process inherited as not to be
// passed on. What the process that started hutch left open, a lock or a pipe, would otherwise
// reach every program that the backend starts, and be held open for as long as a
// persistent sandbox lives.
func keepDescriptors() {
	const first = 3
	if unix.CloseRange(first, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	// Linux before 5.11.
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n >= first {
			syscall.CloseOnExec(n)
		}
	}
}
