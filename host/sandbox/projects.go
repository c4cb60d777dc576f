package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
)

// RemoveProject removes a shared project with all its files. It is refused with [store.ErrInUse] while sandboxes have
// it as their workspace, unless force: then those go first, with whatever runs in them.
func (m *Manager) RemoveProject(ctx context.Context, name string, force bool) error {
	err := m.store.RemoveProject(name)
	if !errors.Is(err, store.ErrInUse) || !force {
		return err
	}
	list, err := m.store.Sandboxes()
	if err != nil {
		return err
	}
	for _, b := range list {
		if b.Project != name {
			continue
		}
		if err := m.Remove(ctx, b.ID, true); err != nil && !errors.Is(err, store.ErrNoSandbox) {
			return fmt.Errorf("project %s: %w", name, err)
		}
	}
	return m.store.RemoveProject(name)
}

// WithMinIsolation returns a manager that makes no sandbox on a backend that isolates less; "" is none.
func (m *Manager) WithMinIsolation(least sdk.Isolation) *Manager {
	c := *m
	c.opt.Run.MinIsolation = least
	return &c
}
