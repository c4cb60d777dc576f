package main

import (
	"context"

	"github.com/hutch-run/hutch/sdk"
)

// Stop implements [sdk.Stopper]: the holder ends, with all commands and whatever lies in memory. The layer on disk is
// the sandbox then, and the next command makes a holder around it.
func (s *sandbox) Stop(context.Context) error {
	if !s.keep {
		return sdk.Errorf(sdk.ReasonUnsupported,
			"the sandbox %s lasts no longer than what runs in it, so it cannot be stopped", s.id)
	}
	return s.alone(func() error {
		if s.closed || !kept(s.dir) {
			return sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone", s.id)
		}
		return s.locked(s.endWorld)
	})
}

// Start implements [sdk.Stopper].
func (s *sandbox) Start(context.Context, func(step string, done, total int64)) error {
	release, err := s.use()
	if err != nil {
		return err
	}
	release()
	return nil
}
