package main

import (
	"context"

	"github.com/hutch-run/hutch/sdk"
)

// Stop implements [sdk.Stopper]. The container stays, dead, so that its labels are found.
func (s *sandbox) Stop(ctx context.Context) error {
	return s.alone(func() error {
		if s.gone {
			return sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone", s.id)
		}
		s.container = nil
		st, err := s.podman.state(ctx, s.name())
		if err != nil || st.missing || !st.Running {
			return err
		}
		_, err = s.podman.call(ctx, "stop", "--time=0", s.name())
		return err
	})
}

// Start implements [sdk.Stopper]. The container is recreated around the sandbox's files: its agent's socket is handed
// to it by podman run, and podman start hands on nothing.
func (s *sandbox) Start(ctx context.Context, progress func(step string, done, total int64)) error {
	up, err := s.up(ctx)
	if up || err != nil {
		return err
	}
	progress("start the container", 0, 0)
	return s.Reset(ctx, false)
}

// up says whether the container runs, no matter who started it.
func (s *sandbox) up(ctx context.Context) (bool, error) {
	s.mu.RLock() // with which commands run
	up := s.container != nil && alive(s.container)
	s.mu.RUnlock()
	if up {
		return true, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return false, sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone", s.id)
	}
	if s.container != nil && alive(s.container) {
		return true, nil
	}
	s.container.leave()
	s.container = nil
	if err := s.find(ctx); err != nil {
		return false, err
	}
	return s.container != nil, nil
}
