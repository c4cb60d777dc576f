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
}

// mostMore bounds what is remembered of the destinations beyond [sdk.MaxTraffic]; a command can invent any number.
const mostMore = 100_000

func (r *record) add(d dest, o intercept.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.seen[d]
	if t == nil {
		if len(r.seen) >= sdk.MaxTraffic {
			if r.more == nil {
				r.more = map[dest]bool{}
			}
			if len(r.more) < mostMore {
				r.more[d] = true
			}
			return
		}
		if r.seen == nil {
			r.seen = map[dest]*sdk.Traffic{}
		}
		t = &sdk.Traffic{Name: d.name, Port: d.port, Allowed: d.allowed, Rule: d.rule, Reason: d.reason, Add: d.add}
		r.seen[d] = t
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

// take empties the record: it returns what is in it, denied destinations first, and the number of those that are not.
func (r *record) take() (out []sdk.Traffic, more int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.seen, r.more, r.requests = nil, nil, 0 }()
	for _, t := range r.seen {
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
