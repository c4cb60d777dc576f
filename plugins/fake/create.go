package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hutch-run/hutch/sdk"
)

// Create implements [sdk.Backend].
func (b *backend) Create(ctx context.Context, req *sdk.CreateRequest) (_ sdk.Sandbox, err error) {
	c := req.Config.(*config)
	c.junk()
	if err := b.refuse(c, req); err != nil {
		if c.lies("untyped_errors") {
			err = errors.New(err.Error())
		}
		return nil, err
	}
	st := state{
		Dir: req.StateDir, Source: req.Workspace.Source, Shared: req.Workspace.Mode == sdk.WorkspaceShared &&
			req.Workspace.Source != "",
		Owner: req.Owner, Input: req.Input != "", Isolated: req.Network != sdk.NetworkFull && !c.lies("network_leak"),
		Network: req.Network,
		Request: request(c, req.Limits), Holds: b.holds(c, req.Limits), Config: *c,
	}
	if err := st.sound(); err != nil {
		return nil, err
	}
	st.Workspace = filepath.Join(st.Dir, "workspace")
	if st.Shared || c.lies("host_write") && st.Source != "" {
		st.Workspace = st.Source
	}
	if c.lies("allocated_late") {
		if err := register(handle(req.ID, &st)); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			b.remove(context.WithoutCancel(ctx), req.ID, &st)
		}
	}()
	if err := req.Allocated(handle(req.ID, &st)); err != nil {
		return nil, err
	}
	if err := delay(ctx, c.CreateDelay, req.Progress); err != nil {
		return nil, err
	}
	c.fault("create")
	if c.CreateError != "" {
		e := sdk.Errorf(sdk.Reason(c.CreateError), "the block says create_error = %q",
			c.CreateError).WithFix("take create_error away")
		e.Path = "create_error"
		return nil, e
	}
	sb, err := b.build(ctx, req, &st)
	if err != nil {
		return nil, err
	}
	if err := register(sb.handle()); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mine == nil {
		b.mine = map[string]bool{}
	}
	b.mine[req.ID] = true
	return sb.offered(), nil
}

// refuse says what a plain process cannot do.
func (b *backend) refuse(c *config, req *sdk.CreateRequest) error {
	if err := sdk.Holds(b.holds(c, req.Limits)).Err(); err != nil {
		return err
	}
	switch req.Workspace.Mode {
	case sdk.WorkspacePrivate, sdk.WorkspaceShared:
	default:
		return sdk.Errorf(sdk.ReasonUnsupported, "a plain process has no workspace of mode %q", req.Workspace.Mode)
	}
	switch {
	case req.Network == sdk.NetworkNone, req.Network == sdk.NetworkFull, req.Network == sdk.NetworkFiltered &&
		traffic != nil:
	default:
		return sdk.Errorf(sdk.ReasonUnsupported, "a plain process has no network of mode %q", req.Network)
	}
	if len(req.Mounts) > 0 {
		return sdk.Errorf(sdk.ReasonUnsupported, "a plain process sees no mounts").WithFix("use another backend")
	}
	return errors.Join(sdk.NeedDirectory("workspace", req.Workspace.Source), sdk.NeedDirectory("input", req.Input))
}

// delay waits, and says how far it is.
func delay(ctx context.Context, d time.Duration, progress func(string, int64, int64)) error {
	const steps = 10
	for i := range int64(steps) {
		progress("waiting, as the block says", i, steps)
		if d == 0 {
			break
		}
		select {
		case <-time.After(d / steps):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	progress("waiting, as the block says", steps, steps)
	return nil
}

// fork copies what another sandbox holds.
func (b *backend) fork(ctx context.Context, from sdk.Handle, st *state) error {
	reg, ok := lookup(from.ID)
	var parent state
	if err := json.Unmarshal(reg.Data, &parent); !ok || err != nil {
		return sdk.Errorf(sdk.ReasonNotFound, "there is no sandbox %s", from.ID)
	}
	parent.moveTo(from.StateDir)
	if st.Config.lies("fork_shares") {
		return errors.Join(os.Remove(st.Workspace), os.Symlink(parent.Workspace, st.Workspace),
			copyTree(ctx, filepath.Join(parent.Dir, "output"), filepath.Join(st.Dir, "output")))
	}
	if err := copyTree(ctx, parent.Workspace, st.Workspace); err != nil || st.Config.lies("fork_without_output") {
		return err
	}
	return copyTree(ctx, filepath.Join(parent.Dir, "output"), filepath.Join(st.Dir, "output"))
}

// build makes what lies below the state directory, and the group.
func (b *backend) build(ctx context.Context, req *sdk.CreateRequest, st *state) (*sandbox, error) {
	c := &st.Config
	if err := os.WriteFile(brand(st.Dir, req.ID), nil, 0o600); err != nil {
		return nil, err
	}
	for _, d := range []string{"workspace", "nothing", "output", "tmp", "home", "exchange"} {
		if err := os.Mkdir(filepath.Join(st.Dir, d), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	if req.From != nil {
		if err := b.fork(ctx, *req.From, st); err != nil {
			return nil, err
		}
	} else if st.Source != "" && st.Workspace != st.Source {
		if err := copyTree(ctx, st.Source, st.Workspace); err != nil {
			return nil, err
		}
	}
	if st.Input {
		if err := copyTree(ctx, req.Input, filepath.Join(st.Dir, "input")); err != nil {
			return nil, err
		}
	}
	if c.lies("leave_process") {
		leaveProcess(st.Dir)
	}
	if c.lies("leave_file") {
		os.WriteFile(filepath.Join(os.TempDir(), "left-by-"+req.ID), nil, 0o600)
	}
	if c.lies("stub_file") && st.Source != "" {
		os.WriteFile(filepath.Join(st.Source, ".fake"), nil, 0o600)
	}
	return &sandbox{b: b, id: req.ID, st: st, turn: make(chan struct{}, 1)}, nil
}
