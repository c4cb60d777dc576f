package server

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/podman/internal/agent/wire"
)

// openTerminal makes a terminal in the container's own /dev/pts, sends the host its
// controlling end, and makes the other one the command's streams.
func (c *command) openTerminal() error {
	master, err := unix.Open("/dev/pts/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/pts/ptmx: %w", err)
	}
	defer unix.Close(master)
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return fmt.Errorf("unlock the terminal: %w", err)
	}
	// And not by its name, which somebody could have put another file in the place of.
	slave, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return fmt.Errorf("open the terminal: %w", errno)
	}
	c.streams = [3]int{int(slave), int(slave), int(slave)}
	c.fds = append(c.fds, int(slave))
	size := unix.Winsize{Row: uint16(c.request.Arg >> 16), Col: uint16(c.request.Arg)}
	if err := unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &size); err != nil {
		return fmt.Errorf("set the terminal's size: %w", err)
	}
	return c.conn.send(wire.Reply{Op: wire.Terminal, ID: c.request.ID}, master)
}
