package sdk

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

// execStreams are our ends of the FIFOs.
type execStreams struct{ in, out, err *os.File }

func openStreams(start *pb.ExecStart) (*execStreams, error) {
	s := &execStreams{}
	var err error
	if s.in, err = openStream(start.GetStdin(), unix.O_RDONLY); err == nil {
		if s.out, err = openStream(start.GetStdout(), unix.O_WRONLY); err == nil {
			s.err, err = openStream(start.GetStderr(), unix.O_WRONLY)
		}
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// openStream opens one FIFO, or /dev/null when there is none. It cannot block: the
// host has its end open already, and if it has not, that is an error. The file is
// a blocking one, because it is handed to a command which expects no other.
func openStream(path string, mode int) (*os.File, error) {
	if path == "" {
		path = os.DevNull
	}
	fd, err := unix.Open(path, mode|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENXIO) {
		return nil, Errorf(ReasonConfig, "the host has not opened its end of %s", path)
	}
	if err == nil {
		err = checkStream(fd, path)
	}
	if err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return nil, fmt.Errorf("opening a stream of the command: %w", &os.PathError{Op: "open", Path: path, Err: err})
	}
	return os.NewFile(uintptr(fd), path), nil
}

// checkStream refuses what is no FIFO: a file would be cut short or overwritten.
func checkStream(fd int, path string) error {
	if path == os.DevNull {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return errors.New("not a FIFO")
	}
	return nil
}

// close closes what is open; a backend may have closed some of it.
func (s *execStreams) close() {
	for _, f := range []*os.File{s.in, s.out, s.err} {
		if f != nil {
			f.Close()
		}
	}
}
