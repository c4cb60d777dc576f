package server

import (
	"fmt"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/podman/internal/agent/wire"
	"github.com/hutch-run/hutch/sdk/seccomp/notify"
)

// Observe becomes the init of an observed command, and returns only what went wrong. Once the filter is there, only who
// has the listener lets calls go on.
func Observe() error {
	runtime.LockOSThread() // the filter is this thread's
	unix.CloseOnExec(wire.InitFD)
	if err := notify.Send(wire.InitFD+1, wire.InitFD+2); err != nil {
		return fmt.Errorf("observe the command: %w", err)
	}
	return syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", wire.InitFD), []string{"hutch-init"}, []string{})
}
