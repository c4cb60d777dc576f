package stage

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/network/loopback"
	"github.com/hutch-run/hutch/sdk/network/netns"
	"github.com/hutch-run/hutch/sdk/supervise/descendants"
)

// dial connects to a port of the loopback of a command, the newest that listens there. The first process of each has
// the command's network namespace: bwrap itself, which is our child, may have the host's.
func dial(port int) (fds []int) {
	bwraps := descendants.Children(os.Getpid())
	slices.Reverse(bwraps)
	for _, bwrap := range bwraps {
		for _, pid := range descendants.Children(bwrap) {
			if fd, err := dialIn(pid, port); err == nil {
				return []int{fd}
			}
		}
	}
	return nil
}

func dialIn(pid, port int) (fd int, err error) {
	ns, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(ns)
	var its, ours unix.Stat_t
	if err := unix.Fstat(ns, &its); err != nil {
		return -1, err
	}
	if err := unix.Stat("/proc/self/ns/net", &ours); err != nil {
		return -1, err
	}
	if its.Ino == ours.Ino && its.Dev == ours.Dev { // its number is another's by now
		return -1, unix.ESRCH
	}
	err = netns.Do(ns, func() (err error) {
		fd, err = loopback.Connect(port)
		return err
	})
	return fd, err
}
