package confined

import "golang.org/x/sys/unix"

// Landlock returns the version that this kernel offers this process, 0 for none.
func Landlock() int {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 {
		return 0
	}
	return int(n)
}
