// Package flock takes locks on files, which the kernel frees when their holder closes the file or ends. It imports
// nothing of hutch.
package flock

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLocked says that another process holds the lock.
var ErrLocked = errors.New("another process holds its lock")

// Try takes a lock (unix.LOCK_EX or LOCK_SH) now, or returns ErrLocked.
func Try(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrLocked
		default:
			return err
		}
	}
}

// Wait takes a lock, and waits for it until ctx ends; the error is then the cause of that.
func Wait(ctx context.Context, f *os.File, how int) error {
	for wait := 20 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		if err := Try(f, how); !errors.Is(err, ErrLocked) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// Path takes the exclusive lock of a file, which is made when it is missing, as Wait does. release frees it.
func Path(ctx context.Context, path string) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := Wait(ctx, f, unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}
