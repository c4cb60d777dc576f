package stage

import (
	"cmp"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/wire"
)

// makeRoot carries out s: it leaves the holder in a root that consists of
// nothing but what s names, and returns the descriptors s asks for.
func (h *holder) makeRoot(s *wire.Setup, fds []int) (give []int, err error) {
	// Above the numbers that a new process's descriptors are moved to before it is
	// executed by this one, and below 64: a larger table costs a process with threads
	// an RCU grace period, some 10 ms.
	h.bwrap, err = unix.FcntlInt(uintptr(fds[s.BwrapFD]), unix.F_DUPFD_CLOEXEC, 60)
	if err != nil {
		return nil, err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return nil, fmt.Errorf("make a mount namespace: %w", err)
	}
	// Nothing done here may reach the host's mount namespace, nor the other way round.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", err)
	}
	// While the host is in sight: afterwards no path leads there any more.
	trees := make([]int, len(s.Trees))
	defer func() { closeAll(trees) }()
	for i := range trees {
		trees[i] = -1
	}
	for i := range s.Trees {
		if trees[i], err = openTree(&s.Trees[i], fds); err != nil {
			return nil, err
		}
	}
	for i := range s.Files {
		readCopy(&s.Files[i])
	}
	if err := h.pivot(s); err != nil {
		return nil, err
	}
	for i := range s.Files {
		f := &s.Files[i]
		if err := makeFile(f); err != nil {
			return nil, err
		}
		if f.Own {
			if err := unix.Lchown(f.Path, s.UID, s.GID); err != nil {
				return nil, fmt.Errorf("give %s to the sandbox: %w", f.Path, err)
			}
		}
	}
	for i := range s.Trees {
		if err := attachTree(&s.Trees[i], trees[i]); err != nil {
			return nil, err
		}
	}
	for i := range s.Mounts {
		if err := mount(&s.Mounts[i]); err != nil {
			return nil, err
		}
	}
	if s.Late {
		// From here on what is mounted below the sandbox's root shows in its copies, which bwrap makes, but not the other way
		// round: those belong to another user namespace.
		if err := unix.MountSetattr(unix.AT_FDCWD, "/root", 0, &unix.MountAttr{Propagation: unix.MS_SHARED}); err != nil {
			return nil, fmt.Errorf("share the sandbox's root: %w", err)
		}
	}
	for _, p := range s.Freeze {
		if err := unix.MountSetattr(unix.AT_FDCWD, p, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return nil, fmt.Errorf("make %s read-only: %w", p, err)
		}
	}
	if len(s.CPUs) > 0 {
		var set unix.CPUSet
		for _, n := range s.CPUs {
			set.Set(n)
		}
		// Of this thread, which is the one that starts bwrap.
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return nil, fmt.Errorf("keep to processors %v: %w", s.CPUs, err)
		}
	}
	if give, err = openAll(s.Give); err != nil {
		return nil, err
	}
	h.setup = s
	return give, nil
}

// openAll opens directories.
func openAll(paths []string) (fds []int, err error) {
	for _, p := range paths {
		fd, err := unix.Open(p, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			closeAll(fds)
			return nil, fmt.Errorf("open %s: %w", p, err)
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// openTree returns a detached copy of a host tree, with its flags set.
func openTree(t *wire.Tree, fds []int) (int, error) {
	var fd int
	var err error
	if t.Path == "" {
		fd, err = unix.FcntlInt(uintptr(fds[t.FD]), unix.F_DUPFD_CLOEXEC, 0)
	} else {
		// Recursive, because a user namespace may not look below mounts it did not make.
		fd, err = unix.OpenTree(unix.AT_FDCWD, t.Path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	}
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", cmp.Or(t.Path, t.At), err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID, Propagation: unix.MS_PRIVATE}
	if !t.Devices {
		attr.Attr_set |= unix.MOUNT_ATTR_NODEV
	}
	if t.ReadOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("set mount flags of %s: %w", cmp.Or(t.Path, t.At), err)
	}
	return fd, nil
}

// pivot makes a fresh tmpfs the root. It holds /proc, which bwrap and the Go
// runtime read, an empty /tmp, which bwrap uses as its own workbench, and then
// what Setup names. The host's root is gone afterwards.
func (h *holder) pivot(s *wire.Setup) error {
	const base = "/tmp" // is there on every machine; the host's own stays as it is
	if err := unix.Mount("hutch", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=64m"); err != nil {
		return fmt.Errorf("mount a fresh root: %w", err)
	}
	if err := unix.Chdir(base); err != nil {
		return err
	}
	unix.Umask(0)
	defer unix.Umask(0o022) // what commands start with
	for _, d := range []string{"proc", "tmp", "root", "old"} {
		if err := unix.Mkdir(d, 0o755); err != nil {
			return fmt.Errorf("make /%s in the fresh root: %w", d, err)
		}
	}
	if err := unix.Mount("proc", "proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	// The sandbox's root must be its own mount to be made read-only alone.
	if err := unix.Mount("root", "root", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=16m"); err != nil {
		return fmt.Errorf("mount the sandbox's root: %w", err)
	}
	if err := unix.PivotRoot(".", "old"); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/old", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the host's root: %w", err)
	}
	if err := unix.Rmdir("/old"); err != nil {
		return err
	}
	if s.Scratch < 0 {
		return nil
	}
	if err := unix.Mkdir("/scratch", 0o755); err != nil {
		return err
	}
	data := "mode=0755"
	if s.Scratch > 0 {
		data += fmt.Sprintf(",size=%d", s.Scratch)
	}
	if s.ScratchFiles > 0 {
		data += fmt.Sprintf(",nr_inodes=%d", s.ScratchFiles)
	}
	if err := unix.Mount("scratch", "/scratch", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return fmt.Errorf("mount the scratch space: %w", err)
	}
	return nil
}

func attachTree(t *wire.Tree, fd int) error {
	if err := mountpointLike(fd, t.At); err != nil {
		return err
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, t.At, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach %s: %w", t.At, err)
	}
	return nil
}

func mount(m *wire.Mount) error {
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	if m.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	var err error
	switch m.Kind {
	case wire.Bind:
		err = bind(m)
	case wire.Tmpfs, wire.Overlay:
		err = unix.Mount(string(m.Kind), m.Target, string(m.Kind), flags, m.Data)
	case wire.Devpts:
		err = unix.Mount("devpts", m.Target, "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
	default:
		return fmt.Errorf("%s: no such kind of mount: %q", m.Target, m.Kind)
	}
	if err != nil {
		return fmt.Errorf("mount %s on %s: %w", m.Kind, m.Target, err)
	}
	return nil
}

// bind makes a recursive copy of a mount of the holder's root at another place of it.
func bind(m *wire.Mount) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, m.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if m.ReadOnly {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
			return err
		}
	}
	if err := mountpointLike(fd, m.Target); err != nil {
		return err
	}
	return unix.MoveMount(fd, "", unix.AT_FDCWD, m.Target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}
