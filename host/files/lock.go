package files

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// LockFile returns an [Options.Lock] that holds a lock on a file, made when missing, which other processes with the
// same path wait for. It is freed when its holder dies.
func LockFile(path string) func(ctx context.Context) (release func(), err error) {
	return func(ctx context.Context) (func(), error) {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
			err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
			if err == nil {
				return func() { _ = f.Close() }, nil
			}
			if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
				_ = f.Close()
				return nil, err
			}
			select {
			case <-ctx.Done():
				_ = f.Close()
				return nil, context.Cause(ctx)
			case <-time.After(wait):
			}
		}
	}
}
