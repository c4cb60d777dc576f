package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/hostids"
)

// shiftedDir is where the mounts with shifted owners are while a container is started. It is outside the sandbox's
// state directory, because removing that with all that is in it would remove the project.
const shiftedDir = "/run/hutch-podman"

// shifted returns a path at which the container's user namespace sees the host directory p with its owners as they are.
func (l *layout) shifted(p string) (string, error) {
	at, err := l.place()
	if err != nil || l.plan {
		return at, err
	}
	tree, err := l.who.open(p)
	if err != nil {
		return "", err
	}
	defer tree.Close()
	if err := unix.MoveMount(int(tree.Fd()), "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return "", &os.PathError{Op: "mount", Path: at, Err: err}
	}
	return at, nil
}

// merged returns a path at which the upper layer is laid over source. The OCI runtime would mount the overlay as root
// of the container's namespace, who comes to none of its layers and may not write its marks.
func (l *layout) merged(source string) (string, error) {
	at, err := l.place()
	if err != nil || l.plan {
		return at, err
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", source, l.dirs.upper(), l.dirs.work())
	if err := unix.Mount("overlay", at, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return "", errors.Join(&noOverlay{err.Error()},
			sdk.Errorf(sdk.ReasonMissing, "mount the overlay of the workspace: %w",
				err).WithFix(`use overlay = "copy", or auto`))
	}
	return at, nil
}

// place makes a directory to mount upon, and returns its path.
func (l *layout) place() (string, error) {
	l.names++
	at := filepath.Join(shiftedDir, l.id, fmt.Sprint(l.names))
	if l.plan {
		return at, nil
	}
	// The OCI runtime looks at the path as root of the container's namespace; nobody else shall.
	if err := os.MkdirAll(shiftedDir, 0o711); err != nil {
		return "", err
	}
	for _, dir := range []string{filepath.Dir(at), at} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
		if err := os.Lchown(dir, l.who.uids[0].HostID, l.who.gids[0].HostID); err != nil {
			return "", err
		}
	}
	return at, nil
}

// open opens a host directory with its owners shifted.
func (id identity) open(p string) (*os.File, error) {
	tree, err := hostids.OpenShifted(p, id.uids, id.gids)
	if errors.Is(err, unix.EINVAL) {
		return nil,
			sdk.Errorf(sdk.ReasonMissing,
				"the file system of %s cannot show files with other owners, which keeps commands from being root of this "+
					"machine: %w", p, err).
				WithFix("run hutch as an ordinary user, or keep the project on ext4, xfs, btrfs or tmpfs")
	}
	return tree, err
}

// unshift takes the mounts of a sandbox away. The container has mounts of its own by then.
func unshift(id string) error {
	dir := filepath.Join(shiftedDir, id)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // there are none
	}
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		if err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount %s: %w", at, err)
		}
		if err := os.Remove(at); err != nil { // never with what is in it
			return err
		}
	}
	return os.Remove(dir)
}
