// Package registry keeps the sandboxes of one plugin process, so that each is made once and ended once, however many
// calls ask for it.
package registry

import (
	"context"
	"sync"

	"github.com/hutch-run/hutch/sdk"
)

// Registry holds sandboxes of type S by their ids. The zero value is usable. Its methods may be called concurrently.
type Registry[S sdk.Sandbox] struct {
	mu  sync.Mutex
	all map[string]*entry[S]
}

// entry is a sandbox, or the attempt to make one.
type entry[S sdk.Sandbox] struct {
	done chan struct{}
	s    S
	err  error
}

// Once returns the sandbox id, and makes it by fn when it is not here. Who asks for it while fn runs waits for that,
// until ctx ends, and shares its outcome. A sandbox that fn fails to make is not kept.
func (r *Registry[S]) Once(ctx context.Context, id string, fn func() (S, error)) (sdk.Sandbox, error) {
	r.mu.Lock()
	e := r.all[id]
	mine := e == nil
	if mine {
		e = &entry[S]{done: make(chan struct{})}
		if r.all == nil {
			r.all = map[string]*entry[S]{}
		}
		r.all[id] = e
	}
	r.mu.Unlock()
	if mine {
		e.s, e.err = fn()
		if e.err != nil {
			r.forget(id, e)
		}
		close(e.done)
	}
	select {
	case <-e.done:
		if e.err != nil {
			return nil, e.err // and no sandbox, which is no nil interface
		}
		return e.s, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// End calls end for the sandbox id, once nobody is making it any more, and forgets it when end succeeds. here says
// whether there is one; otherwise end is not called.
func (r *Registry[S]) End(ctx context.Context, id string, end func(S) error) (here bool, err error) {
	r.mu.Lock()
	e := r.all[id]
	r.mu.Unlock()
	if e == nil {
		return false, nil
	}
	select {
	case <-e.done:
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
	if e.err != nil {
		return false, nil
	}
	if err := end(e.s); err != nil {
		return true, err
	}
	r.forget(id, e)
	return true, nil
}

// forget drops an entry, but not one that has taken its place.
func (r *Registry[S]) forget(id string, e *entry[S]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all[id] == e {
		delete(r.all, id)
	}
}
