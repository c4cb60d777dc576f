package cycle

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/pull"
	"github.com/hutch-run/hutch/host/review"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
)

const (
	maxChanges  = 10000    // in the result
	maxRecorded = 24 << 10 // bytes of changes in an event
)

// syncBack lists what changed, and brings it back where the user wants that. ctx is that of the caller, who may have
// ended it; after goes on.
func (c *cycle) syncBack(ctx, after context.Context) *synced {
	s := &synced{}
	if c.res.Sandbox == nil {
		s.Known, s.Applied = true, true // there was nothing to change
		return s
	}
	changes, gaps, err := c.changes(after)
	if err != nil {
		s.Problem = "what changed cannot be told: " + err.Error()
		return s
	}
	s.Known, s.Total, s.Changes = gaps == nil, len(changes), changes
	if gaps != nil {
		s.Problem = "there may be more changes: " + gaps.Error()
	}
	switch {
	case s.Total == 0 && gaps == nil:
		s.Applied = true
	case c.o.Apply == nil || c.o.When == Never || c.o.When == "":
	case c.o.When == OnSuccess && !c.res.OK, ctx.Err() != nil:
	default:
		if err := c.o.Apply(ctx, c.res.Sandbox.ID); err != nil {
			c.res.applyErr, s.Problem = err, err.Error()
		} else {
			s.Applied = gaps == nil
		}
	}
	return s
}

// event is o as it is recorded: an event has room for the first changes only, the result has them all.
func (o outcome) event() outcome {
	if o.Sync == nil {
		return o
	}
	short := *o.Sync
	room := maxRecorded
	for i, x := range short.Changes {
		for _, text := range slices.Concat([]string{x.Path, x.From, x.Conflict}, x.Refused, x.Marks) {
			room -= 2*len(text) + 30 // JSON may make more of it
		}
		if room < 0 {
			short.Changes = short.Changes[:i]
			break
		}
	}
	o.Sync = &short
	return o
}

// changes are what differs from the project.
func (c *cycle) changes(ctx context.Context) (list []review.Item, gaps, err error) {
	r, err := pull.Review(ctx, c.o.Manager, c.res.Sandbox.ID, sandbox.Shared, review.Options{})
	if err != nil {
		return nil, nil, err
	}
	for _, x := range r.Changes {
		list = append(list, x.Item(nil))
	}
	return list, r.Gaps, r.Close()
}

// tearDown removes the sandbox, unless something in it is still to be reviewed, or the user wants it.
func (c *cycle) tearDown(ctx context.Context, o outcome) {
	b := c.res.Sandbox
	if b == nil {
		return
	}
	if c.o.Keep || o.Sync == nil || !o.Sync.Applied {
		return
	}
	err := c.o.Manager.Remove(ctx, b.ID, true)
	if err != nil && !errors.Is(err, store.ErrNoSandbox) {
		c.res.Reason = strings.TrimPrefix(c.res.Reason+"; the sandbox cannot be removed: "+err.Error(), "; ")
		return
	}
	b.Kept = false
	_ = c.loop.SetSandbox("") // the record of the sandbox says the same
}
