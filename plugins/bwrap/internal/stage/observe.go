package stage

import (
	"fmt"
	"io"
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
	filter, err := io.ReadAll(io.NewSectionReader(os.NewFile(uintptr(fd), "filter"), 0, 1<<16))
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil { // as bwrap does itself
		return err
	}
	listener, err := notify.Load(filter)
	if err != nil {
		return err
	}
	if err := unix.Sendmsg(fd+1, []byte{0}, unix.UnixRights(listener), nil, 0); err != nil {
		return err
	}
	unix.Close(listener)
	return syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", fd+2), line, []string{})
}
