package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/host/agent/mcp/call"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
)

// Coding agents kill a server some 100 ms after they asked it to end, which is before sandboxes are removed. So a
// server that makes sandboxes starts a remover: this program once more, in its own session, that waits for
// the end of a pipe of the server, and then removes what is left. Should it be killed too, the records say with
// which process the sandboxes end, and the next command removes them.

// lifeline is the end of the pipe that the kernel closes when the server is gone.
var lifeline *os.File //nolint:unused // it is never read, and must not be collected: that would close it

// startRemover starts the remover of this process.
func startRemover(c call.Call) error {
	self := store.Self()
	c.RemoverOf = &self
	argument, err := json.Marshal(c)
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	// Nothing of the client's: it may wait for the end of our stderr.
	cmd := exec.Command(exe, call.Subcommand, string(argument))
	cmd.Dir, cmd.Stdin, cmd.SysProcAttr = "/", r, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the process that removes sandboxes when this one is killed: %w", err)
	}
	lifeline = w
	return cmd.Process.Release()
}

// awaitServer is how the remover waits until the server is gone.
func awaitServer() {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// remove is what the remover does then. It goes on for some minutes when a backend cannot remove a sandbox.
func remove(m *sandbox.Manager, owner store.Process) error {
	for wait := time.Second; ; wait *= 2 {
		err := m.RemoveAllOf(context.Background(), owner)
		if err == nil || wait > time.Minute {
			return err
		}
		time.Sleep(wait)
	}
}
