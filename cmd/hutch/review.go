package main

import (
	"context"

	"github.com/hutch-run/hutch/host/pull"
	"github.com/hutch-run/hutch/host/review"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/session"
)

// blockedError is a no, not a failure.
type blockedError struct{ error }

// ExitCode tells the two apart.
func (blockedError) ExitCode() int { return 1 }

// Unwrap returns the error underneath.
func (e blockedError) Unwrap() error { return e.error }

// reviewing is a review, and the sandbox of it where that may be changed.
type reviewing struct {
	*review.Review
	sandbox *sandbox.Sandbox // nil with a shared lock, and for a model's answer, of which there is none
}

// reviewed opens a sandbox and the review of it, and closes both.
func reviewed(ctx context.Context, u *ui, ref string, lock sandbox.Lock, o review.Options, fn func(reviewing) error) error {
	s, done, err := open(u)
	if err != nil {
		return err
	}
	defer done()
	return inReview(ctx, u, s, ref, lock, o, fn)
}

func inReview(ctx context.Context, u *ui, s *session.Session, ref string, lock sandbox.Lock, o review.Options, fn func(reviewing) error) error {
	m, err := sandboxes(s, waking(u))
	if err != nil {
		return err
	}
	var sb interface {
		Subject() (review.Subject, error)
		Close() error
	}
	var whole *sandbox.Sandbox
	if lock == sandbox.Shared { // nothing will be changed, so the backend need not know
		sb, err = m.Look(ctx, ref)
	} else {
		whole, err = m.Open(ctx, ref, lock)
		sb = whole
	}
	if err != nil {
		return err
	}
	defer func() { _ = sb.Close() }()
	info, err := s.Store().FindSandbox(ref)
	if err != nil {
		return err
	}
	var subject review.Subject
	if info.Push != nil { // its workspace is a clone, and what waits for a review is what was pulled from it
		subject, err = pull.Subject(ctx, info, s.Store().Paths().SandboxBase(info.ID))
	} else {
		subject, err = sb.Subject()
	}
	if err != nil {
		return pullError(err)
	}
	r, err := review.Open(ctx, subject, o)
	if err != nil {
		return err
	}
	defer r.Close()
	return fn(reviewing{r, whole})
}
