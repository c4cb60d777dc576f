package main

import (
	"os"

	"github.com/hutch-run/hutch/sdk"
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
	switch l.over {
	case overlayUnion:
		l.bind(source, lowerPath, "ro")
		l.bind(d.upper(), workspacePath, "rw")
	case overlayInside:
		// The kernel takes an upper and a work layer only from one mount.
		l.bind(source, lowerPath, "ro")
		l.bind(d.layer(), insidePath, "rw")
		l.flag("--tmpfs=%s:rw,nosuid,nodev,mode=755,size=4096", workspacePath) // to have something to mount upon
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
