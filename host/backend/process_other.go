//go:build !linux

package backend

import "net"

// waitExited cannot wait here without reaping, and says so.
func waitExited(int) bool { return false }

// killStrays cannot find them here.
func (p *process) killStrays() {}

// checkPeer trusts the private directory that the socket lies in.
func checkPeer(net.Conn, int) error { return nil }

// execPath is the path of the binary: a file cannot be executed by its descriptor here.
func execPath(b *binary) (path string, passed bool) { return b.path, false }
