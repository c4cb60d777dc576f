package sandbox

import (
	"cmp"
	"context"
	"fmt"

	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
)

// Fork makes sandboxes that begin with a copy of what the sandbox ref has written to its workspace and output, with
// its limits, network and environment. ref stays as it is. A sandbox that a command runs in is a [*BusyError]. There
// are as many as names; what is "" begins with the first one, or with ref's. The forks that were made are returned with
// an error, too.
func (m *Manager) Fork(ctx context.Context, ref string, names ...string) ([]store.SandboxInfo, error) {
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
	made, err := run.New(m.opt.Run).Fork(ctx, s.rec, s.backend, cmp.Or(cmp.Or(names...), i.Name), names)
	if err != nil {
		err = fmt.Errorf("fork %s: %w", nameOf(i), err)
	}
	return made, err
}
