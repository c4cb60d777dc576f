package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/limits"
)

// backend implements [sdk.Backend].
type backend struct {
	support func() *limits.Support // probed once

	mu        sync.Mutex
	sandboxes map[string]*making
}

// making is a sandbox, or the attempt to make one.
type making struct {
	done chan struct{}
	s    *sandbox
	err  error
}

func newBackend() *backend {
	return &backend{support: sync.OnceValue(limits.Probe), sandboxes: map[string]*making{}}
}

// Describe implements [sdk.Backend].
func (b *backend) Describe() sdk.Description {
	return sdk.Description{
		Name:       "bwrap",
		Version:    version,
		Summary:    "Linux namespaces by bubblewrap: starts in milliseconds, needs no daemon, no image and no root",
		Isolation:  sdk.IsolationNamespace,
		Config:     Config{},
		Limits:     []sdk.Limit{sdk.LimitTimeout, sdk.LimitMemory, sdk.LimitCPUs, sdk.LimitPIDs, sdk.LimitDisk, sdk.LimitFiles},
		Workspaces: []sdk.WorkspaceMode{sdk.WorkspacePrivate, sdk.WorkspaceShared, sdk.WorkspaceReadOnly},
		Networks:   []sdk.NetworkMode{sdk.NetworkNone, sdk.NetworkFull},
		Formats:    []sdk.Format{sdk.FormatTar, sdk.FormatFile},
		Sandbox:    (*sandbox)(nil),
		TTY:        true,
	}
}

// Create implements [sdk.Backend].
func (b *backend) Create(ctx context.Context, req *sdk.CreateRequest) (sdk.Sandbox, error) {
	b.mu.Lock()
	m := b.sandboxes[req.ID]
	mine := m == nil
	if mine {
		m = &making{done: make(chan struct{})}
		b.sandboxes[req.ID] = m
	}
	b.mu.Unlock()
	if !mine {
		select {
		case <-m.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	} else {
		m.s, m.err = create(ctx, req, b.support())
		if m.err != nil {
			b.forget(req.ID, m)
		}
		close(m.done)
	}
	if m.err != nil {
		return nil, m.err
	}
	return m.s, nil
}

func (b *backend) forget(id string, m *making) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sandboxes[id] == m {
		delete(b.sandboxes, id)
	}
}

// Destroy implements [sdk.Backend].
func (b *backend) Destroy(ctx context.Context, h sdk.Handle) error {
	b.mu.Lock()
	m := b.sandboxes[h.ID]
	b.mu.Unlock()
	if m != nil {
		select {
		case <-m.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if m.err == nil {
			if err := m.s.close(); err != nil {
				return err
			}
		}
		b.forget(h.ID, m)
	}
	return destroyForeign(ctx, h)
}

// destroyForeign removes what a dead plugin process left of a sandbox: its
// processes died with it, but directories and cgroups do not die.
func destroyForeign(ctx context.Context, h sdk.Handle) error {
	var old handle
	if len(h.Data) == 0 {
		return nil
	}
	if err := json.Unmarshal(h.Data, &old); err != nil {
		return sdk.Errorf(sdk.ReasonConfig, "the handle of %s is not one of bwrap's: %w", h.ID, err)
	}
	var errs []error
	if old.Cgroup != "" {
		if _, err := limits.Sweep(ctx, old.Cgroup); err != nil {
			errs = append(errs, fmt.Errorf("remove the cgroup of %s: %w", h.ID, err))
		}
	}
	if filepath.IsAbs(old.Dir) {
		errs = append(errs, removeLayer(filepath.Join(old.Dir, "layer")))
	}
	return errors.Join(errs...)
}
