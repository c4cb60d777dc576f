package server

import (
	"github.com/hutch-run/hutch/plugins/podman/internal/agent/wire"
	"github.com/hutch-run/hutch/sdk/supervise"
)

// openTerminal makes a terminal in the container's own /dev/pts and sends the host both ends.
func (c *conn) openTerminal(r wire.Request) {
	t, err := supervise.OpenTerminalAt("/dev/pts/ptmx", uint16(r.Arg>>16), uint16(r.Arg))
	if err != nil {
		complain("%v", err)
		c.failed(r.ID, wire.NoTerminal, errnoOf(err))
		return
	}
	defer t.Close()
	_ = c.send(wire.Reply{Op: wire.Opened, ID: r.ID}, int(t.Master.Fd()), int(t.Slave.Fd()))
}
