package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/holder"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/registry"
)

// backend implements [sdk.Backend].
type backend struct {
	support func() *limits.Support // probed once

	spares *spares
	tried  func() error // tries once whether a sandbox can be made

	sandboxes registry.Registry[*sandbox]
}

func newBackend() *backend {
	b := &backend{support: sync.OnceValue(limits.Probe), spares: &spares{}}
	b.tried = sync.OnceValue(b.try)
	return b
}

// Describe implements [sdk.Backend].
func (b *backend) Describe() sdk.Description {
	return sdk.Description{
		Name:      "bwrap",
		Version:   version,
		Summary:   "Linux namespaces by bubblewrap: starts in milliseconds, needs no daemon, no image and no root",
		Isolation: sdk.IsolationNamespace,
		Config:    Config{},
		Limits: []sdk.Limit{sdk.LimitTimeout, sdk.LimitMemory, sdk.LimitCPUs, sdk.LimitPIDs, sdk.LimitDisk,
			sdk.LimitFiles},
		Workspaces: []sdk.WorkspaceMode{sdk.WorkspacePrivate, sdk.WorkspaceShared, sdk.WorkspaceReadOnly},
		Networks:   []sdk.NetworkMode{sdk.NetworkNone, sdk.NetworkFiltered, sdk.NetworkFull},
		Formats:    []sdk.Format{sdk.FormatTar, sdk.FormatFile},
		Sandbox:    (*sandbox)(nil),
		TTY:        true,
		Secrets:    true,
		Observe:    true,
		Budget:     true,
		Allow:      true,
		Fork:       true,
		Ahead:      true,

		Environment: []string{bwrapVariable},
	}
}

// Prepare implements [sdk.Preparer]: a host that starts a backend nearly always wants a sandbox.
func (b *backend) Prepare() {
	b.spares.warm()
	b.support()
}

// Create implements [sdk.Backend].
func (b *backend) Create(ctx context.Context, req *sdk.CreateRequest) (sdk.Sandbox, error) {
	return b.sandboxes.Once(ctx, req.ID, func() (*sandbox, error) { return create(ctx, req, b.support(), b.spares) })
}

// Attach implements [sdk.Attacher]. The holder of a kept sandbox may be alive, and then it is joined. It may have died,
// with the machine for one; the sandbox's files are on disk then, and the rest is recreated around them when it is
// needed.
func (b *backend) Attach(ctx context.Context, h sdk.Handle) (sdk.Sandbox, error) {
	if len(h.Data) == 0 {
		return nil, sdk.Errorf(sdk.ReasonNotFound, "there is no sandbox %s", h.ID)
	}
	old, err := readHandle(h)
	if err != nil {
		return nil, err
	}
	dir := cmp.Or(h.StateDir, old.Dir)
	return b.sandboxes.Once(ctx, h.ID, func() (*sandbox, error) {
		if old.Kept == nil || !kept(dir) {
			return nil, sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone", h.ID)
		}
		k := old.Kept
		spec := sdk.Spec{Config: k.Config, Limits: k.Limits, Network: k.Network, Rules: k.Rules, Workspace: k.Workspace,
			Input: k.Input, Mounts: k.Mounts}
		spec.Relocate(old.Dir, dir)
		s, err := planSandbox(h.ID, dir, spec, true, b.support(), b.spares, k.DefaultMemory)
		if err != nil {
			return nil, err
		}
		s.owner = old.Owner
		// One of another version does not matter to who looks at files, and not to a reset.
		if s.world, err = s.join(); err != nil && !errors.Is(err, holder.ErrNobody) && !errors.Is(err, holder.ErrOther) {
			return nil, err
		}
		return s, nil
	})
}

// Destroy implements [sdk.Backend].
func (b *backend) Destroy(ctx context.Context, h sdk.Handle) error {
	if _, err := b.sandboxes.End(ctx, h.ID, (*sandbox).close); err != nil {
		return err
	}
	return destroyForeign(ctx, h)
}

// destroyForeign removes what a dead plugin process left of a sandbox: its
// processes died with it, but directories and cgroups do not die.
func destroyForeign(ctx context.Context, h sdk.Handle) error {
	if len(h.Data) == 0 {
		return nil
	}
	old, err := readHandle(h)
	if err != nil {
		return err
	}
	if h.StateDir != "" {
		old.Dir = h.StateDir
	}
	var errs []error
	if old.Kept != nil {
		errs = append(errs, endHolder(old.Dir))
	}
	if old.Cgroup != "" {
		if _, err := limits.Sweep(ctx, old.Cgroup); err != nil {
			errs = append(errs, fmt.Errorf("remove the cgroup of %s: %w", h.ID, err))
		}
	}
	errs = append(errs, removeLayer(old.Dir, old.Kept != nil))
	if old.Kept != nil {
		errs = append(errs, removeFiles(old.Dir))
	}
	return errors.Join(errs...)
}
