package supervise

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

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
	return OpenTerminalAt("/dev/ptmx", rows, cols)
}

// OpenTerminalAt is [OpenTerminal] in the instance of devpts to which the file ptmx belongs.
func OpenTerminalAt(ptmx string, rows, cols uint16) (*Terminal, error) {
	master, err := os.OpenFile(ptmx, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	t := &Terminal{Master: master}
	if t.Slave, err = t.openSlave(); err != nil {
		master.Close()
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	if err := t.Resize(cmp.Or(rows, 24), cmp.Or(cols, 80)); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// openSlave opens the other end, and not by its name, which a command could have put another file in the place of.
func (t *Terminal) openSlave() (slave *os.File, err error) {
	cerr := t.control(func(fd int) {
		var n int
		if n, err = unix.IoctlGetInt(fd, unix.TIOCGPTN); err != nil {
			return
		}
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return
		}
		peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER,
			unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
		if errno != 0 {
			err = errno
			return
		}
		slave = os.NewFile(peer, fmt.Sprintf("/dev/pts/%d", n))
	})
	return slave, errors.Join(cerr, err)
}

// control calls fn with the descriptor of our end. Its Fd method would make reads of it ones that Close does not end.
func (t *Terminal) control(fn func(fd int)) error {
	conn, err := t.Master.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Control(func(fd uintptr) { fn(int(fd)) })
}

// Resize sets the size of the terminal; the kernel signals the command with SIGWINCH when it differs.
func (t *Terminal) Resize(rows, cols uint16) error {
	var err error
	cerr := t.control(func(fd int) {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ,
			&unix.Winsize{Row: rows, Col: cols})
	})
	if err = errors.Join(cerr, err); err != nil {
		return fmt.Errorf("set the size of the terminal: %w", err)
	}
	return nil
}

// Raw makes the terminal pass every byte as it is, both ways: no echo, no line editing, no signals from keys, no change
// of line ends. It is for a command that is not meant to see a terminal's habits.
func (t *Terminal) Raw() error {
	var err error
	cerr := t.control(func(fd int) { _, err = term.MakeRaw(fd) })
	if err = errors.Join(cerr, err); err != nil {
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
