package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/holder"
	"github.com/hutch-run/hutch/sdk/hostids"
)

// identity is who a sandbox is to the host.
//
// Root never runs bwrap as root, not even as root of a user namespace whose root
// is the host's: sysctl files such as core_pattern look at the host uid and at no
// capability. Instead every sandbox gets a range of 65,536 host ids, and the
// directories it may see are mounted with their ids shifted into that range. So a
// project of root's is the sandbox user's own, and what the sandbox writes to it
// is root's on disk, but no process of the sandbox ever is.
//
// An ordinary user has one id only, which is the sandbox's as well.
type identity struct {
	holder.Identity
	base     int         // first host id of its slot
	uid, gid int         // what commands run as, inside the holder's user namespace
	slot     int         // lock on the range of ids; -1 without one
	mounts   *os.File    // the host's mount table, opened before the holder started; nil when it cannot be
	changed  atomic.Bool // that table has changed
	hostUID  int64       // what commands run as on the host
	hostGID  int64
}

// newIdentity chooses who a sandbox whose workspace belongs to owner is. Close
// gives the ids back.
func newIdentity(ownerUID, ownerGID int) *identity {
	if !hostids.Root() {
		return &identity{
			Identity: holder.Identity{
				UIDs: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
				GIDs: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			},
			slot: -1, hostUID: int64(os.Getuid()), hostGID: int64(os.Getgid()),
		}
	}
	base, lock := takeSlot()
	id := &identity{base: base, slot: lock}
	id.Privileged = true
	id.become(ownerUID, ownerGID)
	return id
}

// become makes the identity that of a workspace owned by uid and gid. Once a
// holder has been started with it, both must be below [hostids.OnDisk].
func (id *identity) become(uid, gid int) {
	if !id.Privileged {
		return
	}
	id.uid, id.gid = uid, gid
	var hostUID, hostGID int
	id.UIDs, hostUID = hostids.Map(id.base, uid)
	id.GIDs, hostGID = hostids.Map(id.base, gid)
	id.hostUID, id.hostGID = int64(hostUID), int64(hostGID)
}

// general says whether a holder with these ids is fit for other owners, too.
func (id *identity) general() bool { return len(id.UIDs) == 1 && len(id.GIDs) == 1 }

// takeSlot finds a range of ids that no other sandbox uses. The lock is an
// abstract socket: machine-wide, and freed by the kernel when this process ends.
// Should all be taken, one is used twice, which costs no more than a layer.
func takeSlot() (base, lock int) {
	start := rand.IntN(hostids.Slots)
	for i := range hostids.Slots {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			break
		}
		base = hostids.Base(uint32(start + i))
		if unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@hutch-bwrap-uids-%d", base)}) == nil {
			return base, fd
		}
		unix.Close(fd)
	}
	return hostids.Base(uint32(start)), -1
}

// openMounts opens the host's mount table, which reports when it changes.
func openMounts() *os.File {
	fd, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), "mountinfo")
}

// mountsChanged reports whether the host's mounts are others than when the holder started, as far as can be known.
func (id *identity) mountsChanged() bool {
	if id.mounts == nil || id.changed.Load() {
		return true
	}
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(id.mounts.Fd()), Events: unix.POLLPRI}}, 0) // which says so once
	if n != 0 || err != nil {
		id.changed.Store(true)
	}
	return id.changed.Load()
}

// Close gives the ids back.
func (id *identity) Close() {
	id.mounts.Close()
	if id.slot >= 0 {
		unix.Close(id.slot)
		id.slot = -1
	}
}
