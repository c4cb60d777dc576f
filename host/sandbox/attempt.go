package sandbox

import (
	"context"
	"errors"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/store"
)

// Attempt runs c in the sandbox id, a fork that was made for it, and writes down which run that was. The shell command
// check, unless it is "", then judges the result in a copy of the sandbox, so that what it writes is no part of the
// attempt. checked is nil where no check ran; the error is that of [Sandbox.Run].
func (m *Manager) Attempt(ctx context.Context, id string, c Command, check string, streams run.Streams) (worked,
	checked *result.Result, err error) {
	if worked, err = m.runIn(ctx, id, c, streams); err != nil {
		return worked, nil, err
	}
	a := &store.SandboxAttempt{Run: worked.ID}
	if check != "" && ctx.Err() == nil {
		if checked, err = m.check(ctx, id, check, c); checked != nil {
			a.Check = checked.ID
		}
	}
	rec, rerr := m.store.OpenSandbox(context.WithoutCancel(ctx), id, true, alonePatience)
	if rerr != nil {
		return worked, checked, errors.Join(err, rerr)
	}
	return worked, checked, errors.Join(err, rec.Update(func(i *store.SandboxInfo) { i.Attempt = a }), rec.Close())
}

func (m *Manager) runIn(ctx context.Context, name string, c Command, streams run.Streams) (*result.Result, error) {
	s, err := m.Open(ctx, name, Shared)
	if err != nil {
		return nil, err
	}
	r, err := s.Run(ctx, c, streams)
	return r, errors.Join(err, s.Close())
}

// check runs a shell command in a copy of a sandbox, with the bounds of c.
func (m *Manager) check(ctx context.Context, name, check string, c Command) (*result.Result, error) {
	made, err := m.Fork(ctx, name, "")
	if err != nil {
		return nil, err
	}
	id := made[0].ID
	r, err := m.runIn(ctx, id, Command{Name: "check of " + c.Name, Argv: []string{"sh", "-c", check}, Timeout: c.Timeout,
		Output: c.Output}, run.Streams{})
	return r, errors.Join(err, m.Remove(context.WithoutCancel(ctx), id, true))
}
