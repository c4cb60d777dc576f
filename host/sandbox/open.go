package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// Sandbox is a persistent sandbox that this process is attached to and holds a lock on. Its methods may be called
// concurrently.
type Sandbox struct {
	*client.Sandbox
	// Record is what the store knew about it when it was opened.
	Record store.SandboxInfo
	// Base is the path of the file that says what the workspace's source looked like when the sandbox was made; the
	// file need not exist, as for a shared workspace.
	Base string
	// State is the directory beside the record that holds what its backend keeps, and what the host does that no event
	// speaks of.
	State string

	m       *Manager
	rec     *store.SandboxRecord
	backend *backend.Backend
	asleep  bool // it sleeps since it was opened
	own     bool // the backend was started for this sandbox alone
	once    sync.Once
	err     error
}

// Open finds the sandbox that ref means (a name, an id, or an unambiguous prefix of an id), waits for its lock, starts
// its backend and attaches to it. The caller closes it.
//
// The error is [store.ErrNoSandbox] without one, [store.ErrInUse] when the lock cannot be had in time,
// [store.ErrHalf] when it was never finished, a [*GoneError] when its backend does not know it any more, and a
// [*StoppedError] when it must be started first.
func (m *Manager) Open(ctx context.Context, ref string, lock Lock) (*Sandbox, error) {
	s, err := m.OpenAsleep(ctx, ref, lock)
	if err != nil {
		return nil, err
	}
	if err := s.Rouse(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// OpenAsleep is Open, and leaves a sandbox that sleeps, whose VM may take minutes to boot, until [Sandbox.Rouse] is
// called.
func (m *Manager) OpenAsleep(ctx context.Context, ref string, lock Lock) (*Sandbox, error) {
	s, err := m.attach(ctx, ref, lock)
	if err != nil {
		return nil, err
	}
	st, err := s.status(ctx)
	switch {
	case err != nil:
	case st.State == sdk.StateReady:
		return s, nil
	case st.State == sdk.StateAsleep:
		s.asleep = true
		return s, nil
	case st.State == sdk.StateGone:
		err = &GoneError{Name: s.Record.Name, Err: errors.New("its backend says so")}
	default:
		err = &StoppedError{Name: s.Record.Name, Startable: s.backend.Facts.Has(sdk.CapStop)}
	}
	return nil, errors.Join(err, s.Close())
}

// CanDial reports whether Dial works with the sandbox's backend.
func (s *Sandbox) CanDial() bool { return s.backend.Facts.Has(sdk.CapDial) }

// Rouse wakes the sandbox if it sleeps. It must not be called concurrently.
func (s *Sandbox) Rouse(ctx context.Context) error {
	if !s.asleep {
		return nil
	}
	err := s.wake(ctx)
	s.asleep = err != nil
	return err
}

// attach is Open for sandboxes in any state.
func (m *Manager) attach(ctx context.Context, ref string, lock Lock) (*Sandbox, error) {
	if lock == Exclusive {
		return m.attachWithin(ctx, ref, lock, alonePatience)
	}
	return m.attachWithin(ctx, ref, lock, sharedPatience)
}

// attachWithin is attach that waits so long for the lock.
func (m *Manager) attachWithin(
	ctx context.Context, ref string, lock Lock, patience time.Duration) (s *Sandbox, err error) {
	info, err := m.store.FindSandbox(ref)
	if err != nil {
		return nil, err
	}
	rec, err := m.store.OpenSandbox(ctx, info.ID, lock == Exclusive, patience)
	if err != nil {
		return nil, about(info, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, rec.Close())
		}
	}()
	info = rec.Info()
	switch info.State {
	case store.SandboxReady:
	case store.SandboxDamaged:
		return nil, fmt.Errorf("the record of sandbox %s is damaged: %s", info.ID, info.Damage)
	default:
		return nil, about(info, store.ErrHalf)
	}
	if info, err = m.moved(rec); err != nil {
		return nil, err
	}
	s = &Sandbox{Record: info, Base: rec.Base(), State: m.store.Paths().SandboxState(info.ID), m: m, rec: rec}
	if err := s.start(ctx); err != nil {
		return nil, about(info, err)
	}
	s.Sandbox, err = s.backend.Attach(ctx, sdk.Handle{ID: info.ID, Data: info.Handle, StateDir: s.State})
	if err == nil {
		return s, nil
	}
	if errors.Is(err, &sdk.Error{Reason: sdk.ReasonNotFound}) {
		err = &GoneError{Name: info.Name, Err: err}
	} else {
		err = about(info, err)
	}
	if s.own {
		err = errors.Join(err, s.backend.Stop(ctx))
	}
	return nil, err
}

// start starts the backend: the very binary that made the sandbox while that is where backends are, else the one of
// that name, or, where none is installed any more, again the one that made it.
func (s *Sandbox) start(ctx context.Context) (err error) {
	i, from := s.Record, s.m.opt.Run.Backends
	s.backend, err = from.GetMaker(ctx, i.Backend, i.Binary, i.BinarySHA256)
	var missing *backend.NotFoundError
	if errors.As(err, &missing) && i.Binary != "" {
		s.backend, err = from.Open(ctx, i.Binary)
		if err == nil && i.BinarySHA256 != "" && s.backend.SHA256 != i.BinarySHA256 {
			return errors.Join(fmt.Errorf("backend %q is not installed, and %s is not the binary that made the sandbox any more", i.Backend, i.Binary), s.backend.Stop(ctx))
		}
		s.own = err == nil
	}
	if err == nil && !s.backend.Facts.Has(sdk.CapAttach) {
		err = fmt.Errorf("backend %q, version %s, cannot find sandboxes again", i.Backend, s.backend.Facts.Version)
	}
	return err
}

// status asks the backend how the sandbox is; one that cannot tell is ready when it could be attached to.
func (s *Sandbox) status(ctx context.Context) (sdk.Status, error) {
	if !s.backend.Facts.Has(sdk.CapInspect) {
		return sdk.Status{State: sdk.StateReady}, nil
	}
	st, err := s.Inspect(ctx)
	return st, about(s.Record, err)
}

// Facts are what the backend says about itself.
func (s *Sandbox) Facts() *sdk.Facts { return &s.backend.Facts }

// Changed appends an event to the sandbox's chain; see [store.SandboxRecord.Changed].
func (s *Sandbox) Changed(typ store.EventType, data any) error { return s.rec.Changed(typ, data) }

// Events are those of the sandbox's chain; see [store.SandboxRecord.Events].
func (s *Sandbox) Events() ([]store.Event, error) { return s.rec.Events() }

// Asleep reports whether the sandbox sleeps and [Sandbox.Rouse] was not called.
func (s *Sandbox) Asleep() bool { return s.asleep }

// SetPush writes down what was sent into the sandbox. The caller has opened it [Exclusive].
func (s *Sandbox) SetPush(p *store.SandboxPush) error {
	err := s.rec.Update(func(i *store.SandboxInfo) { i.Push = p })
	s.Record = s.rec.Info()
	return err
}

// Command is a command for a persistent sandbox; see [run.Inside].
type Command = run.Inside

// Run runs one command in the sandbox and returns its result, which is recorded as a run. The fields of c that name
// the sandbox are filled in. The error is that of [run.Runner.Run].
func (s *Sandbox) Run(ctx context.Context, c Command, streams run.Streams) (*result.Result, error) {
	c.Sandbox, c.Backend, c.Record = s.Sandbox, s.backend, s.rec
	return run.New(s.m.opt.Run).Exec(ctx, c, streams)
}

// Unlock gives the lock back while this process stays attached: others may then reset, stop or remove the sandbox. Only
// Dial and Close may be called afterwards.
func (s *Sandbox) Unlock() error { return s.rec.Close() }

// Close leaves the sandbox, which goes on existing, and gives the lock back. A second call does nothing.
func (s *Sandbox) Close() error {
	s.once.Do(func() {
		if s.own {
			s.err = s.backend.Stop(context.Background()) // bounded by itself
		}
		s.err = errors.Join(s.err, s.rec.Close())
	})
	return s.err
}
