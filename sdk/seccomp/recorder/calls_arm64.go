//go:build linux

package recorder

import "golang.org/x/sys/unix"

func init() { calls[unix.SYS_EXECVE] = call{dir: -1, flags: -1} } // the rest of what amd64 has besides is not there
