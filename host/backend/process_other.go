//go:build !linux

package backend

import (
	"errors"
	"net"
	"os"
	"path/filepath"
)

// waitExited reports that this system does not say that a child has ended without reaping it.
func waitExited(int) bool { return false }

// killStrays finds nothing without /proc; the group is killed.
func (p *process) killStrays() {}

// execPath is the path to execute: a descriptor cannot be.
func execPath(b *binary) (path string, passed bool) { return b.path, false }

// checkPeer looks at the directory of the socket instead of its process: nobody else can make one there.
func checkPeer(conn net.Conn, _ int) error {
	fi, err := os.Stat(filepath.Dir(conn.RemoteAddr().String()))
	if err == nil && fi.Mode().Perm()&0o077 != 0 {
		err = errors.New("its directory is open to other users")
	}
	return err
}
