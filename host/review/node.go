package review

import (
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/overlay"
)

// Type says what stands at a path.
type Type string

// The types.
const (
	Nothing   Type = ""
	File      Type = "file"
	Directory Type = "directory"
	Symlink   Type = "symlink"
	Special   Type = "special" // a FIFO, a socket or a device
)

// Node is what stands at a path, in the project or in the sandbox.
type Node struct {
	Type   Type   `json:"type,omitempty"`
	Mode   uint32 `json:"mode,omitempty"`   // permission, set-id and sticky bits, as chmod counts them; 0 for a symbolic link
	Size   int64  `json:"size,omitempty"`   // of a file, in bytes
	Link   string `json:"link,omitempty"`   // where a symbolic link points
	SHA256 string `json:"sha256,omitempty"` // of a file's content, in hex, once it was read
}

// The bits of Node.Mode.
const (
	execBits  = 0o111
	setidBits = unix.S_ISUID | unix.S_ISGID
	otherMay  = 0o002
	allBits   = 0o7777
)

// ident is what shows that a file was touched, without reading it.
type ident struct {
	Dev   uint64 `json:"dev"`
	Ino   uint64 `json:"ino"`
	Size  int64  `json:"size"`
	Mtime int64  `json:"mtime"` // nanoseconds since 1970
	Ctime int64  `json:"ctime"`
	UID   uint32 `json:"uid"`
	GID   uint32 `json:"gid"`
}

// same reports whether both are the same file, not touched in between.
func (i ident) same(o ident) bool {
	return i.Dev == o.Dev && i.Ino == o.Ino && i.Size == o.Size && i.Mtime == o.Mtime && i.Ctime == o.Ctime
}

// moved is same for a file that was renamed in between, which sets its change time.
func (i ident) moved(o ident) bool {
	return i.Dev == o.Dev && i.Ino == o.Ino && i.Size == o.Size && i.Mtime == o.Mtime
}

// nodeOf turns what stat said into a Node, without the target of a link.
func nodeOf(st *unix.Stat_t) (Node, ident) {
	n := Node{Mode: uint32(st.Mode) & allBits}
	switch uint32(st.Mode) & unix.S_IFMT {
	case unix.S_IFREG:
		n.Type, n.Size = File, st.Size
	case unix.S_IFDIR:
		n.Type = Directory
	case unix.S_IFLNK:
		n.Type, n.Mode = Symlink, 0 // they mean nothing
	default:
		n.Type = Special
	}
	return n, ident{Dev: uint64(st.Dev), Ino: st.Ino, Size: st.Size, Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano(), UID: st.Uid, GID: st.Gid}
}

// nodeOfSeen is nodeOf for what was looked at elsewhere; the zero Node for nothing.
func nodeOfSeen(s overlay.Stat) (Node, ident) {
	if s == (overlay.Stat{}) {
		return Node{}, ident{}
	}
	n := Node{Type: typeOf(s.Mode), Mode: bitsOf(s.Mode)}
	switch n.Type {
	case File:
		n.Size = s.Size
	case Symlink:
		n.Mode = 0
	}
	return n, ident{Dev: s.Dev, Ino: s.Ino, Size: s.Size, Mtime: s.Mtime, Ctime: s.Ctime, UID: s.UID, GID: s.GID}
}

// typeOf is the type of a mode.
func typeOf(m fs.FileMode) Type {
	switch m.Type() {
	case 0:
		return File
	case fs.ModeDir:
		return Directory
	case fs.ModeSymlink:
		return Symlink
	}
	return Special
}

// bitsOf turns Go's permission bits into those of chmod.
func bitsOf(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	if m&fs.ModeSetuid != 0 {
		bits |= unix.S_ISUID
	}
	if m&fs.ModeSetgid != 0 {
		bits |= unix.S_ISGID
	}
	if m&fs.ModeSticky != 0 {
		bits |= unix.S_ISVTX
	}
	return bits
}

// modeOf is the opposite of bitsOf.
func modeOf(bits uint32) fs.FileMode {
	m := fs.FileMode(bits & 0o777)
	if bits&unix.S_ISUID != 0 {
		m |= fs.ModeSetuid
	}
	if bits&unix.S_ISGID != 0 {
		m |= fs.ModeSetgid
	}
	if bits&unix.S_ISVTX != 0 {
		m |= fs.ModeSticky
	}
	return m
}

// touched reports whether what stands at a path now is not what the base knows of it.
func touched(e overlay.Entry, known bool, n Node, id ident) bool {
	if !known || n.Type == Nothing {
		return known || n.Type != Nothing
	}
	if typeOf(e.Mode) != n.Type {
		return true
	}
	switch n.Type {
	case File:
		return e.Size != n.Size || e.Mtime != id.Mtime || e.Ctime != id.Ctime || e.Ino != id.Ino
	case Symlink:
		return e.Link != n.Link
	}
	return bitsOf(e.Mode) != n.Mode
}

// copied reports whether a sandbox's version of a path is the copy of the base's that an overlay makes before a write
// which then never came: the same size, times and permissions.
func copied(e overlay.Entry, known bool, n Node, id ident) bool {
	if !known || typeOf(e.Mode) != n.Type {
		return false
	}
	switch n.Type {
	case File:
		return e.Size == n.Size && e.Mtime == id.Mtime && bitsOf(e.Mode) == n.Mode
	case Symlink:
		return e.Link == n.Link
	}
	return bitsOf(e.Mode) == n.Mode
}
