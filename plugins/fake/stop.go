package main

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/hutch-run/hutch/sdk"
)

// A sandbox is stopped while it has a file of this name.
const stoppedName = "stopped"

func (s *sandbox) stopped() bool {
	_, err := os.Lstat(s.path(stoppedName))
	return err == nil
}

// Stop implements [sdk.Stopper].
func (s *sandbox) Stop(ctx context.Context) error {
	s.st.Config.fault("stop")
	if err := killAll(ctx, s.id, brand(s.st.Dir, s.id)); err != nil {
		return err
	}
	if s.st.Config.lies("stop_wipes") {
		if err := errors.Join(removeTree(s.path("output")), os.Mkdir(s.path("output"), 0o755)); err != nil {
			return err
		}
	}
	return os.WriteFile(s.path(stoppedName), nil, 0o600)
}

// Start implements [sdk.Stopper].
func (s *sandbox) Start(_ context.Context, progress func(step string, done, total int64)) error {
	s.st.Config.fault("start")
	s.b.mu.Lock()
	mine := s.b.mine[s.id]
	s.b.mu.Unlock()
	if !mine && s.st.Config.lies("stop_needs_self") {
		return sdk.Errorf(sdk.ReasonUnavailable, "the sandbox %s was stopped by another process", s.id)
	}
	if !s.stopped() {
		return nil
	}
	progress("starting", 0, 0)
	if err := os.Remove(s.path(stoppedName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
