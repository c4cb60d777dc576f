// Package wire holds the messages between the plugin and a holder, the process
// that keeps one sandbox's mounts, and carries them over a socket together with
// file descriptors.
//
// It imports nothing that is not initialised at once, because the holder is the
// plugin's own binary and must be at work before the packages of gRPC have been:
// see package stage.
package wire

// HolderName is argv[0] of a holder process.
const HolderName = "hutch-bwrap-holder"

// ObserverName is argv[0] of a process that becomes bwrap once it has a filter whose listener somebody else serves.
const ObserverName = "hutch-bwrap-observer"

// NoFilter begins the error of a holder that cannot filter the network.
const NoFilter = "filter the network"

// SocketFD is the descriptor on which a holder finds its socket.
const SocketFD = 3

// Request is what the plugin asks of a holder. Exactly one field is set.
type Request struct {
	Setup *Setup
	Exec  *Exec
	PTY   bool
	Clear bool
	Mount *Mount // into the sandbox, of a Setup with Late
	Dial  int    // a port of the loopback of commands; 0: none
	Join  bool   // of a persistent holder: its state, and the directories of its setup once more
	End   bool   // of a persistent holder: end every command and the holder
}

// Reply is what a holder answers. Setup, PTY and Clear get one reply each, in
// order; an Exec gets Spawned, and Ended once the process is gone.
type Reply struct {
	Err string // why the request could not be done

	Ready   bool
	State   []byte // of Join: that of [Persistent]
	Dialled bool   // of Dial: with the descriptor of a connection, unless nothing listens there
	PTY     string // path of the terminal inside the sandbox; descriptors: controlling end, terminal
	Spawned *Spawned
	Ended   *Ended
}

// Setup describes the world of one sandbox. It is the first request, and comes
// again only after a Clear, which takes that world away. Everything is made
// below a fresh root, in the order of the lists.
type Setup struct {
	Trees        []Tree      // host trees, opened while the host is still in sight
	Files        []File      // made in the fresh root
	Mounts       []Mount     // made on top of them
	Freeze       []string    // mounts made read-only at the very end
	Scratch      int64       // bytes of the tmpfs at /scratch; 0 means no limit but the kernel's default
	ScratchFiles int64       // files and directories on it, likewise
	BwrapFD      int         // index of the descriptor of the bwrap binary
	Args         []string    // arguments of bwrap that stay the same for each command
	Seccomp      []byte      // the filter, as bwrap reads it from a descriptor
	CPUs         []int       // processors that bwrap and commands may use; empty means all
	UID, GID     int         // what bwrap runs as, inside the holder's user namespace
	Give         []string    // directories whose descriptors go back with the reply
	Late         bool        // a Mount comes later, and commands that were started before see it, too
	Filtered     bool        // each command has a filtered network namespace: see package netns
	Loopback     []int       // ports of its loopback that are the host's
	Persistent   *Persistent // set for a holder that outlives the plugin
}

// Persistent makes a holder outlive the plugin that started it. It then serves any number of plugins at once, and ends
// when one of them says so, or when its socket is removed. The end of a plugin's connection ends the
// commands that this plugin started.
type Persistent struct {
	Listen int    // index of the descriptor of a bound socket
	File   int    // index of a descriptor of the file that the socket is
	Slot   int    // index of the descriptor that keeps the range of ids, -1 for none
	State  []byte // given to every plugin that joins
}

// SocketName is the name of a persistent holder's socket in its sandbox's directory.
const SocketName = "holder.sock"

// Tree is a part of the host's file system that the holder attaches elsewhere.
type Tree struct {
	At string // where it is attached in the holder's root, made as the source is: directory or file
	// Path is cloned by the holder itself, with its own rights. It is empty when
	// FD names a received descriptor of a detached mount.
	Path     string
	FD       int
	ReadOnly bool
	Devices  bool // leave device nodes alive
}

// FileKind says what a [File] is.
type FileKind string

// The kinds of files.
const (
	Dir     FileKind = "dir"
	Regular FileKind = "file"
	Symlink FileKind = "symlink"
	Copy    FileKind = "copy" // of a host file, read before the host is gone; skipped if missing
)

// File is made in the fresh root. Missing parents are made with mode 0755.
type File struct {
	Kind FileKind
	Path string // absolute, in the holder's root; the sandbox's root is /root
	Mode uint32
	Own  bool   // it belongs to the command's user, not to the holder
	Data []byte // content; the target of a symlink; the source of a copy
}

// MountKind says what a [Mount] is.
type MountKind string

// The kinds of mounts.
const (
	Bind    MountKind = "bind"    // Source is a path in the holder's root
	Tmpfs   MountKind = "tmpfs"   // Data are its options
	Overlay MountKind = "overlay" // Data are its options
	Devpts  MountKind = "devpts"
)

// Mount is made at Target, which exists by then, in the holder's root.
type Mount struct {
	Kind     MountKind
	Source   string
	Target   string
	Data     string
	ReadOnly bool
}

// Exec runs bwrap once, with a pid 1 that waits for its command. Its descriptors are bwrap's stderr, the status socket
// and, with Observe, the socket for the listener.
type Exec struct {
	ID      uint64
	Program string // pid 1, as the sandbox sees it
	Observe []byte // a further filter, which leaves calls to its listener; empty: none
}

// Spawned says that bwrap runs. With it comes bwrap's pidfd: the holder's process namespace has other numbers. After it
// come the listeners of a filtered network.
type Spawned struct {
	ID uint64 // of the Exec
}

// Ended says how bwrap ended.
type Ended struct {
	ID       uint64
	Status   int   // wait status
	UserUS   int64 // microseconds of CPU, descendants included
	SysUS    int64
	MaxRSSKB int64 // of the largest process
}
