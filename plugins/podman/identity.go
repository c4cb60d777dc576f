package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/hutch-run/hutch/sdk"
)

// identity is who commands are: inside the container, and on the host.
type identity struct {
	rootless         bool
	uid, gid         int // inside
	hostUID, hostGID int
	flags            []string // of podman run
}

// identify decides who the commands of a sandbox are. Rootless they are whoever runs hutch, so that the files they make
// can be read and removed; the container shows that user as root, or by the number asked for. Rootful they are the owner
// of the project, or the number asked for, without any capability.
func identify(spec *sdk.Spec, rootless bool) (identity, error) {
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
	}
	id.flags = append(id.flags, fmt.Sprintf("--user=%d:%d", id.uid, id.gid))
	return id, nil
}

// ownerOf returns whom the project belongs to; without one, whom the input does; else nobody.
func ownerOf(spec *sdk.Spec) (uid, gid int) {
	for _, dir := range []string{spec.Workspace.Source, spec.Input} {
		var st syscall.Stat_t
		if dir != "" && syscall.Stat(dir, &st) == nil {
			return int(st.Uid), int(st.Gid)
		}
	}
	return 65534, 65534
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
