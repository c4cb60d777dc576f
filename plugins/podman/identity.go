package main

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"syscall"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/hostids"
)

// identity is who commands are: inside the container, and on the host.
type identity struct {
	rootless         bool
	uid, gid         int // inside
	hostUID, hostGID int
	flags            []string // of podman run
	// uids and gids are the user namespace of a container that root starts; none rootless, and where root is not the
	// machine's.
	uids, gids []syscall.SysProcIDMap
}

// identify decides who the commands of a sandbox are. Rootless they are the user who runs hutch, so that the files they
// make can be read and removed; the container shows that user as root, or by the number asked for. Rootful they are the
// owner of the project, or the number asked for, inside of a user namespace whose ids are nobody's on the host.
func identify(spec *sdk.Spec, rootless bool, sandbox string) (identity, error) {
	uid, gid, err := parseUser(configOf(spec).User)
	if err != nil {
		return identity{}, sdk.Errorf(sdk.ReasonConfig, "the user of the backend block: %w", err)
	}
	id := identity{rootless: rootless, uid: uid, gid: gid}
	switch {
	case rootless:
		id.hostUID, id.hostGID = os.Geteuid(), os.Getegid()
		if uid > 0 {
			id.flags = append(id.flags, fmt.Sprintf("--userns=keep-id:uid=%d,gid=%d", uid, gid))
		}
		if uid < 0 {
			id.uid, id.gid = 0, 0
		}
	case uid < 0:
		id.uid, id.gid = ownerOf(spec)
		fallthrough
	default:
		id.hostUID, id.hostGID = id.uid, id.gid
		if !hostids.Root() {
			break
		}
		// By the sandbox's name, so that a later process finds the same ids. Two sandboxes may share them: they see nothing
		// of each other.
		base := hostids.Base(crc32.ChecksumIEEE([]byte(sandbox)))
		id.uids, id.hostUID = hostids.Map(base, id.uid)
		id.gids, id.hostGID = hostids.Map(base, id.gid)
		for _, m := range id.uids {
			id.flags = append(id.flags, fmt.Sprintf("--uidmap=%d:%d:%d", m.ContainerID, m.HostID, m.Size))
		}
		for _, m := range id.gids {
			id.flags = append(id.flags, fmt.Sprintf("--gidmap=%d:%d:%d", m.ContainerID, m.HostID, m.Size))
		}
	}
	id.flags = append(id.flags, fmt.Sprintf("--user=%d:%d", id.uid, id.gid))
	return id, nil
}

// ownerOf returns whom the project belongs to; without one, whom a writable mount or the input does; else nobody.
func ownerOf(spec *sdk.Spec) (uid, gid int) {
	dirs := []string{spec.Workspace.Source}
	for _, m := range spec.Mounts {
		if !m.ReadOnly {
			dirs = append(dirs, m.Source)
		}
	}
	for _, dir := range append(dirs, spec.Input) {
		var st syscall.Stat_t
		if dir != "" && syscall.Stat(dir, &st) == nil {
			return int(st.Uid), int(st.Gid)
		}
	}
	return 65534, 65534
}

// shiftTo maps the owners of files of a sandbox with this identity to those that they have in one with the identity to;
// nil where these are the same.
func (id identity) shiftTo(to identity) func(uid, gid uint32) (uint32, uint32) {
	if id.uids == nil {
		return nil
	}
	shift := func(n uint32, from, to []syscall.SysProcIDMap) uint32 {
		for i, m := range from {
			if d := int(n) - m.HostID; d >= 0 && d < m.Size && i < len(to) {
				return uint32(to[i].HostID + d)
			}
		}
		return n
	}
	return func(uid, gid uint32) (uint32, uint32) {
		return shift(uid, id.uids, to.uids), shift(gid, id.gids, to.gids)
	}
}

// own gives a host directory to the sandbox's user.
func (id identity) own(dir string) error {
	if id.rootless {
		return nil
	}
	if err := os.Lchown(dir, id.hostUID, id.hostGID); err != nil {
		return fmt.Errorf("give %s to the sandbox: %w", dir, err)
	}
	return nil
}

// mkdir makes a host directory of the sandbox's user, unless it is there.
func (id identity) mkdir(dir string, mode os.FileMode) error {
	switch err := os.Mkdir(dir, 0o700); {
	case errors.Is(err, os.ErrExist):
		return nil
	case err != nil:
		return fmt.Errorf("make the sandbox's layer: %w", err)
	}
	if err := os.Chmod(dir, mode); err != nil {
		return err
	}
	return id.own(dir)
}
