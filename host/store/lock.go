package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockPatience bounds how long a lock that is held for microseconds may be waited for: a process that holds it longer is
// stopped, and waiting for a stopped process would hang every run on the machine.
var lockPatience = 30 * time.Second

var errLocked = errors.New("another process holds its lock")

// lockFile takes a lock (unix.LOCK_EX or LOCK_SH) that its holders keep for moments.
func lockFile(f *os.File, how int) error {
	deadline := time.Now().Add(lockPatience)
	for wait := 20 * time.Microsecond; ; wait = min(2*wait, 5*time.Millisecond) {
		switch err := tryLock(f, how); {
		case !errors.Is(err, errLocked):
			return err
		case time.Now().After(deadline):
			return fmt.Errorf("%w for %s already (is it stopped?)", errLocked, lockPatience)
		}
		time.Sleep(wait)
	}
}

// waitLock takes a lock that may be held for long, until ctx ends.
func waitLock(ctx context.Context, f *os.File, how int) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		if err := tryLock(f, how); !errors.Is(err, errLocked) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// tryLock takes a lock now or returns errLocked.
func tryLock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return errLocked
		default:
			return err
		}
	}
}

func unlockFile(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }
