package command

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/supervise"
)

// drainTimeout bounds the wait for the last output of a terminal: its reader may have stopped reading.
const drainTimeout = 10 * time.Second

// Terminal copies our end of a command's terminal to and from the command's streams. A nil Terminal does nothing.
type Terminal struct {
	pty    supervise.Terminal // our end alone
	stdin  *os.File
	copied chan struct{} // closed when all output has been passed on
}

// OpenTerminal begins to copy between master, our end of a terminal, and the streams of c. It takes over master, also
// when it fails. The size of the terminal is the caller's to set.
func OpenTerminal(master *os.File, c *sdk.Command) (*Terminal, error) {
	// A description of its own, which Close can wake up.
	stdin, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", c.Stdin.Fd()), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		_ = master.Close()
		return nil, sdk.Errorf(sdk.ReasonInternal, "open the command's input: %w", err)
	}
	t := &Terminal{pty: supervise.Terminal{Master: master}, stdin: stdin, copied: make(chan struct{})}
	go func() {
		defer close(t.copied)
		_, _ = t.pty.Output(c.Stdout)
	}()
	go func() {
		if _, err := io.Copy(master, stdin); err == nil {
			_, _ = master.Write([]byte{4}) // the end of stdin is ^D on a terminal
		}
	}()
	return t, nil
}

// Resize sets the window's size. A terminal that is closed has none.
func (t *Terminal) Resize(size sdk.WindowSize) {
	if t != nil {
		_ = t.pty.Resize(size.Rows, size.Cols)
	}
}

// Drain waits until all output has been passed on, but not for somebody who does not read it.
func (t *Terminal) Drain() {
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

// Close ends the copying.
func (t *Terminal) Close() {
	if t != nil {
		_ = t.stdin.Close()
		_ = t.pty.Master.Close()
	}
}
