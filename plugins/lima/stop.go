package main

import (
	"context"

	"github.com/hutch-run/hutch/plugins/lima/internal/limaout"
	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk"
)

// Stop implements [sdk.Stopper]. A VM may hold sandboxes of others: it is stopped once all that are in it are.
func (s *sandbox) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.goneError(); err != nil {
		return err
	}
	m := s.machine
	say := logged(ctx)
	i, err := m.list(ctx, m.name)
	if err != nil {
		return err
	}
	if i == nil {
		return m.noSuchVM()
	}
	stopped, err := s.stopped()
	if err != nil {
		return err
	}
	// A sandbox that is stopped has nothing running, and does not keep others from stopping the VM under our hands.
	if i.Status == limaout.StatusRunning && !stopped {
		l, err := m.connect(ctx, nil, s.startTimeout(), say)
		if err != nil {
			return err
		}
		// Another process may run commands in it, which this ends.
		if _, err := l.ask(ctx, wire.Request{Op: wire.OpReset, ID: s.rec.ID}, nil); err != nil {
			return err
		}
	}
	unlock, err := m.lock(ctx, say)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.rest(true); err != nil {
		return err
	}
	busy, err := m.busy()
	if err != nil || busy || i.Status != limaout.StatusRunning {
		return err
	}
	m.leave()
	return m.stop(ctx, false)
}

// Start implements [sdk.Stopper].
func (s *sandbox) Start(ctx context.Context, progress func(step string, done, total int64)) error {
	_, release, err := s.useWith(ctx, progress)
	if err != nil {
		return err
	}
	release()
	return nil
}

// rest notes whether the sandbox is stopped. The caller holds the VM's lock.
func (s *sandbox) rest(stopped bool) error {
	rec, err := s.machine.exists(s.rec.ID)
	if err != nil {
		return err
	}
	if rec == nil {
		return sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone", s.rec.ID)
	}
	if rec.Stopped == stopped {
		return nil
	}
	rec.Stopped = stopped
	return s.machine.write(s.machine.box(s.rec.ID), rec)
}

// stopped says whether the sandbox was stopped, by whichever process.
func (s *sandbox) stopped() (bool, error) {
	rec, err := s.machine.exists(s.rec.ID)
	return rec != nil && rec.Stopped, err
}

// takeUp notes that the sandbox is in use again, before its VM is looked for, so that nobody stops that any more.
func (s *sandbox) takeUp(ctx context.Context, say progress) error {
	stopped, err := s.stopped()
	if !stopped || err != nil {
		return err
	}
	unlock, err := s.machine.lock(ctx, say)
	if err != nil {
		return err
	}
	defer unlock()
	return s.rest(false)
}

// busy says whether a sandbox in the VM is not stopped. The caller holds the lock.
func (m *machine) busy() (bool, error) {
	ids, err := m.ids("sandboxes")
	if err != nil {
		return false, err
	}
	for _, id := range ids {
		rec, err := m.exists(id)
		if err != nil {
			return false, err
		}
		if rec != nil && !rec.Stopped {
			return true, nil
		}
	}
	return false, nil
}
