package inside

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// AsUser runs fn with the file system rights of another user, on its own thread. Only root can.
func AsUser(uid, gid int, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine, and its ids with it.
		runtime.LockOSThread()
		done <- func() error {
			if err := unix.Setfsgid(gid); err != nil {
				return err
			}
			if err := unix.Setfsuid(uid); err != nil {
				return err
			}
			return fn()
		}()
	}()
	return <-done
}
