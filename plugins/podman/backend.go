package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/hostids"
	"github.com/hutch-run/hutch/sdk/network"
	"github.com/hutch-run/hutch/sdk/registry"
)

// backend implements [sdk.Backend].
type backend struct {
	podman  func() (*podman, error) // found once
	machine func() *machine         // probed once

	sandboxes registry.Registry[*sandbox]
}

func newBackend() *backend {
	return &backend{podman: sync.OnceValues(findPodman), machine: sync.OnceValue(probeMachine)}
}

// Describe implements [sdk.Backend].
func (b *backend) Describe() sdk.Description {
	return sdk.Description{
		Name:    "podman",
		Version: version,
		Summary: "Podman containers, rootless or rootful: an image as root file system, no daemon, the project as an " +
			"overlay",
		Isolation: sdk.IsolationContainer,
		Config:    Config{},
		Limits: []sdk.Limit{sdk.LimitTimeout, sdk.LimitMemory, sdk.LimitCPUs, sdk.LimitPIDs, sdk.LimitDisk,
			sdk.LimitFiles},
		Workspaces: []sdk.WorkspaceMode{sdk.WorkspacePrivate, sdk.WorkspaceShared, sdk.WorkspaceReadOnly},
		Networks:   []sdk.NetworkMode{sdk.NetworkNone, sdk.NetworkFiltered, sdk.NetworkFull},
		Formats:    []sdk.Format{sdk.FormatTar, sdk.FormatFile},
		Sandbox:    (*sandbox)(nil),
		TTY:        true,
		Secrets:    true,
		Budget:     true,
		Allow:      true,
		Observe:    true,
		Fork:       true,

		Environment: podmanEnvironment,
	}
}

// Plan implements [sdk.Planner].
func (b *backend) Plan(_ context.Context, spec *sdk.Spec) (*sdk.Plan, error) {
	m := b.machine()
	held := planLimits(spec, false, "/", m, 0)
	p := &sdk.Plan{Holds: held.Holds, Notes: append(notes(spec, m.rootless), held.Notes()...)}
	refuse := func(err error) {
		if err != nil {
			p.Diagnostics = append(p.Diagnostics, sdk.DiagnosticOf(err))
		}
	}
	if _, err := b.podman(); err != nil {
		refuse(err)
	}
	if _, err := findAgent(); err != nil {
		refuse(err)
	}
	if err := checkNetworkOf(spec, m.rootless); err != nil {
		refuse(err)
	}
	return p, nil
}

// checkNetworkOf refuses rules that cannot be read, and says what this machine lacks for the network of a container.
func checkNetworkOf(spec *sdk.Spec, rootless bool) error {
	if err := network.Check(spec); err != nil || !rootless || !hasNetwork(spec) {
		return err
	}
	_, err := findNsenter()
	return err
}

// notes are what a careful user should know of a sandbox of spec.
func notes(spec *sdk.Spec, rootless bool) (out []string) {
	if !rootless && !hostids.Root() {
		out = append(out,
			"podman runs as root of a user namespace: commands have no capability and cannot gain any, but there is no user "+
				"namespace between them and that root")
	}
	return out
}

// Create implements [sdk.Backend].
func (b *backend) Create(ctx context.Context, req *sdk.CreateRequest) (sdk.Sandbox, error) {
	return b.sandboxes.Once(ctx, req.ID, func() (*sandbox, error) {
		s, err := b.plan(req.ID, req.StateDir, &req.Spec, req.Keep, 0)
		if err != nil {
			return nil, err
		}
		s.owner = req.Owner
		h, err := s.handle()
		if err != nil {
			return nil, err
		}
		if err := req.Allocated(h); err != nil {
			return nil, err
		}
		if err := s.save(); err != nil {
			return nil, err
		}
		if req.From != nil {
			if err := s.fork(ctx, *req.From); err != nil {
				return nil, errors.Join(err, s.close(context.WithoutCancel(ctx)))
			}
		}
		s.progress = req.Progress
		if err := s.open(ctx); err != nil {
			return nil, errors.Join(err, s.close(context.WithoutCancel(ctx)))
		}
		return s, nil
	})
}

// plan decides how a sandbox will be; nothing exists of it yet.
func (b *backend) plan(id, dir string, spec *sdk.Spec, keep bool, defaultMemory int64) (*sandbox, error) {
	p, err := b.podman()
	if err != nil {
		return nil, err
	}
	s := &sandbox{id: id, dirs: dirs{dir}, spec: *spec, keep: keep, podman: p}
	s.held = planLimits(spec, keep, dir, b.machine(), defaultMemory)
	if err := s.held.Err(); err != nil {
		return nil, err
	}
	if err := sdk.NeedDirectory("workspace", spec.Workspace.Source); err != nil {
		return nil, err
	}
	s.over = strategy(spec)
	if err := checkNetworkOf(spec, p.rootless); err != nil {
		return nil, err
	}
	s.who, err = identify(spec, p.rootless, id)
	return s, err
}

// Attach implements [sdk.Attacher]. A container that runs is found by its agent alone, without podman.
func (b *backend) Attach(ctx context.Context, h sdk.Handle) (sdk.Sandbox, error) {
	old, err := readHandle(h)
	if err != nil {
		return nil, err
	}
	return b.sandboxes.Once(ctx, h.ID, func() (*sandbox, error) {
		dir := cmp.Or(h.StateDir, old.Dir)
		k, err := loadSaved(dirs{dir})
		if err != nil {
			return nil, sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone: %w", h.ID, err)
		}
		k.Relocate(old.Dir, dir)
		s, err := b.plan(h.ID, dir, &k.Spec, true, k.DefaultMemory)
		if err != nil {
			return nil, err
		}
		s.owner, s.over = old.Owner, k.Overlay
		return s, s.find(ctx)
	})
}

// Destroy implements [sdk.Backend].
func (b *backend) Destroy(ctx context.Context, h sdk.Handle) error {
	if here, err := b.sandboxes.End(ctx, h.ID, func(s *sandbox) error { return s.close(ctx) }); here || err != nil {
		return err
	}
	if len(h.Data) == 0 {
		return nil
	}
	old, err := readHandle(h)
	if err != nil {
		return err
	}
	p, err := b.podman()
	if err != nil {
		return err
	}
	s := &sandbox{id: h.ID, dirs: dirs{cmp.Or(h.StateDir, old.Dir)}, podman: p}
	return s.close(ctx)
}

// handle is what a fresh process needs to find a sandbox, or to remove it.
type handle struct {
	Dir   string `json:"dir"` // its state directory
	Owner string `json:"owner"`
}

func (s *sandbox) handle() (sdk.Handle, error) {
	data, err := json.Marshal(handle{Dir: s.dirs.state, Owner: s.owner})
	return sdk.Handle{ID: s.id, Data: data}, err
}

func readHandle(h sdk.Handle) (old handle, err error) {
	if len(h.Data) == 0 {
		return old, sdk.Errorf(sdk.ReasonNotFound, "there is no sandbox %s", h.ID)
	}
	if err := json.Unmarshal(h.Data, &old); err != nil || !filepath.IsAbs(old.Dir) {
		return old, sdk.Errorf(sdk.ReasonConfig, "the handle of %s is not one of podman's: %w", h.ID,
			errors.Join(err, fmt.Errorf("%d bytes", len(h.Data))))
	}
	return old, nil
}
