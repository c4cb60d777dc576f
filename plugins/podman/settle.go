package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/visible"
)

// settle looks whether the container became what was asked for, and ends what is missing.
func (s *sandbox) settle(_ context.Context, c *container, l *layout) error {
	for l, want := range map[limits.Limit]int64{limits.Memory: s.held.memory, limits.PIDs: s.held.pids} {
		if want <= 0 {
			continue
		}
		if err := c.group.Verify(l, uint64(want)); err != nil {
			return &sdk.Error{Reason: sdk.ReasonLimit, Limit: sdk.Limit(l),
				Summary: "Podman did not hold the limits it was given: " + err.Error(),
				Fix:     "run hutch as root, on cgroup v2 with delegated controllers, or use the backend bwrap"}
		}
	}
	if err := visible.Pin(c.pid, s.held.cpus); err != nil {
		return err
	}
	if l.over != overlayNative || !isPrivate(l.spec) {
		return nil
	}
	kind, options, err := mountAt(c.pid, workspacePath)
	if err != nil {
		return fmt.Errorf("look at the container's mounts: %w", err)
	}
	if kind != "overlay" {
		return &noOverlay{"it is of type " + kind + ", whose marks are its own; take mount_program out of storage.conf"}
	}
	l.ready.Layers.Trusted = !slices.Contains(options, "userxattr")
	return nil
}

// mountAt returns the type and the options of what is mounted at a path of a process.
func mountAt(pid int, path string) (kind string, options []string, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return "", nil, err
	}
	for head, tail := range mountLines(string(data)) {
		if head[4] == path {
			kind, options = tail[0], strings.Split(tail[2], ",")
		}
	}
	if kind == "" {
		return "", nil, fmt.Errorf("nothing is mounted at %s", path)
	}
	return kind, options, nil
}
