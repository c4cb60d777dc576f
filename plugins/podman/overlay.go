package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/overlay"
)

// The overlay strategies, see [Config].
const (
	overlayAuto   = "auto"
	overlayNative = "native"
	overlayCopy   = "copy"
)

// overlay adds the private workspace over source.
func (l *layout) overlay(source string) {
	d := l.dirs
	switch {
	case l.over == overlayCopy:
		l.bind(d.upper(), workspacePath, "rw")
	case l.who.uids != nil && l.err == nil:
		var at string
		at, l.err = l.merged(source)
		l.bind(at, workspacePath, "rw")
	default:
		l.flag("--volume=%s:%s:O,upperdir=%s,workdir=%s", source, workspacePath, d.upper(), d.work())
	}
}

// trustedMarks says by which name the layers' marks go: those of root's overlays are trusted.overlay.*, which no
// unprivileged program can write.
func trustedMarks() bool { return os.Geteuid() == 0 }

// isPrivate says whether there is a project whose writes are to be kept apart.
func isPrivate(spec *sdk.Spec) bool {
	return spec.Workspace.Source != "" && spec.Workspace.Mode == sdk.WorkspacePrivate
}

// strategy decides how the workspace's writes are kept apart; what a spec without overlay says is the native one.
func strategy(spec *sdk.Spec) string {
	if !isPrivate(spec) {
		return overlayNative
	}
	return configOf(spec).Overlay
}

// copyProject fills the upper layer with a copy of the project, unless it is there, and gives it to the sandbox's user.
func (l *layout) copyProject(ctx context.Context) error {
	if l.over != overlayCopy {
		return nil
	}
	upper := l.dirs.upper()
	if _, err := os.Lstat(upper); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	half := upper + ".new" // of a process that was killed
	if err := os.RemoveAll(half); err != nil {
		return err
	}
	source := l.spec.Workspace.Source
	if err := overlay.CopyProject(ctx, source, half, overlay.Options{Trusted: trustedMarks()}); err != nil {
		return fmt.Errorf("copy the project: %w", err)
	}
	if err := filepath.WalkDir(half, func(p string, _ fs.DirEntry, err error) error {
		return errors.Join(err, l.who.own(p))
	}); err != nil {
		return err
	}
	return os.Rename(half, upper)
}

// copied is what the copy of the project takes, which is not the commands'.
func (l *layout) copied() limits.Usage {
	if l.over != overlayCopy {
		return limits.Usage{}
	}
	return usageOf(l.spec.Workspace.Source)
}

func usageOf(source string) limits.Usage {
	dir, err := os.Open(source)
	if err != nil {
		return limits.Usage{} // the copy reports it
	}
	defer dir.Close()
	return limits.UsageOf(dir)
}

// copyUnmapped copies the project, if an overlay of this user's could not change all that the user may change in it,
// and returns where the copy lies. Podman's overlay volume takes one lower layer, so the copy is of the whole.
func (s *sandbox) copyUnmapped(ctx context.Context, over string) (string, error) {
	if !s.podman.rootless || over == overlayCopy || !isPrivate(&s.spec) {
		return "", nil
	}
	if err := s.removeDirs(ctx, s.dirs.copies()); err != nil {
		return "", err
	}
	known := sync.OnceValues(func() (func(uid, gid uint32) bool, error) { return s.podman.mapped(ctx) })
	uid, gid := uint32(os.Geteuid()), uint32(os.Getegid())
	copied, err := overlay.CopyUnmapped(ctx, s.spec.Workspace.Source, s.dirs.copies(),
		overlay.UnmappedOptions{Whole: true, Mapped: func(u, g uint32) bool {
			if u == uid && g == gid {
				return true
			}
			mapped, err := known() // asked only when there is something to ask about
			return err == nil && mapped(u, g)
		}})
	if err != nil || copied.Entries == 0 {
		return "", err
	}
	s.notes = append(s.notes, copied.Note())
	return s.dirs.copies(), nil
}

// mapped asks Podman which users and groups of this host its user namespace knows: the user's own, and those that
// /etc/subuid and /etc/subgid give.
func (p *podman) mapped(ctx context.Context) (func(uid, gid uint32) bool, error) {
	out, err := p.call(ctx, "unshare", "sh", "-c", "cat /proc/self/uid_map; echo; cat /proc/self/gid_map")
	if err != nil {
		return nil, err
	}
	uids, gids, _ := strings.Cut(string(out), "\n\n")
	in := func(lines string, id uint32) bool {
		for line := range strings.Lines(lines) {
			var inside, first, count uint32
			if _, err := fmt.Sscan(line, &inside, &first, &count); err == nil && id >= first && id-first < count {
				return true
			}
		}
		return false
	}
	return func(uid, gid uint32) bool { return in(uids, uid) && in(gids, gid) }, nil
}
