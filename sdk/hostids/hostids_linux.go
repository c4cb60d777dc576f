// Package hostids chooses the user and group ids that sandboxes have on the host when root starts them, so that no
// process of a sandbox is root, or any of the host's users, to the kernel.
package hostids

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// The ids lie above those of systemd-nspawn, below 2^31, and are nobody's by the registry at
// https://systemd.io/UIDS-GIDS/. Each sandbox gets a slot.
const (
	first = 1879048192
	// OnDisk is how many ids of files are mapped, from 0 up.
	OnDisk = 1 << 16
	size   = 2 * OnDisk // and room for one larger id
	// Slots is how many there are.
	Slots = (1<<31 - first) / size
)

// Base returns the first host id of a slot, which is taken modulo Slots.
func Base(slot uint32) int { return first + int(slot%Slots)*size }

// Map shifts the ids that are on disk to base and up, and returns which host id the given one has.
func Map(base, id int) ([]syscall.SysProcIDMap, int) {
	m := []syscall.SysProcIDMap{{ContainerID: 0, HostID: base, Size: OnDisk}}
	if id < OnDisk {
		return m, base + id
	}
	return append(m, syscall.SysProcIDMap{ContainerID: id, HostID: base + OnDisk, Size: 1}), base + OnDisk
}

// Root says whether this process is root of the machine: root of a container's user namespace has no ids to give away.
func Root() bool {
	if os.Geteuid() != 0 {
		return false
	}
	m, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && bytes.Equal(bytes.Join(bytes.Fields(m), []byte(" ")), []byte("0 0 4294967295"))
}

// OpenShifted returns a detached mount of the directory p, without what is mounted below it, in which the owners of
// files are shifted by the maps. The caller closes it. Not every file system can be mounted like that; the error then
// is EINVAL.
func OpenShifted(p string, uids, gids []syscall.SysProcIDMap) (*os.File, error) {
	ns, err := userNamespace(uids, gids)
	if err != nil {
		return nil, fmt.Errorf("make a user namespace: %w", err)
	}
	defer ns.Close()
	fd, err := unix.OpenTree(unix.AT_FDCWD, p, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, &os.PathError{Op: "open_tree", Path: p, Err: err}
	}
	tree := os.NewFile(uintptr(fd), p)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		Userns_fd: uint64(ns.Fd())}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		tree.Close()
		return nil, &os.PathError{Op: "shift the ids of", Path: p, Err: err}
	}
	return tree, nil
}

// userNamespace makes one by a child that stops before its first instruction.
func userNamespace(uids, gids []syscall.SysProcIDMap) (*os.File, error) {
	runtime.LockOSThread() // which is the tracer
	defer runtime.UnlockOSThread()
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"userns"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER, UidMappings: uids, GidMappings: gids, Ptrace: true, Pdeathsig: unix.SIGKILL,
	}})
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = unix.Kill(pid, unix.SIGKILL)
		for {
			if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
				return
			}
		}
	}()
	return os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
}
