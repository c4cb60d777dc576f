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

// drain copies the stream to w until stop is called and what was in the pipe then
// is copied too. A process that outlives the command and keeps the pipe open, or
// even goes on writing, cannot hold it up. When w fails, the pipe is closed, so
// that the command gets SIGPIPE as it would from a pipe of a shell.
func (f *fifo) drain(w io.Writer) error {
	bp := buffers.Get().(*[]byte)
	defer buffers.Put(bp)
	buf := *bp
	for {
		n, err := f.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
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
		left, err := unix.IoctlGetInt(int(fd), bytesInPipe)
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
