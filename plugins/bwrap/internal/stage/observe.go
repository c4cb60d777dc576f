package stage

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/wire"
	"github.com/hutch-run/hutch/sdk/seccomp/notify"
)

func init() {
	if len(os.Args) < 3 || os.Args[0] != wire.ObserverName {
		return
	}
	runtime.LockOSThread() // the filter is this thread's
	fmt.Fprintln(os.Stderr, "observe the command:", observe(os.Args[1], os.Args[2:]))
	os.Exit(1)
}

// observe becomes bwrap with the arguments line. The descriptors from first on are the filter, the socket for its
// listener, and bwrap itself. Once the filter is there, only who has the listener lets calls go on.
func observe(first string, line []string) error {
	fd, err := strconv.Atoi(first)
	if err != nil {
		return err
	}
	for i := range 3 {
		unix.CloseOnExec(fd + i)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil { // as bwrap does itself
		return err
	}
	if err := notify.Send(fd, fd+1); err != nil {
		return err
	}
	return syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", fd+2), line, []string{})
}
