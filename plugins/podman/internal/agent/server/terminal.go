package server

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/podman/internal/agent/wire"
)

// openTerminal makes a terminal in the container's own /dev/pts and sends the host both ends.
func (c *conn) openTerminal(r wire.Request) {
	master, slave, err := terminal(unix.Winsize{Row: uint16(r.Arg >> 16), Col: uint16(r.Arg)})
	if err != nil {
		complain("%v", err)
		c.failed(r.ID, wire.NoTerminal, errnoOf(err))
		return
	}
	_ = c.send(wire.Reply{Op: wire.Opened, ID: r.ID}, master, slave)
	unix.Close(master)
	unix.Close(slave)
}

func terminal(size unix.Winsize) (master, slave int, err error) {
	master, err = unix.Open("/dev/pts/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, -1, fmt.Errorf("open /dev/pts/ptmx: %w", err)
	}
	if err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err == nil {
		err = unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &size)
	}
	if err == nil {
		// And not by its name, which a command could have put another file in the place of.
		fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
		if errno == 0 {
			return master, int(fd), nil
		}
		err = errno
	}
	unix.Close(master)
	return -1, -1, fmt.Errorf("open a terminal: %w", err)
}
