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

// PlaceBase puts the base that was written to Base + ".new" in the place of Base.
func (s *Sandbox) PlaceBase() error { return s.rec.PlaceBase() }
