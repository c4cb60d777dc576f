package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/holder"
	"github.com/hutch-run/hutch/plugins/bwrap/internal/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/confined"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/network"
	"github.com/hutch-run/hutch/sdk/network/netns"
	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/seccomp"
	"github.com/hutch-run/hutch/sdk/supervise/microinit"
	"github.com/hutch-run/hutch/sdk/visible"
)

// world is what a sandbox consists of while it can run commands: a holder process,
// the ids and the cgroup. A hard reset makes a new one.
type world struct {
	ident   *identity
	group   *limits.Group   // nil when no limit needs one
	holder  *holder.Holder  // is the world's own as long as the world is there
	spares  *spares         // gets it back; nothing gets back a persistent one
	lasts   bool            // the holder outlives this process
	root    *os.File        // the sandbox's root directory, as the holder sees it
	upper   *os.File        // the workspace's upper layer
	tmp     *os.File        // /tmp, on the memory file system
	waiting *holder.Process // started for a command that is to come, or nil
	// the mount namespace of that command: kept so that its end does not wait for the removal of its mounts
	mounts  *os.File
	sampler *limits.Sampler // nil when no limit is sampled
	ready   sdk.Ready

	persistent *holder.Persistent // while a persistent world is made
}

// groupTimeout bounds the removal of a cgroup, which waits for processes that the kernel may hold on to. What is left
// is reported, and the next Destroy tries again.
const groupTimeout = 20 * time.Second

// makeWorld makes the world of s. On an error nothing of it is left but the layer
// on disk.
func (s *sandbox) makeWorld(ctx context.Context) (*world, error) {
	w := &world{spares: s.spares}
	if err := s.fill(ctx, w); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// fill makes w; what it made before an error is in w.
func (s *sandbox) fill(ctx context.Context, w *world) error {
	owner, err := ownerOf(s.spec.Workspace.Source)
	if err != nil {
		return err
	}
	path, err := findBwrap()
	if err != nil {
		return err
	}
	bwrap, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	if s.keep {
		w.lasts = true
		w.ident = newIdentity(int(owner.Uid), int(owner.Gid))
		var persistent *holder.Persistent
		if w.holder, persistent, err = holder.StartPersistent(w.ident.Identity, s.dir, s.marks()...); persistent != nil {
			defer persistent.Close()
			w.persistent = persistent
		}
	} else {
		w.ident, w.holder, err = s.spares.take(int(owner.Uid), int(owner.Gid))
	}
	if err != nil {
		unix.Close(bwrap)
		return userNamespaceError(err)
	}
	if s.held.inGroup() {
		w.group, err = s.support.New(s.cgroup, s.held.group)
		if err != nil {
			unix.Close(bwrap)
			return fmt.Errorf("make a cgroup for %s: %w", s.id, err)
		}
	}
	l, err := newLayout(ctx, s, w, owner, bwrap)
	if err != nil {
		return refused(err)
	}
	defer l.close()
	if err := s.furnish(w, l); err != nil || s.ahead == nil {
		return err
	}
	return s.prepare(w, l)
}

// furnish adds to the layout what depends on limits and configuration, and has
// the holder make it all.
func (s *sandbox) furnish(w *world, l *layout) error {
	image, err := microinit.Image(microinit.Options{Limits: s.held.rlimits, Waits: true})
	if err != nil {
		return err
	}
	l.file(inRoot+initPath, 0o555, image)
	l.setup.Args = append(bwrapArgs(l.config.UID, hasNetwork(&s.spec)),
		l.show(visible.Files(s.held.Shown, s.held.cpus))...)
	if l.setup.Filtered = hasNetwork(&s.spec); l.setup.Filtered {
		rules, err := network.Parse(s.spec.Network, s.spec.Rules)
		if err != nil {
			return err
		}
		l.setup.Loopback = rules.Loopback()
	}
	l.setup.CPUs = s.held.cpus
	l.setup.Seccomp = seccomp.Program(seccomp.Options{FixedCPUs: s.held.fixed, SmallShm: s.held.Sampled > 0})
	w.ready = l.ready
	w.ready.Holds = s.held.Holds
	w.ready.Notes = append(append(w.ready.Notes, s.notes...), s.held.Notes()...)
	fds := l.fds
	if w.lasts {
		if fds, err = w.outlive(&l.setup, fds); err != nil {
			return err
		}
	}
	dirs, err := w.holder.Setup(&l.setup, fds)
	if err != nil {
		if e := usedUp(err.Error()); e != nil {
			return e
		}
		fix := namespaceFix()
		switch {
		case strings.Contains(err.Error(), wire.NoFilter):
			fix = netns.Fix
		case strings.Contains(err.Error(), "mount overlay") && fsName(s.dir) == "overlayfs":
			fix = confined.StateFix()
		}
		return &sdk.Error{Reason: sdk.ReasonMissing, Summary: "the sandbox could not be made: " + err.Error(), Err: err,
			Fix: fix}
	}
	return errors.Join(overlay.OpenWork(filepath.Join(s.dir, "layer")), s.enter(w, dirs))
}

// enter takes over the directories of a world that was set up, and prepares to sample what happens in it.
func (s *sandbox) enter(w *world, dirs []*os.File) error {
	w.root, w.upper = dirs[0], dirs[1]
	fd, err := unix.Openat(int(w.root.Fd()), "tmp", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the sandbox's /tmp: %w", err)
	}
	w.tmp = os.NewFile(uintptr(fd), "tmp")
	if s.held.Sampled == 0 && s.held.Disk == 0 {
		return nil
	}
	w.sampler = &limits.Sampler{Memory: s.held.Sampled, Tmpfs: []*os.File{w.tmp}}
	if w.lasts {
		w.sampler.Others = w.holder.Inits
	}
	if s.held.Disk > 0 {
		layer, err := os.Open(filepath.Join(s.dir, "layer"))
		if err != nil {
			return fmt.Errorf("open the sandbox's layer: %w", err)
		}
		w.sampler.Disk = &limits.Space{Dir: layer, Bytes: s.held.Disk}
	}
	return nil
}

// leave closes what enter opened.
func (w *world) leave() {
	files := []*os.File{w.root, w.upper, w.tmp}
	if w.sampler != nil && w.sampler.Disk != nil {
		files = append(files, w.sampler.Disk.Dir)
	}
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// close ends all commands and removes all but the layer on disk.
func (w *world) close() (err error) {
	if w.waiting != nil {
		_ = w.waiting.Kill()
		_, _ = w.waiting.Wait()
	}
	if w.mounts != nil {
		w.mounts.Close()
		w.mounts = nil
	}
	switch {
	case w.lasts:
		if w.holder != nil {
			err = w.holder.End()
		}
		w.ident.Close()
	case w.holder != nil:
		w.spares.give(w.ident, w.holder)
	}
	w.leave()
	if w.group != nil {
		ctx, cancel := context.WithTimeout(context.Background(), groupTimeout)
		defer cancel()
		err = errors.Join(err, w.group.Destroy(ctx))
	}
	return err
}

// ownerOf returns the attributes of a workspace's source; zeros without one.
func ownerOf(source string) (*syscall.Stat_t, error) {
	owner := &syscall.Stat_t{}
	if source == "" {
		return owner, nil
	}
	if err := syscall.Stat(source, owner); err != nil {
		return nil, sdk.Errorf(sdk.ReasonConfig, "look at the workspace %s: %w", source, err)
	}
	if owner.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		return nil, sdk.Errorf(sdk.ReasonConfig, "the workspace %s is not a directory", source)
	}
	return owner, nil
}
