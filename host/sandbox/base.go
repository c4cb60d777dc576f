package sandbox

import (
	"bufio"
	"context"
	"errors"
	"os"

	"github.com/hutch-run/hutch/sdk"
)

// newBase writes down what the workspace's source looks like now, beside the base that is there. The function it
// returns puts it in that one's place.
func (m *Manager) newBase(ctx context.Context, s *Sandbox) (place func() error, err error) {
	ws, take := s.Record.Workspace, m.opt.Run.TakeBase
	if take == nil || ws.Source == "" || ws.Mode != string(sdk.WorkspacePrivate) {
		return func() error { return nil }, nil
	}
	tmp := s.rec.NewBase()
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	buf := bufio.NewWriterSize(f, 256<<10)
	if err = take(ctx, ws.Source, buf); err == nil {
		err = buf.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(tmp))
	}
	return s.rec.PlaceBase, nil
}

// PlaceBase puts the base that was written to Base + ".new" in the place of Base.
func (s *Sandbox) PlaceBase() error { return s.rec.PlaceBase() }
