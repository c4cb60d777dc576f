package sandbox

import (
	"cmp"
	"context"
	"fmt"

	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
)

// Fork makes n sandboxes that begin with a copy of what the sandbox ref has written to its workspace and output, with
// its limits, network and environment. ref stays as it is. A sandbox that a command runs in is a [*BusyError]. name is
// that of the first one, and those of the others begin with it; with "" they are made from ref's. The forks that were
// made are returned with an error, too.
func (m *Manager) Fork(ctx context.Context, ref, name string, n int) ([]store.SandboxInfo, error) {
	s, err := m.attach(ctx, ref, Exclusive)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	i := s.Record
	switch {
	case !s.backend.Facts.Has(sdk.CapFork):
		return nil, fmt.Errorf("backend %q cannot fork a sandbox", i.Backend)
	case i.Workspace.Mode != string(sdk.WorkspacePrivate):
		return nil, fmt.Errorf("the workspace of %s is %s: a fork would work on the same files", nameOf(i), i.Workspace.Mode)
	}
	o := m.opt.Run
	o.Name = name
	made, err := run.New(o).Fork(ctx, s.rec, s.backend, cmp.Or(name, i.Name), n)
	if err != nil {
		err = fmt.Errorf("fork %s: %w", nameOf(i), err)
	}
	return made, err
}
