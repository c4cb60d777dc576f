package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
)

// drainTimeout bounds the wait for the last output of a terminal: whoever should read it may have stopped reading.
const drainTimeout = 10 * time.Second

// terminal copies our end of a command's terminal to and from the command's streams. A nil terminal does nothing.
type terminal struct {
	master *os.File
	stdin  *os.File
	copied chan struct{} // closed when all output has been passed on
}

func openTerminal(master *os.File, c *sdk.Command) (*terminal, error) {
	// A description of its own, which close can wake up.
	stdin, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", c.Stdin.Fd()), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		master.Close()
		return nil, sdk.Errorf(sdk.ReasonInternal, "open the command's input: %w", err)
	}
	t := &terminal{master: master, stdin: stdin, copied: make(chan struct{})}
	go func() {
		defer close(t.copied)
		_, _ = io.Copy(c.Stdout, master) // ends with EIO when the last terminal end closes
	}()
	go func() {
		if _, err := io.Copy(master, stdin); err == nil {
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
	t.stdin.Close()
	t.master.Close()
}
