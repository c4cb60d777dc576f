package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
)

// Ahead makes sandboxes before they are asked for, in a process that executes one call after another: on backends with
// [sdk.CapAhead], like those that the last call used. Each is for one run. A sandbox that was used is destroyed by Work
// as well, when its run has ended: of what ran in it nothing is left by then. A nil Ahead makes none. Its methods may
// be called concurrently.
type Ahead struct {
	most int

	mu    sync.Mutex
	ready []*aheadOf // the last one was made last
	next  []*aheadOf // what Work makes
	past  []func()   // what Work destroys
}

// aheadOf is a sandbox that is made ahead, or is to be.
type aheadOf struct {
	key    string
	source os.FileInfo // of its workspace; nil for an empty one
	spec   sdk.Spec
	b      *backend.Backend
	st     *store.Store
	plan   *sdk.Plan // by which it was made
	place  *place    // nil until it is made
}

// aheadTime is how long a sandbox waits for its use: it keeps file systems of the host in use.
const aheadTime = time.Minute

// NewAhead returns an Ahead that keeps at most so many sandboxes.
func NewAhead(most int) *Ahead { return &Ahead{most: most} }

// aheadFor says what a sandbox for spec has to fit, nil when none is made ahead: one with input or dependencies is of
// one run alone.
func aheadFor(b *backend.Backend, st *store.Store, spec *sdk.Spec) *aheadOf {
	ws := &spec.Workspace
	if !b.Facts.Has(sdk.CapAhead) || spec.Input != "" || len(spec.Mounts) > 0 ||
		spec.Network != sdk.NetworkNone && spec.Network != "" ||
		ws.Source != "" && ws.Mode != sdk.WorkspacePrivate {
		return nil
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil
	}
	a := &aheadOf{spec: *spec, b: b, st: st, key: fmt.Sprintf("%d %s %s\n%s", b.PID, st.Paths().Data, st.Owner(), text)}
	if ws.Source != "" {
		if a.source, err = os.Stat(ws.Source); err != nil {
			return nil
		}
	}
	return a
}

// fits reports whether a sandbox is one for spec.
func (a *aheadOf) fits(spec *sdk.Spec) bool {
	want := aheadFor(a.b, a.st, spec)
	return want != nil && a.is(want)
}

// is reports whether a sandbox can be used where another one is wanted.
func (a *aheadOf) is(want *aheadOf) bool {
	if a.key != want.key || a.source == nil { // and then neither has a source, which the key says
		return a.key == want.key
	}
	x, okX := a.source.Sys().(*syscall.Stat_t)
	y, okY := want.source.Sys().(*syscall.Stat_t)
	return okX && okY && os.SameFile(a.source, want.source) && x.Uid == y.Uid && x.Gid == y.Gid && x.Mode == y.Mode
}

// take returns a sandbox that was made ahead and is started now, or nil, and has Work make the next one.
func (r *Ahead) take(ctx context.Context, want *aheadOf) *aheadOf {
	r.mu.Lock()
	if r.next = append(r.next, want); len(r.next) > r.most {
		r.next = r.next[1:]
	}
	i := slices.IndexFunc(r.ready, want.is)
	if i < 0 {
		r.mu.Unlock()
		return nil
	}
	a := r.ready[i]
	r.ready = slices.Delete(r.ready, i, i+1)
	r.mu.Unlock()
	p := a.place
	p.Sandbox, p.b = want.b.Adopt(p.Sandbox), want.b
	if p.Wake(ctx, nil) != nil { // it is not as it would be if it were made now
		r.destroy(p)
		return nil
	}
	return a
}

// takeAhead has a sandbox that was made ahead started for j while its record begins.
func (j *job) takeAhead(ctx context.Context, c *choice) {
	r := j.r.opt.Ahead
	if r == nil || c.backend == nil || j.r.opt.Keep || len(j.d.Files) > 0 || j.d.Installs() ||
		len(invoke(j.d, j.id, expectedPlaces(j.d, true), false).generated) > 0 {
		return
	}
	spec := specOf(j.d, c.config, j.s.TTY != nil)
	if want := aheadFor(c.backend, j.r.opt.Store, &spec); want != nil {
		c.ahead = r.take(ctx, want)
	}
}

// dropAhead gives up what takeAhead took and the run did not use.
func (j *job) dropAhead(c *choice) {
	if c != nil && c.ahead != nil {
		j.r.opt.Ahead.destroy(c.ahead.place)
		c.ahead = nil
	}
}

// expire destroys a that nobody has used.
func (r *Ahead) expire(a *aheadOf) {
	r.mu.Lock()
	i := slices.Index(r.ready, a)
	if i >= 0 {
		r.ready = slices.Delete(r.ready, i, i+1)
	}
	r.mu.Unlock()
	if i >= 0 {
		_ = a.place.drop(context.Background())
	}
}

// plan returns what the backend planned for a sandbox that was made ahead, or nil.
func (r *Ahead) plan(b *backend.Backend, st *store.Store, spec *sdk.Spec) *sdk.Plan {
	if r == nil {
		return nil
	}
	want := aheadFor(b, st, spec)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.ready {
		if want != nil && a.is(want) {
			return a.plan
		}
	}
	return nil
}

// destroy has Work destroy p, and reports whether it will. What goes wrong then is left to gc.
func (r *Ahead) destroy(p *place) bool {
	if r == nil || !p.ahead {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.past = append(r.past, func() { _ = p.drop(context.Background()) })
	return true
}

// Work destroys what was used, and makes what may be used next. It is called when a call has ended.
func (r *Ahead) Work(ctx context.Context) error {
	r.mu.Lock()
	past, next := r.past, r.next
	r.past, r.next = nil, nil
	r.mu.Unlock()
	for _, fn := range past {
		fn()
	}
	var errs []error
	for _, a := range next {
		err := a.make(ctx)
		if errors.Is(err, &sdk.Error{Reason: sdk.ReasonUnsupported}) {
			continue
		}
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		r.mu.Lock()
		var old []*aheadOf
		r.ready = append(r.ready, a)
		time.AfterFunc(aheadTime, func() { r.expire(a) })
		if n := len(r.ready) - r.most; n > 0 {
			old, r.ready = r.ready[:n:n], r.ready[n:]
		}
		r.mu.Unlock()
		for _, a := range old {
			errs = append(errs, a.place.drop(ctx))
		}
	}
	return errors.Join(errs...)
}

// Drop destroys all that is there.
func (r *Ahead) Drop(ctx context.Context) error {
	r.mu.Lock()
	ready, past := r.ready, r.past
	r.ready, r.next, r.past = nil, nil, nil
	r.mu.Unlock()
	for _, fn := range past {
		fn()
	}
	var errs []error
	for _, a := range ready {
		errs = append(errs, a.place.drop(ctx))
	}
	return errors.Join(errs...)
}

// make makes the sandbox. On an error nothing is left, or the intent is.
func (a *aheadOf) make(ctx context.Context) (err error) {
	if a.plan, err = a.b.Plan(ctx, &a.spec); err != nil {
		return err
	}
	a.place, err = begin(a.st, a.b, a.st.NewID(), "", false, false)
	if err != nil {
		return err
	}
	a.place.ahead, a.place.spec = true, a.spec
	if err := a.place.create(ctx, a.st, &sdk.CreateRequest{Spec: a.spec, Ahead: true}); err != nil {
		return errors.Join(err, a.place.drop(ctx))
	}
	return nil
}

// drop destroys p and forgets its intent.
func (p *place) drop(ctx context.Context) error {
	if p.handle != nil {
		if err := p.b.Destroy(ctx, *p.handle); err != nil {
			return err
		}
	}
	return p.intent.Done()
}
