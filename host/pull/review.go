package pull

import (
	"context"
	"errors"

	"github.com/hutch-run/hutch/host/review"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
)

// Reviewing is the open review of a sandbox, whose lock it holds until it is closed.
type Reviewing struct {
	*review.Review
	// Sandbox is what a change is applied from; nil with a shared lock.
	Sandbox *sandbox.Sandbox

	close func() error
}

// Review opens a sandbox and the review of it: of its workspace, or, where a branch was pushed to the sandbox and the
// workspace is a clone, of what was pulled from it. With [sandbox.Shared] no backend is started where the files can be
// read on this host. The caller closes the Reviewing.
func Review(ctx context.Context, m *sandbox.Manager, ref string, lock sandbox.Lock, o review.Options) (_ *Reviewing, err error) {
	v := &Reviewing{}
	var of func() (review.Subject, error)
	var info store.SandboxInfo
	var base string
	if lock == sandbox.Shared {
		l, err := m.Look(ctx, ref)
		if err != nil {
			return nil, err
		}
		v.close, of, info, base = l.Close, l.Subject, l.Record, l.Base()
	} else {
		if v.Sandbox, err = m.Open(ctx, ref, lock); err != nil {
			return nil, err
		}
		v.close, of, info, base = v.Sandbox.Close, v.Sandbox.Subject, v.Sandbox.Record, v.Sandbox.Base
	}
	if info.Push != nil {
		of = func() (review.Subject, error) { return subject(ctx, info, base) }
	}
	s, err := of()
	if err == nil {
		v.Review, err = review.Open(ctx, s, o)
	}
	if err != nil {
		return nil, errors.Join(err, v.close())
	}
	return v, nil
}

// Close ends the review and gives the sandbox's lock back.
func (v *Reviewing) Close() error {
	v.Review.Close()
	return v.close()
}
