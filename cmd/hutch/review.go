package main

import (
	"context"

	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/session"
	"github.com/hutch-run/hutch/host/workspace"
	"github.com/hutch-run/hutch/host/workspace/review"
)

// blockedError is a no, not a failure.
type blockedError struct{ error }

// ExitCode distinguishes the two.
func (blockedError) ExitCode() int { return 1 }

// Unwrap returns the error underneath.
func (e blockedError) Unwrap() error { return e.error }

// reviewed opens a sandbox and the review of it, and closes both.
func reviewed(ctx context.Context, u *ui, ref string, lock sandbox.Lock, o review.Options,
	fn func(*workspace.Review) error) error {
	s, done, err := open(u)
	if err != nil {
		return err
	}
	defer done()
	return inReview(ctx, u, s, ref, lock, o, fn)
}

func inReview(ctx context.Context, u *ui, s *session.Session, ref string, lock sandbox.Lock, o review.Options,
	fn func(*workspace.Review) error) error {
	m, err := s.Sandboxes(waking(u))
	if err != nil {
		return err
	}
	v, err := workspace.OpenReview(ctx, m, ref, lock, o)
	if err != nil {
		return pullError(err)
	}
	defer func() { _ = v.Close() }()
	return fn(v)
}
