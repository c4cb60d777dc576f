//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Terminal is a pseudo-terminal: a command's end and ours.
type Terminal struct {
	Master *os.File // ours: what the command prints is read here, what is typed is written here
	Slave  *os.File // the command's; Start closes it here when the command has it
}

// OpenTerminal makes a terminal of the given size; zeros mean 24 rows and 80 columns.
func OpenTerminal(rows, cols uint16) (*Terminal, error) {
	master, slave, err := pty.Open()
	if err != nil {
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	t := &Terminal{Master: master, Slave: slave}
	if rows == 0 {
		rows = 24
	}
	if cols == 0 {
		cols = 80
	}
	if err := t.Resize(rows, cols); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// Resize sets the size of the terminal; the kernel signals the command with SIGWINCH when it differs.
func (t *Terminal) Resize(rows, cols uint16) error {
	conn, err := t.Master.SyscallConn()
	if err == nil {
		ctl := conn.Control(func(fd uintptr) {
			err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
		})
		err = errors.Join(ctl, err)
	}
	if err != nil {
		return fmt.Errorf("set the size of the terminal: %w", err)
	}
	return nil
}

// Raw makes the terminal pass every byte as it is, both ways: no echo, no line editing, no signals from keys, no change
// of line ends. It is for a command that is not meant to see a terminal's habits.
func (t *Terminal) Raw() error {
	conn, err := t.Master.SyscallConn() // Fd would make reads of it ones that Close does not end
	if err == nil {
		ctl := conn.Control(func(fd uintptr) { _, err = term.MakeRaw(int(fd)) })
		err = errors.Join(ctl, err)
	}
	if err != nil {
		return fmt.Errorf("make the terminal raw: %w", err)
	}
	return nil
}

// Output copies what the command prints to w until the last program has closed the terminal. That end, which Linux
// reports as EIO, is no error.
func (t *Terminal) Output(w io.Writer) (int64, error) {
	n, err := io.Copy(w, eofReader{t.Master})
	return n, err
}

// eofReader turns the EIO of a terminal whose other side is closed into the end of file that it means. Only an error of
// the terminal is taken so, never one of the writer.
type eofReader struct{ f *os.File }

func (r eofReader) Read(p []byte) (int, error) {
	n, err := r.f.Read(p)
	if errors.Is(err, syscall.EIO) || errors.Is(err, os.ErrClosed) {
		err = io.EOF
	}
	return n, err
}

// Close closes both ends. A command that still has the terminal gets SIGHUP.
func (t *Terminal) Close() error {
	err := t.Master.Close()
	if e := t.Slave.Close(); e != nil && !errors.Is(e, os.ErrClosed) {
		err = errors.Join(err, e)
	}
	return err
}
