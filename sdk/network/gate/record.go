//go:build linux

package gate

import (
	"cmp"
	"slices"
	"sync"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/network/intercept"
)

// dest is one line of the record: a destination and what was decided.
type dest struct {
	name         string
	port         int // 0: a lookup
	allowed      bool
	rule, reason string
	add          string // see [sdk.Traffic]
}

// record counts what a command did with its network. Its methods may be called concurrently.
type record struct {
	mu   sync.Mutex
	seen map[dest]*sdk.Traffic
	more map[dest]bool // beyond what is counted

	requests int // that are kept, of all destinations

	listeners []*func(sdk.Traffic) // called with each new destination
}

// listen has tell called with each new destination until the returned function is called.
func (r *record) listen(tell func(sdk.Traffic)) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listeners = append(r.listeners, &tell)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.listeners = slices.DeleteFunc(r.listeners, func(f *func(sdk.Traffic)) bool { return f == &tell })
	}
}

// mostMore bounds what is remembered of the destinations beyond [sdk.MaxTraffic]; a command can invent any number.
const mostMore = 100_000

// of is the line of a destination, which is made and reported where it is new; nil beyond those that are counted. r is
// locked.
func (r *record) of(d dest) *sdk.Traffic {
	if t := r.seen[d]; t != nil {
		return t
	}
	if len(r.seen) >= sdk.MaxTraffic {
		if r.more == nil {
			r.more = map[dest]bool{}
		}
		if len(r.more) < mostMore {
			r.more[d] = true
		}
		return nil
	}
	if r.seen == nil {
		r.seen = map[dest]*sdk.Traffic{}
	}
	t := &sdk.Traffic{Name: d.name, Port: d.port, Allowed: d.allowed, Rule: d.rule, Reason: d.reason, Add: d.add}
	r.seen[d] = t
	for _, tell := range r.listeners {
		(*tell)(*t)
	}
	return t
}

// begin notes a destination whose connection goes on.
func (r *record) begin(d dest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of(d)
}

// add counts what is over.
func (r *record) add(d dest, o intercept.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.of(d)
	if t == nil {
		return
	}
	t.Connections++
	t.Sent += o.Sent
	t.Received += o.Received
	kept := min(len(o.Requests), sdk.MaxRequests-r.requests)
	t.Requests = append(t.Requests, o.Requests[:kept]...)
	t.RequestsMore += o.RequestsMore + int64(len(o.Requests)-kept)
	r.requests += kept
	for _, s := range o.Secrets {
		if !slices.Contains(t.Secrets, s) {
			t.Secrets = append(t.Secrets, s)
		}
	}
}

// take empties the record: it returns what is over, denied destinations first, and the number of those that are not in
// it.
func (r *record) take() (out []sdk.Traffic, more int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.more, r.requests = nil, 0 }()
	for d, t := range r.seen {
		if t.Connections == 0 {
			continue
		}
		delete(r.seen, d)
		slices.Sort(t.Secrets)
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b sdk.Traffic) int {
		if a.Allowed != b.Allowed {
			if b.Allowed {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Reason, b.Reason))
	})
	return out, int64(len(r.more))
}
