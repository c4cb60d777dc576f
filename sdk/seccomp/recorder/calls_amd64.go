//go:build linux

package recorder

import "golang.org/x/sys/unix"

func init() {
	for nr, c := range map[uint32]call{
		unix.SYS_OPEN: {dir: -1, flags: 1}, unix.SYS_CREAT: {dir: -1, flags: -1, write: true},
		unix.SYS_EXECVE: {dir: -1, flags: -1}, unix.SYS_STAT: {dir: -1, flags: -1}, unix.SYS_LSTAT: {dir: -1, flags: -1},
		unix.SYS_ACCESS: {dir: -1, flags: -1}, unix.SYS_MKDIR: {dir: -1, flags: -1, write: true},
	} {
		calls[nr] = c
	}
}
