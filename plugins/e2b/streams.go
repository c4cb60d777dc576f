package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
)

// streams are the command's streams opened once more, without waiting, so that a read or a write can be given up. On
// hosts where a pipe cannot be opened by its descriptor they are the command's own.
type streams struct {
	stdin, stdout, stderr *os.File
	own                   []*os.File
}

func openStreams(c *sdk.Command) (*streams, error) {
	s := &streams{stdin: c.Stdin, stdout: c.Stdout, stderr: c.Stderr}
	for _, f := range []struct {
		to   **os.File
		flag int
	}{{&s.stdin, os.O_RDONLY}, {&s.stdout, os.O_WRONLY}, {&s.stderr, os.O_WRONLY}} {
		st, err := (*f.to).Stat()
		if err != nil {
			return nil, errors.Join(sdk.Errorf(sdk.ReasonInternal, "the command's streams: %w", err), s.close())
		}
		if st.Mode().Type() != fs.ModeNamedPipe {
			continue
		}
		again, err := os.OpenFile(fmt.Sprintf("/dev/fd/%d", (*f.to).Fd()), f.flag|unix.O_NONBLOCK, 0)
		if errors.Is(err, unix.ENXIO) {
			continue // its reader is gone already: the first write fails
		}
		if err != nil {
			return nil, errors.Join(sdk.Errorf(sdk.ReasonInternal, "the command's streams: %w", err), s.close())
		}
		*f.to = again
		s.own = append(s.own, again)
	}
	return s, nil
}

// close wakes up those that wait in one of them.
func (s *streams) close() error {
	var errs []error
	for _, f := range s.own {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
