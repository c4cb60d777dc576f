package client

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	pipeSize = 1 << 20   // what a FIFO is asked to hold
	readSize = 256 << 10 // what one read takes from it
)

// pipeCounter numbers FIFOs, so that no name is used twice: some file systems
// slow down when one name is made and removed again and again.
type pipeCounter struct{ n atomic.Uint64 }

// fifo is the host's end of one stream.
//
// The end is open for both directions, whichever it uses. So no open blocks; a
// reader never sees end-of-file before the backend has opened the other end; and
// the bytes of a short stdin are not lost when the writer is done before the
// reader came.
type fifo struct {
	*os.File
	path string
}

// newFIFO makes and opens a FIFO in dir, which must be private.
func (n *pipeCounter) newFIFO(dir, kind string) (*fifo, error) {
	if dir == "" {
		return nil, errors.New("no directory for the streams of a command was given")
	}
	path := filepath.Join(dir, kind+strconv.FormatUint(n.n.Add(1), 36))
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, fmt.Errorf("making a stream for the command: %w", &os.PathError{Op: "mkfifo", Path: path, Err: err})
	}
	// The program may open /dev/stdout again, and may be another user: the directory
	// keeps everybody else away from the name.
	if err := os.Chmod(path, 0o666); err != nil {
		os.Remove(path)
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		os.Remove(path)
		return nil, err
	}
	growPipe(f)
	return &fifo{File: f, path: path}, nil
}

// drop removes the FIFO; twice is fine.
func (f *fifo) drop() {
	if f != nil {
		os.Remove(f.path)
		f.Close()
	}
}

// name returns the path for the wire: a stream that is not there has none.
func (f *fifo) name() string {
	if f == nil {
		return ""
	}
	return f.path
}

var buffers = sync.Pool{New: func() any { b := make([]byte, readSize); return &b }}

// A Lender is a Writer of a [Command] that lends the memory in which it wants the bytes, so that they are not copied
// once more. Space returns memory for at most n bytes, or nil when Write has to be used; it is asked only when there are
// bytes to be read. Commit follows every Space that gave memory, with the part of it that was filled, which may be
// empty. NoSpace says that the memory could not be written to.
type Lender interface {
	Space(n int) []byte
	Commit(p []byte) error
	NoSpace()
}

// drain copies the stream to w until stop is called and what was in the pipe then
// is copied too. A process that outlives the command and keeps the pipe open, or
// even goes on writing, cannot hold it up. When w fails, the pipe is closed, so
// that the command gets SIGPIPE as it would from a pipe of a shell.
func (f *fifo) drain(w io.Writer) error {
	bp := buffers.Get().(*[]byte)
	defer buffers.Put(bp)
	buf := *bp
	lender, _ := w.(Lender)
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	for {
		p, lent, err := readSome(rc, lender, buf)
		if lent {
			err = errors.Join(err, lender.Commit(p))
		} else if len(p) > 0 {
			if _, werr := w.Write(p); werr != nil {
				err = werr
			}
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return f.rest(w, buf)
		case err != nil:
			f.Close()
			return err
		}
	}
}

// readSome waits for bytes and reads them, into memory of the lender where it has some, else into buf.
func readSome(rc syscall.RawConn, lender Lender, buf []byte) (p []byte, lent bool, err error) {
	var rerr error
	err = rc.Read(func(fd uintptr) bool {
		into := buf
		if lender != nil {
			left, err := unix.IoctlGetInt(int(fd), fionread)
			if err == nil && left == 0 {
				return false // the end of this file is open for writing too: there is no end-of-file
			}
			if space := lender.Space(left); space != nil {
				into, lent = space, true
			}
		}
		for {
			n, err := unix.Read(int(fd), into)
			switch {
			case err == unix.EINTR:
				continue
			case err == unix.EFAULT && lent:
				// The memory is a file's, and its disk is full.
				rerr = lender.Commit(nil)
				lender.NoSpace()
				into, lent = buf, false
				if rerr != nil {
					return true
				}
				continue
			case err == unix.EAGAIN:
				if !lent {
					return false
				}
				return true // an empty Commit, and again
			case err != nil:
				rerr = err
			default:
				p = into[:n]
			}
			return true
		}
	})
	if err == nil {
		err = rerr
	}
	return p, lent, err
}

// stop ends drain.
func (f *fifo) stop() { f.SetReadDeadline(time.Unix(1, 0)) }

// rest copies the bytes that are in the pipe now, and none that come later.
func (f *fifo) rest(w io.Writer, buf []byte) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var werr error
	err = rc.Control(func(fd uintptr) {
		left, err := unix.IoctlGetInt(int(fd), fionread)
		for werr = err; werr == nil && left > 0; {
			n, err := unix.Read(int(fd), buf[:min(left, len(buf))])
			switch {
			case err == unix.EINTR:
			case err == unix.EAGAIN, err == nil && n == 0:
				return
			case err != nil:
				werr = err
			default:
				left -= n
				_, werr = w.Write(buf[:n])
			}
		}
	})
	if err != nil {
		return err
	}
	return werr
}
