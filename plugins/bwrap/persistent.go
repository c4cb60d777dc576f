package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/holder"
	"github.com/hutch-run/hutch/plugins/bwrap/internal/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/guestpath"
	"github.com/hutch-run/hutch/sdk/limits"
)

// A persistent sandbox has at most one world, which every plugin process that works in it shares: see package stage for
// why. Who makes the world or ends it holds a lock in the sandbox's directory.

// worldState is what a holder sends to plugins that join it.
type worldState struct {
	Privileged       bool
	UID, GID         int
	HostUID, HostGID int64
	Group            *limits.Handle `json:",omitempty"`
	Ready            sdk.Ready
}

// outlive adds to the setup of a persistent world what makes its holder outlive this process.
func (w *world) outlive(s *wire.Setup, fds []int) ([]int, error) {
	state := worldState{Privileged: w.ident.Privileged, UID: w.ident.uid, GID: w.ident.gid, HostUID: w.ident.hostUID,
		HostGID: w.ident.hostGID, Ready: w.ready}
	if w.group != nil {
		state.Group = w.group.Handle()
	}
	data, err := json.Marshal(state)
	if err != nil {
		return nil, err
	}
	s.Persistent = &wire.Persistent{State: data, Listen: len(fds), File: len(fds) + 1, Slot: -1}
	fds = append(append([]int(nil), fds...), int(w.persistent.Listen.Fd()), w.persistent.File)
	if w.ident.slot >= 0 {
		s.Persistent.Slot = len(fds)
		fds = append(fds, w.ident.slot)
	}
	return fds, nil
}

// marks are what everybody can see of a persistent holder in the list of processes, so that people know what it is.
// There is no [sdk.Lister]: whatever exists of a sandbox is known from its state directory, and a holder whose socket
// is gone from there ends.
func (s *sandbox) marks() []string { return []string{s.owner, s.id, s.dir} }

// join enters the world that a holder keeps for s; or returns [holder.ErrNobody].
func (s *sandbox) join() (w *world, err error) {
	h, data, dirs, err := holder.Join(s.dir)
	if errors.Is(err, holder.ErrOther) {
		h.Leave()
		return nil, (&sdk.Error{Reason: sdk.ReasonUnavailable, Summary: err.Error(),
			Err: err}).WithFix("hutch reset recreates the sandbox and keeps its files")
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			h.Leave()
			for _, d := range dirs {
				d.Close()
			}
		}
	}()
	var state worldState
	if err := json.Unmarshal(data, &state); err != nil || len(dirs) != 2 {
		return nil, sdk.Errorf(sdk.ReasonInternal, "the holder of sandbox %s is of another version of this backend: %v",
			s.id, err).WithFix("hutch reset recreates the sandbox and keeps its files")
	}
	w = &world{lasts: true, holder: h, ready: state.Ready}
	if w.ready.Layers != nil { // the directory may have been moved since
		if w.ready.Layers, err = s.layers(); err != nil {
			return nil, err
		}
	}
	if err = s.enter(w, dirs); err != nil {
		return nil, err
	}
	w.ident = &identity{uid: state.UID, gid: state.GID, slot: -1, hostUID: state.HostUID, hostGID: state.HostGID}
	w.ident.Privileged = state.Privileged
	if state.Group != nil {
		if w.group, err = limits.Open(*state.Group); err != nil {
			return nil, fmt.Errorf("find the cgroup of sandbox %s: %w", s.id, err)
		}
	}
	return w, nil
}

// wake gives s a world: the one that is there, else a new one around its files.
func (s *sandbox) wake() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.world != nil && !isClosed(s.holder.Gone()) {
		return nil
	}
	s.drop()
	return s.locked(func() (err error) {
		if s.world, err = s.join(); !errors.Is(err, holder.ErrNobody) {
			return err
		}
		if !kept(s.dir) {
			return sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone", s.id)
		}
		return s.rebuild(context.Background())
	})
}

// rebuild makes the world of s when it is certain that none exists.
func (s *sandbox) rebuild(ctx context.Context) error {
	if s.cgroup != "" {
		ctx, cancel := context.WithTimeout(ctx, groupTimeout)
		defer cancel()
		if _, err := limits.Sweep(ctx, s.cgroup); err != nil {
			return fmt.Errorf("remove the old cgroup of %s: %w", s.id, err)
		}
	}
	return s.open(ctx)
}

// drop forgets a world whose holder is gone.
func (s *sandbox) drop() {
	if s.world == nil {
		return
	}
	s.holder.Leave()
	s.leave()
	s.ident.Close()
	s.world = nil
}

// locked calls fn while no other process makes or ends a world of s.
func (s *sandbox) locked(fn func() error) error {
	lock, err := os.OpenFile(filepath.Join(s.dir, "holder.lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone", s.id)
		}
		return err
	}
	defer lock.Close()
	for {
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			if err != nil {
				return fmt.Errorf("lock %s: %w", lock.Name(), err)
			}
			return fn()
		}
	}
}

// resetMark says that a hard reset is under way: that the layer is missing does not mean that the sandbox is gone.
const resetMark = "resetting"

// kept says whether there is a kept sandbox in dir.
func kept(dir string) bool {
	for _, name := range []string{filepath.Join("layer", "output"), resetMark} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

// renew is Reset for a persistent sandbox: its holder ends with all commands in it, no matter who runs them, and a new
// one begins.
func (s *sandbox) renew(ctx context.Context, hard bool) error {
	if s.closed {
		return sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone", s.id)
	}
	return s.locked(func() error {
		if err := s.endWorld(); err != nil {
			return err
		}
		mark := filepath.Join(s.dir, resetMark)
		if hard {
			if err := os.WriteFile(mark, nil, 0o600); err != nil {
				return err
			}
			if err := removeLayer(s.dir, true); err != nil {
				return err
			}
		}
		if err := s.rebuild(ctx); err != nil {
			return err
		}
		if err := os.Remove(mark); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	})
}

// endWorld ends the world of s, whether this process has joined it or not.
func (s *sandbox) endWorld() (err error) {
	if s.world != nil {
		err = s.world.close()
		s.world = nil
	}
	return errors.Join(err, endHolder(s.dir))
}

// endOther is endWorld for a sandbox that is being destroyed, whose directory may be gone.
func (s *sandbox) endOther() error {
	if _, err := os.Lstat(s.dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return s.locked(func() error {
		err := endHolder(s.dir)
		if s.cgroup != "" {
			ctx, cancel := context.WithTimeout(context.Background(), groupTimeout)
			defer cancel()
			_, serr := limits.Sweep(ctx, s.cgroup)
			err = errors.Join(err, serr)
		}
		return err
	})
}

// endHolder ends the persistent holder in dir, if there is one.
func endHolder(dir string) error {
	h, _, dirs, err := holder.Join(dir)
	switch {
	case errors.Is(err, holder.ErrNobody):
		return nil
	case errors.Is(err, holder.ErrOther):
		return h.Kill()
	case err != nil:
		return err
	}
	for _, d := range dirs {
		d.Close()
	}
	return h.End()
}

// removeFiles removes what a persistent sandbox had in its directory besides the layer.
func removeFiles(dir string) error {
	var errs []error
	for _, name := range []string{wire.SocketName, "holder.log", resetMark, "holder.lock"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// layers says where the workspace of a persistent sandbox lies on the host.
func (s *sandbox) layers() (*sdk.Layers, error) {
	return layersOn(&s.spec.Workspace, s.dir, filepath.Join(s.dir, "layer", "upper"))
}

// asleep is what the sandbox will be once somebody uses it.
func (s *sandbox) asleep() sdk.Ready {
	ws := &s.spec.Workspace
	r := sdk.Ready{
		Workspace: workspacePath, Output: guestpath.Output(ws.Source != ""), Holds: s.held.Holds, Notes: s.notes,
	}
	var err error
	if r.Layers, err = s.layers(); err != nil { // a command says why
		r.Layers = nil
	}
	if s.spec.Input != "" {
		r.Input = guestpath.Input(ws.Source != "")
	}
	return r
}
