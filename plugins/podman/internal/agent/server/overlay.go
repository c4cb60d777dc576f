package server

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Overlay mounts an overlay file system at TARGET, of the directory LOWER and the directories upper and work of LAYER,
// takes both out of sight, gives up every capability for good, and goes on with the rest of the arguments as another
// program of this container: SYS_ADMIN is held by nobody from then on. It returns only what went wrong.
func Overlay(args []string) error {
	if len(args) < 4 || os.Getpid() != 1 {
		return errors.New("overlay is for the first process of a container, with LOWER LAYER TARGET COMMAND and its arguments")
	}
	lower, layer, target := args[0], args[1], args[2]
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work,userxattr", lower, layer, layer)
	if err := unix.Mount("overlay", target, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount the overlay at %s: %w", target, err)
	}
	for _, dir := range []string{lower, layer} {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("take %s out of sight: %w", dir, err)
		}
	}
	runtime.LockOSThread() // capabilities are a thread's own; this one becomes the program
	for c := 0; c <= 63; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
			if errors.Is(err, unix.EINVAL) && c > unix.CAP_SYS_ADMIN {
				break // there are no more
			}
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("drop ambient capabilities: %w", err)
	}
	var none [2]unix.CapUserData
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return fmt.Errorf("execute %s: %w", args[3], syscall.Exec(args[3], args[3:], os.Environ()))
}
