package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// place is a sandbox and the record that something exists.
type place struct {
	*client.Sandbox
	b      *backend.Backend
	intent *store.IntentRecord
	handle *sdk.Handle // what finds it again; nil until the backend allocated something
	keep   bool
	ahead  bool // made before its run
	spec   sdk.Spec
}

// backendBroke distinguishes failures of a backend from those of what it was asked.
func backendBroke(err error) bool {
	var died *backend.DiedError
	if errors.Is(err, client.ErrLost) || errors.As(err, &died) {
		return true
	}
	var e *sdk.Error
	return errors.As(err, &e) && (e.Reason == sdk.ReasonInternal || e.Reason == sdk.ReasonUnavailable)
}

// begin puts on disk that a sandbox is about to be made, and makes the directory of its state.
func begin(st *store.Store, b *backend.Backend, id, run string, keep, fork bool) (*place, error) {
	intent, err := st.Begin(store.Intent{
		ID: id, Run: run, Backend: b.Facts.Name, Binary: b.Path, BinarySHA256: b.SHA256, Owner: st.Owner(),
		Plugin: store.ProcessOf(b.PID),
		// Namespaces, their mounts and processes are gone after a reboot, so that the record need not outlive it either. A
		// fork has none yet, and a record that was begun before.
		Volatile: (!keep || fork) && b.Facts.Isolation.Rank() <= sdk.IsolationNamespace.Rank(),
	})
	if err != nil {
		return nil, err
	}
	return &place{b: b, intent: intent, keep: keep}, nil
}

// create has the backend make the sandbox that was begun. After an error the contract says that nothing is left; where
// there is a handle the caller makes sure of it.
func (p *place) create(ctx context.Context, st *store.Store, req *sdk.CreateRequest) (err error) {
	req.ID, req.Owner, req.Keep = p.intent.ID, st.Owner(), p.keep
	req.StateDir = st.Paths().SandboxState(req.ID)
	req.Allocated = func(h sdk.Handle) error {
		p.handle = &h
		return p.intent.SetHandle(h.Data)
	}
	p.Sandbox, err = p.b.Create(ctx, req)
	return err
}

// create makes a sandbox with the backend that was chosen, or takes one that was made ahead. An intent is on disk
// before it begins; when it fails nothing is left, or the intent is.
func (j *job) create(ctx context.Context, id string, spec sdk.Spec, keep bool) (*place, error) {
	sp := j.span.child("create")
	defer sp.end()
	b, st := j.chosen.backend, j.r.opt.Store
	if keep {
		if err := j.takeBase(ctx, spec.Workspace); err != nil {
			return nil, err
		}
	}
	var p *place
	var err error
	if a := j.chosen.ahead; a != nil && !keep && id == j.id && a.fits(&spec) {
		p, j.chosen.ahead = a.place, nil
	} else {
		p, err = begin(st, b, id, j.id, keep, j.from != nil)
	}
	if err != nil {
		return nil, err
	}
	if p.spec = spec; p.ahead && j.said != nil {
		j.said.sandbox(p.intent.ID)
	}
	j.event(store.EventSandboxCreate, map[string]any{
		"sandbox": p.intent.ID, "backend": b.Facts.Name, "version": b.Facts.Version, "network": j.d.Network.OrNone(),
		"workspace": spec.Workspace.Source, "mode": spec.Workspace.Mode, "input": spec.Input, "mounts": spec.Mounts,
		"ahead": p.ahead,
	})
	if !p.ahead {
		err = p.create(ctx, st, &sdk.CreateRequest{Spec: spec, From: j.from, Progress: j.progress})
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		if p.handle != nil {
			after, cancel := j.afterwards(ctx)
			defer cancel()
			j.remove(after, p, *p.handle)
		} else {
			j.note(p.intent.Done(), "remove the intent")
		}
		// What is wrong with a value is for the author of the run file to mend, and no reason to try another backend.
		if e := (*sdk.Error)(nil); ctx.Err() == nil && errors.As(err, &e) && e.Reason == sdk.ReasonMissing && e.Path == "" &&
			len(j.res.Leaks) == 0 {
			j.unmade = e
		}
		return nil, err
	}
	ready := p.Ready()
	j.event(store.EventSandboxReady, map[string]any{
		"sandbox": p.intent.ID, "workspace": ready.Workspace, "input": ready.Input, "output": ready.Output,
		"limits": limitsOf(j.d, ready.Holds, j.s.TTY != nil), "notes": ready.Notes,
	})
	return p, nil
}

// destroy removes a sandbox, unless it is to be kept.
func (j *job) destroy(ctx context.Context, p *place) {
	sp := j.span.child("destroy")
	defer sp.end()
	if p.keep && j.res.Error == nil {
		err := j.fulfil(p)
		if err == nil {
			if j.res.Kept = true; j.rec != nil {
				j.event(store.EventSandboxDestroy, map[string]any{"sandbox": p.ID(), "kept": true, "name": j.res.Sandbox.Name})
			}
			return
		}
		j.fail("record", err)
	}
	if j.res.Error == nil && j.r.opt.Ahead.destroy(p) {
		j.event(store.EventSandboxDestroy, map[string]any{"sandbox": p.ID(), "later": true})
	} else {
		j.remove(ctx, p, p.Handle())
	}
	if w := j.res.Workspace; w.Source != "" && w.Mode == string(sdk.WorkspacePrivate) {
		j.res.ChangesDropped = len(j.res.Changes) + j.res.ChangesMore
	}
}

// remove destroys what a handle leads to and forgets the intent. A plugin that died meanwhile is started again for it.
func (j *job) remove(ctx context.Context, p *place, h sdk.Handle) {
	start := time.Now()
	err := p.b.Destroy(ctx, h)
	if err != nil && ctx.Err() == nil && backendBroke(err) {
		if b, oerr := j.r.opt.Backends.Open(ctx, p.b.Path); oerr != nil {
			err = errors.Join(err, oerr)
		} else {
			err = errors.Join(b.Destroy(ctx, h), b.Stop(ctx))
		}
	}
	if err == nil && p.keep {
		err = j.dropBox()
	}
	if err == nil {
		err = p.intent.Done()
	}
	data := map[string]any{"sandbox": h.ID, "seconds": result.Seconds(time.Since(start))}
	if err != nil {
		data["error"] = err.Error()
		j.res.Leaks = append(j.res.Leaks, fmt.Sprintf("sandbox %s: %s", h.ID, oneLine(err)))
		if p.keep {
			j.leaveBox() // gc goes on with it
		}
	}
	j.event(store.EventSandboxDestroy, data)
}

// checkHolds compares what the sandbox holds with what was asked for: a backend that promised more than it keeps must
// not run anything.
func (j *job) checkHolds(ready sdk.Ready) error {
	held := map[sdk.Limit]sdk.Hold{}
	for _, h := range ready.Holds {
		held[h.Limit] = h
	}
	for _, a := range askedLimits(j.d) {
		h, ok := held[a.limit]
		if ok && h.HeldBy != "" {
			continue
		}
		why := h.Reason
		if why == "" {
			why = "the backend does not say how"
		}
		return &sdk.Error{Reason: sdk.ReasonLimit, Limit: a.limit,
			Summary: fmt.Sprintf("the sandbox does not hold %s = %s", a.limit, a.value), Detail: why, Fix: h.Fix}
	}
	j.res.Notes = append(j.res.Notes, ready.Notes...)
	j.res.Limits = limitsOf(j.d, ready.Holds, j.s.TTY != nil)
	return nil
}
