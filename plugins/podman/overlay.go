package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/overlay"
)

// The overlay strategies, see [Config].
const (
	overlayAuto   = "auto"
	overlayNative = "native"
	overlayUnion  = "union"
	overlayInside = "in-container"
)

// overlay adds the private workspace over source.
func (l *layout) overlay(source string) {
	d := l.dirs
	switch {
	case l.over == overlayUnion:
		l.bind(source, lowerPath, "ro")
		l.bind(d.upper(), workspacePath, "rw")
	case l.over == overlayInside:
		// The kernel takes an upper and a work layer only from one mount.
		l.bind(source, lowerPath, "ro")
		l.bind(d.layer(), insidePath, "rw")
		l.flag("--tmpfs=%s:rw,nosuid,nodev,mode=755,size=4096", workspacePath) // to have something to mount upon
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
func trustedMarks(string) bool { return os.Geteuid() == 0 }

// strategy decides how the workspace's writes are kept apart; what a spec without overlay says is the native one.
func strategy(spec *sdk.Spec, rootless bool) (string, error) {
	over := configOf(spec).Overlay
	switch {
	case over == overlayInside && !rootless:
		return "", &sdk.Error{Reason: sdk.ReasonConfig, Path: "overlay", Summary: `overlay = "in-container" gives the container SYS_ADMIN, which as root is no boundary any more`,
			Fix: `use "native" or "union", or run hutch as an ordinary user`}
	case over == overlayInside && len(configOf(spec).CapAdd) > 0:
		return "", &sdk.Error{Reason: sdk.ReasonConfig, Path: "cap_add", Summary: `with overlay = "in-container" every capability is given up before commands run`, Fix: "leave cap_add away, or use another overlay"}
	case spec.Workspace.Source == "" || spec.Workspace.Mode != sdk.WorkspacePrivate:
		return overlayNative, nil // there is nothing to keep apart
	}
	return over, nil
}

// copyUnmapped copies the project, if an overlay of this user's could not change all that the user may change in it,
// and returns where the copy lies. Podman's overlay volume takes one lower layer, so the copy is of the whole.
func (s *sandbox) copyUnmapped(ctx context.Context, over string) (string, error) {
	if !s.podman.rootless || over == overlayUnion || s.spec.Workspace.Source == "" || s.spec.Workspace.Mode != sdk.WorkspacePrivate {
		return "", nil
	}
	if err := s.removeDirs(ctx, s.dirs.copies()); err != nil {
		return "", err
	}
	known := sync.OnceValues(func() (func(uid, gid uint32) bool, error) { return s.podman.mapped(ctx) })
	uid, gid := uint32(os.Geteuid()), uint32(os.Getegid())
	copied, err := overlay.CopyUnmapped(ctx, s.spec.Workspace.Source, s.dirs.copies(), overlay.UnmappedOptions{Whole: true, Mapped: func(u, g uint32) bool {
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
