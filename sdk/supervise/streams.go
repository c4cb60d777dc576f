//go:build unix

package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Streams are the ends of FIFOs that a command gets as its standard streams. They are plain blocking descriptors: give
// them to exec.Cmd as they are, and it makes no copying goroutine and no pipe.
type Streams struct{ Stdin, Stdout, Stderr *os.File }

// OpenStreams opens the FIFOs at the given paths, stdin to read and the others to write; an empty path leaves its
// stream nil. Anything that is not a FIFO is refused.
//
// Opening a FIFO waits for the peer to open its other end. Waiting is wanted: a program that were given its standard
// input before there is a writer would read an end of file at once. All are waited for at the same time, so no order in
// which the peer opens them can deadlock, and at the longest until ctx ends; a peer that has died is never waited for
// beyond that. The peer may open its ends in any order too, each without blocking (to write only once there is a
// reader) or all at the same time.
func OpenStreams(ctx context.Context, stdin, stdout, stderr string) (*Streams, error) {
	var s Streams
	var errs [3]error
	var wg sync.WaitGroup
	for i, o := range []struct {
		path string
		flag int
		to   **os.File
	}{{stdin, unix.O_RDONLY, &s.Stdin}, {stdout, unix.O_WRONLY, &s.Stdout}, {stderr, unix.O_WRONLY, &s.Stderr}} {
		if o.path != "" {
			wg.Go(func() { *o.to, errs[i] = openFIFO(ctx, o.path, o.flag) })
		}
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		s.Close()
		return nil, err
	}
	return &s, nil
}

// Close closes what is open. A command that was started keeps its own descriptors.
func (s *Streams) Close() error {
	var errs []error
	for _, f := range []*os.File{s.Stdin, s.Stdout, s.Stderr} {
		if f != nil {
			if err := f.Close(); !errors.Is(err, os.ErrClosed) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// openFIFO opens one end and waits for the other. It opens without package os, which would set O_NONBLOCK: that flag
// belongs to the open file and not to the descriptor, so the child would inherit it and many programs take EAGAIN for
// an error.
func openFIFO(ctx context.Context, path string, flag int) (*os.File, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, context.Cause(ctx))
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return nil, fmt.Errorf("open %s: not a FIFO", path)
	}
	type opened struct {
		fd  int
		err error
	}
	done := make(chan opened, 1)
	go func() {
		for {
			fd, err := unix.Open(path, flag|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err != unix.EINTR {
				done <- opened{fd, err}
				return
			}
		}
	}()
	var o opened
	select {
	case o = <-done:
	case <-ctx.Done():
		// Having both ends open ourselves for a moment lets the waiting open go.
		release, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == nil {
			o = <-done
			unix.Close(release)
			if o.err == nil {
				unix.Close(o.fd)
			}
		}
		return nil, fmt.Errorf("open %s: nobody opened the other end: %w", path, context.Cause(ctx))
	}
	if o.err != nil {
		return nil, fmt.Errorf("open %s: %w", path, o.err)
	}
	if err := unix.Fstat(o.fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		unix.Close(o.fd)
		return nil, fmt.Errorf("open %s: not a FIFO any more", path)
	}
	return os.NewFile(uintptr(o.fd), path), nil
}
