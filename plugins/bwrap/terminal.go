package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/holder"
	"github.com/hutch-run/hutch/sdk"
)

// drainTimeout bounds the wait for the last output of a terminal: whoever should
// read it may have stopped reading.
const drainTimeout = 10 * time.Second

// terminal is a pseudo-terminal of the sandbox's own devpts, copied to and from
// the command's streams. A nil terminal does nothing.
type terminal struct {
	master, slave *os.File
	copied        chan struct{} // closed when all output has been passed on
	hold          sync.Once     // closes slave
	stdin         *os.File
}

func openTerminal(h *holder.Holder, c *sdk.Command) (*terminal, error) {
	master, slave, err := h.PTY()
	if err != nil {
		return nil, sdk.Errorf(sdk.ReasonInternal, "make a terminal: %w", err)
	}
	// A description of its own, which close can wake up.
	stdin, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", c.Stdin.Fd()), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		master.Close()
		slave.Close()
		return nil, sdk.Errorf(sdk.ReasonInternal, "open the command's input: %w", err)
	}
	t := &terminal{master: master, slave: slave, copied: make(chan struct{}), stdin: stdin}
	t.resize(*c.TTY)
	go func() {
		defer close(t.copied)
		_, _ = io.Copy(c.Stdout, master) // ends with EIO when the last terminal end closes
	}()
	go func() {
		_, err := io.Copy(master, stdin)
		if err == nil {
			_, _ = master.Write([]byte{4}) // the end of stdin is ^D on a terminal
		}
	}()
	return t, nil
}

func (t *terminal) resize(size sdk.WindowSize) {
	conn, err := t.master.SyscallConn() // Fd would put the descriptor into blocking mode
	if err != nil {
		return // the terminal is closed
	}
	_ = conn.Control(func(fd uintptr) {
		_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	})
}

// started lets go of our copy of the command's end, so that the output ends with it.
func (t *terminal) started() {
	if t != nil {
		t.hold.Do(func() { t.slave.Close() })
	}
}

// drain waits until all output has been passed on.
func (t *terminal) drain() {
	if t == nil {
		return
	}
	timer := time.NewTimer(drainTimeout)
	defer timer.Stop()
	select {
	case <-t.copied:
	case <-timer.C:
	}
}

func (t *terminal) close() {
	t.started()
	t.stdin.Close()
	t.master.Close()
}
