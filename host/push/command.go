package push

import (
	"context"
	"errors"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
)

// Run runs the command of the run file on what was pushed into the sandbox that ref means, and then hands in what it
// committed, if it has not done so itself. begun is notified of the sandbox, with the id of the run in it, as soon as
// the run's record is on disk. When ctx ends, the command is stopped, the sandbox stays, and nothing is handed in: pull
// does that.
func Run(ctx context.Context, m *sandbox.Manager, st *store.Store, ref string, streams run.Streams, begun func(store.SandboxInfo)) (*result.Result, Outcome, error) {
	info, err := begin(ctx, m, st, ref)
	if err != nil {
		return nil, Outcome{}, err
	}
	sb, err := m.Open(ctx, info.ID, sandbox.Shared)
	if err != nil {
		return nil, Outcome{}, err
	}
	defer func() { _ = sb.Close() }()
	c := command(info.Push)
	c.Begun = func() { begun(info) }
	r, err := sb.Run(ctx, c, streams)
	if err != nil || ctx.Err() != nil {
		return r, Outcome{}, err
	}
	if now, err := st.FindSandbox(info.ID); err != nil || now.State != store.SandboxReady {
		return r, Outcome{}, nil // the command ended because somebody removes the sandbox: nothing may begin in it any more
	}
	o, err := HandIn(ctx, sb, info.Push)
	return r, o, err
}

// begin notes that a command is about to run on a push, and returns the record with the id of its run. Nothing else may
// be running in the sandbox then. A bundle that was handed in and not fetched is dropped: the next one will hold its
// commits too.
func begin(ctx context.Context, m *sandbox.Manager, st *store.Store, ref string) (info store.SandboxInfo, err error) {
	sb, err := m.Open(ctx, ref, sandbox.Exclusive)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, sb.Close()) }()
	if sb.Record.Push == nil {
		return info, NotPushed(sb.Record)
	}
	if err := exchangeOf(sb.Sandbox).Drop(ctx); err != nil {
		return info, err
	}
	p := *sb.Record.Push
	if p.Run != "" { // what was sent may be gone with a pull
		if err := restore(ctx, sb); err != nil {
			return info, err
		}
	}
	p.Run = st.NewID()
	err = sb.SetPush(&p)
	return sb.Record, err
}

// command is the command of the run file, on what was pushed, as the run that begin has named.
func command(p *store.SandboxPush) sandbox.Command {
	c := sandbox.Command{ID: p.Run, Env: environment(p), Workdir: p.Workdir, Timeout: p.Timeout}
	if c.Workdir == "" {
		c.Workdir = p.Clone
	}
	return c
}
