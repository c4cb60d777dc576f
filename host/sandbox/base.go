package sandbox

import (
	"context"
	"io"

	"github.com/hutch-run/hutch/sdk"
)

// newBase writes down what the workspace's source looks like now, beside the base that is there. The function it
// returns puts it in that one's place.
func (m *Manager) newBase(ctx context.Context, s *Sandbox) (place func() error, err error) {
	ws, take := s.Record.Workspace, m.opt.Run.TakeBase
	if take == nil || ws.Source == "" || ws.Mode != string(sdk.WorkspacePrivate) {
		return func() error { return nil }, nil
	}
	if err := s.rec.NewBase(func(w io.Writer) error { return take(ctx, ws.Source, w) }); err != nil {
		return nil, err
	}
	return s.rec.PlaceBase, nil
}

// SaveBase replaces what is known of the workspace's source, for hutch diff and hutch apply.
func (s *Sandbox) SaveBase(write func(io.Writer) error) error {
	if err := s.rec.NewBase(write); err != nil {
		return err
	}
	return s.rec.PlaceBase()
}
