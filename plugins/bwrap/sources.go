package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/inside"
)

// own gives the sandbox's user the host directory source as its own, at the path
// at of the holder's root. Started by root, that takes an id-mapped mount.
func (l *layout) own(source, at string, readOnly bool) error {
	if !l.id.Privileged {
		l.tree(source, at, readOnly)
		return nil
	}
	fd, err := cloneTree(source, 0)
	if err != nil {
		return err
	}
	if err := l.shift(fd); err != nil {
		unix.Close(fd)
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSYS) {
			return fmt.Errorf("map the owners of %s: %w", source, err)
		}
		return sdk.Errorf(sdk.ReasonMissing,
			"root cannot lend %s to an unprivileged sandbox: its file system (%s) or this kernel has no id-mapped mounts: %w",
			source, fsName(source), err).
			WithFix("run hutch as an ordinary user, or put the directory and hutch's state on ext4, xfs, btrfs or tmpfs with " +
				"Linux 5.19 or newer")
	}
	l.give(fd, at, readOnly)
	return nil
}

// ownLayer gives the sandbox's user the layer on disk. It is nobody else's, so
// where owners cannot be mapped it simply gets the sandbox's.
func (l *layout) ownLayer(source, at string) error {
	if !l.id.Privileged {
		l.tree(source, at, false)
		return nil
	}
	fd, err := cloneTree(source, 0)
	if err != nil {
		return err
	}
	l.give(fd, at, false)
	if l.shift(fd) == nil {
		return nil
	}
	for _, d := range layerDirs(source) {
		if err := os.Chown(d, int(l.id.hostUID), int(l.id.hostGID)); err != nil {
			return fmt.Errorf("give the layer to the sandbox: %w", err)
		}
	}
	return nil
}

// layerDirs are the directories that makeLayer makes, parents first.
func layerDirs(layer string) []string {
	return []string{layer, filepath.Join(layer, "upper"), filepath.Join(layer, "work"), filepath.Join(layer, "output")}
}

// readable lets the sandbox read the host directory source. Where owners cannot
// be mapped, what everybody may read is all it reads.
func (l *layout) readable(source, at string) error {
	if !l.id.Privileged {
		l.tree(source, at, true)
		return nil
	}
	fd, err := cloneTree(source, 0)
	if err != nil {
		return err
	}
	if err := l.shift(fd); err != nil {
		l.ready.Notes = append(l.ready.Notes,
			fmt.Sprintf("%s has no id-mapped mounts: the sandbox reads there only what everybody may read", source))
	}
	l.give(fd, at, true)
	return nil
}

// visible shows a host path read-only with all that is mounted below it.
func (l *layout) visible(source, at string) error {
	if !l.id.Privileged {
		l.tree(source, at, true)
		return nil
	}
	fd, err := cloneTree(source, unix.AT_RECURSIVE)
	if err != nil {
		return err
	}
	l.give(fd, at, true)
	return nil
}

func (l *layout) give(fd int, at string, readOnly bool) {
	l.setup.Trees = append(l.setup.Trees, wire.Tree{FD: len(l.fds), At: at, ReadOnly: readOnly})
	l.fds = append(l.fds, fd)
}

// cloneTree returns a detached copy of a mount, for root only.
func cloneTree(source string, flags uint) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, source, flags|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", source, err)
	}
	return fd, nil
}

// fsName names the file system that path lies on, for a message.
func fsName(path string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "unknown"
	}
	names := map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
		unix.TMPFS_MAGIC:           "tmpfs",
		unix.OVERLAYFS_SUPER_MAGIC: "overlayfs", unix.NFS_SUPER_MAGIC: "nfs", unix.FUSE_SUPER_MAGIC: "fuse",
	}
	if n := names[int64(st.Type)]; n != "" {
		return n
	}
	return fmt.Sprintf("type %#x", st.Type)
}

// makeLayer makes the directories on disk that the sandbox writes to, below
// layer: they belong to the sandbox's user, and the upper layer of the workspace
// looks like the directory under it, whose attributes it hides.
func makeLayer(layer string, mode os.FileMode, id *identity, source *syscall.Stat_t) error {
	if _, err := os.Lstat(filepath.Join(layer, "output")); err == nil {
		return nil // of a kept sandbox
	}
	for _, d := range layerDirs(layer) {
		if err := os.Mkdir(d, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make the sandbox's layer: %w", err)
		}
		if id.Privileged {
			if err := os.Chown(d, id.uid, id.gid); err != nil {
				return fmt.Errorf("make the sandbox's layer: %w", err)
			}
		}
	}
	upper := filepath.Join(layer, "upper")
	if err := os.Chmod(upper, mode); err != nil {
		return err
	}
	if source.Nlink == 0 { // no workspace
		return nil
	}
	return os.Chtimes(upper, time.Unix(source.Atim.Unix()), time.Unix(source.Mtim.Unix()))
}

// modeOf converts permissions as the kernel has them.
func modeOf(m uint32) os.FileMode {
	mode := os.FileMode(m & 0o777)
	if m&0o1000 != 0 {
		mode |= os.ModeSticky
	}
	return mode
}

// removeLayer removes what makeLayer and the sandbox made below dir; of a kept one, also the frozen layers that only it
// used.
func removeLayer(dir string, kept bool) error {
	err := removeBelow(dir, "layer")
	if kept {
		err = errors.Join(err, sweepFrozen(dir))
	}
	return err
}

// copiesDir is where the copies lie that a layout's lower makes, below the sandbox's directory.
var copiesDir = filepath.Join("layer", "copies")

// removeBelow removes name below dir with all that is in it, also what its owner closed to itself.
func removeBelow(dir, name string) error {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return inside.RemoveAll(root, name)
}
