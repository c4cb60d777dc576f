package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// attachAlone attaches to a sandbox that nobody works in; with force, to any.
func (m *Manager) attachAlone(ctx context.Context, ref string, force bool) (*Sandbox, error) {
	s, err := m.attach(ctx, ref, Exclusive)
	if force && errors.Is(err, store.ErrInUse) {
		s, err = m.attach(ctx, ref, Shared)
	}
	return s, err
}

// Stop ends what runs in a sandbox and has its backend give back what it holds besides its files: memory, a virtual
// machine, what a service bills. With force, commands that run in it are ended; otherwise they are [store.ErrInUse]. A
// sandbox that is stopped is success.
func (m *Manager) Stop(ctx context.Context, ref string, force bool) error {
	s, err := m.attachAlone(ctx, ref, force)
	if err != nil {
		return err
	}
	defer s.Close()
	if !s.backend.Facts.Has(sdk.CapStop) {
		return fmt.Errorf("backend %q cannot stop a sandbox; `hutch rm %s` removes it", s.Record.Backend, nameOf(s.Record))
	}
	if err := s.Sandbox.Stop(ctx); err != nil {
		return about(s.Record, err)
	}
	return s.rec.Changed(store.EventSandboxStop, struct{}{})
}

// Start makes a sandbox ready that is stopped or asleep, and leaves alone what runs in one that is ready.
func (m *Manager) Start(ctx context.Context, ref string) error {
	s, err := m.attach(ctx, ref, Exclusive)
	if errors.Is(err, store.ErrInUse) { // somebody works in it
		s, err = m.attach(ctx, ref, Shared)
	}
	if err != nil {
		return err
	}
	defer s.Close()
	if !s.backend.Facts.Has(sdk.CapStop) {
		return fmt.Errorf("backend %q cannot start a sandbox", s.Record.Backend)
	}
	st, err := s.status(ctx)
	if err != nil {
		return err
	}
	switch st.State {
	case sdk.StateReady:
		return nil
	case sdk.StateGone:
		return &GoneError{Name: s.Record.Name, Err: errors.New("its backend says so")}
	}
	if err := s.wake(ctx); err != nil {
		return err
	}
	return s.rec.Changed(store.EventSandboxStart, struct{}{})
}

// wake has the backend start what the sandbox sleeps in, so that no command's time is spent on that.
func (s *Sandbox) wake(ctx context.Context) (err error) {
	if !s.backend.Facts.Has(sdk.CapStop) {
		if _, err = s.Exec(ctx, &client.Command{Argv: []string{"true"}, Dir: s.Ready().Workspace}); err != nil {
			return about(s.Record, err)
		}
		return s.refurnish(ctx)
	}
	progress, over := s.progress()
	defer over()
	if err = s.Wake(ctx, progress); err != nil {
		return about(s.Record, err)
	}
	return s.refurnish(ctx)
}

// progress tells the user how far something is that takes time; over says that it is no longer so.
func (s *Sandbox) progress() (tell func(step string, done, total int64), over func()) {
	to := s.m.opt.Run.Progress
	if to == nil {
		to = func(run.Progress) {}
	}
	said := run.Progress{Run: s.Record.ID, Name: nameOf(s.Record)}
	return func(step string, done, total int64) {
		p := said
		p.Step, p.Done, p.Total = step, done, total
		to(p)
	}, func() { to(said) }
}

// Get is [client.Sandbox.Get], and tells the user how far it is.
func (s *Sandbox) Get(ctx context.Context, path string, format sdk.Format, w io.Writer) error {
	progress, over := s.progress()
	defer over()
	return s.Sandbox.Get(sdk.WithProgress(ctx, progress), path, format, w)
}

// refurnish puts back what the run file put into the sandbox's home and what its backend did not keep.
func (s *Sandbox) refurnish(ctx context.Context) error {
	return about(s.Record, run.Refurnish(ctx, s.Sandbox, s.m.store.Paths().SandboxState(s.Record.ID)))
}
