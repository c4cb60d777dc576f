package main

import (
	"context"

	"github.com/hutch-run/hutch/plugins/e2b/internal/control"
	"github.com/hutch-run/hutch/plugins/e2b/scripts"
	"github.com/hutch-run/hutch/sdk"
)

// Stop implements [sdk.Stopper]: the machine is paused. Nothing of a command may be in it then, or it would go on when
// the machine does.
func (s *sandbox) Stop(ctx context.Context) error {
	d, err := s.client().Get(ctx, s.at.Machine)
	if err != nil {
		return typed(err, "look at the machine")
	}
	if d.State != control.Paused {
		if err := s.sh(ctx, "end all commands", rootUser, scripts.End, nil, "KILL", "all", "-"); err != nil {
			return err
		}
	}
	s.disconnect()
	if d.State == control.Paused {
		return nil
	}
	return typed(s.client().Pause(ctx, s.at.Machine), "pause the machine")
}

// Start implements [sdk.Stopper].
func (s *sandbox) Start(ctx context.Context, progress func(step string, done, total int64)) error {
	d, err := s.client().Get(ctx, s.at.Machine)
	if err != nil {
		return typed(err, "look at the machine")
	}
	if d.State != control.Paused {
		return nil
	}
	progress("resuming the machine", 0, 0)
	s.disconnect() // from what it was before
	_, err = s.connect(ctx)
	return err
}

// disconnect lets go of the machine, whose time is not extended any more.
func (s *sandbox) disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.daemon = nil
	if s.stopKeeping != nil {
		s.stopKeeping()
		s.stopKeeping = nil
	}
}

// stateOf says how a machine is in the words of the contract: whatever needs one that is paused resumes it.
func stateOf(d *control.Detail) sdk.State {
	if d.State == control.Paused {
		return sdk.StateAsleep
	}
	return sdk.StateReady
}
