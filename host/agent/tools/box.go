package tools

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/hutch-run/hutch/host/files"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/sandbox"
)

// Box is the sandbox that tools work in. Each tool opens it for itself and leaves it again, so that the holder of a Box
// holds no lock. Its methods may be called concurrently.
type Box struct {
	Manager *sandbox.Manager
	Name    string // of the sandbox, or its id
	Jobs    *Jobs  // where its commands run
	Parent  string // id of the record that commands belong to; "" for none
	// MaxTimeout bounds what a command is given, which is also what it gets when it asks for nothing; 0 leaves that to the
	// sandbox.
	MaxTimeout time.Duration
}

// inFiles calls fn with the files of the sandbox.
func inFiles[Out any](ctx context.Context, b *Box, fn func(f *files.Files) (Out, error)) (out Out, err error) {
	sb, err := b.Manager.Look(ctx, b.Name)
	if err != nil {
		return out, Explain(err)
	}
	defer func() { _ = sb.Close() }()
	f, err := sb.Files(files.Options{})
	if err != nil {
		return out, Explain(err)
	}
	defer func() { _ = f.Close() }()
	out, err = fn(f)
	return out, Explain(err)
}

// explained is an error whose text says what to do about it.
type explained struct {
	error
	fix string
}

func (e *explained) Error() string { return e.error.Error() + "; " + e.fix }
func (e *explained) Unwrap() error { return e.error }

// Explain adds to an error what to do about it, once, since a model sees nothing but its text.
func Explain(err error) error {
	var fe *files.Error
	var fail *result.Failure
	var said *explained
	switch {
	case errors.As(err, &said):
	case errors.As(err, &fe) && fe.Hint != "":
		return &explained{err, fe.Hint}
	case errors.As(err, &fail) && len(fail.Diagnostics) > 0:
		for _, d := range fail.Diagnostics {
			if d.Fix != "" {
				return &explained{err, d.Fix}
			}
		}
	}
	return err
}

// Clip shortens what a model wrote, for a message that shows it.
func Clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "…"
	}
	return s
}

// bounded is a number of a request: the default for none, and at most so much.
func bounded(n, or, most int) int { return min(cmp.Or(n, or), most) }

// ResetIn are the arguments of [Box.Reset].
type ResetIn struct {
	Hard bool `json:"hard,omitempty" jsonschema:"drop what was written to the workspace as well"`
}

// ResetOut is what Reset answers.
type ResetOut struct {
	Hard bool `json:"hard" jsonschema:"what was written to the workspace is gone"`
}

// Reset ends what runs in the sandbox and recreates its surroundings.
func (b *Box) Reset(ctx context.Context, in ResetIn) (ResetOut, error) {
	b.Jobs.Stop(ctx, b.Name)
	return ResetOut(in), Explain(b.Manager.Reset(ctx, b.Name, in.Hard, true))
}
