// Package contract has what the programs of a backend that run in sandboxes and virtual machines share with package
// sdk, which has all of it under the same names: errors with a reason, formats of files, progress. It imports the
// standard library only: linking gRPC would cost each start of such a program a millisecond.
package contract

import (
	"context"
	"errors"
	"fmt"
)

// Limit names a limit as run files, flags, results and the wire spell it.
type Limit string

// Reason classifies an [Error] for the host and the user.
type Reason string

// The reasons. A host treats one it does not know as [ReasonInternal]. The SDK chooses gRPC's status code by it; what
// is no *Error is reported as ReasonInternal, a bug of the backend.
const (
	ReasonConfig      Reason = "config"      // the backend block or the request is wrong; Path says where
	ReasonLimit       Reason = "limit"       // a limit cannot be held; Limit says which
	ReasonMissing     Reason = "missing"     // the machine lacks something; Fix says what to install
	ReasonUnsupported Reason = "unsupported" // the backend cannot do this at all
	ReasonNotFound    Reason = "not_found"   // no such sandbox or file
	ReasonDenied      Reason = "denied"      // credentials or permissions
	ReasonQuota       Reason = "quota"       // the far end has no room; maybe later
	ReasonUnavailable Reason = "unavailable" // the far end does not answer; maybe later
	ReasonInternal    Reason = "internal"    // a bug in the backend
)

// Error is a failure that survives the wire: what the backend returned is what
// the host gets from [errors.As].
type Error struct {
	Reason    Reason
	Summary   string // one line, lower case: what went wrong
	Detail    string // more, if there is more
	Fix       string // what to do about it
	Path      string // for ReasonConfig: the attribute, e.g. `bind[1].from`
	Limit     Limit  // for ReasonLimit
	Retryable bool   // the same call may work later
	Err       error  `json:"-"` // the error underneath; its text does not cross the wire unless Detail holds it
}

func (e *Error) Error() string {
	s := e.Summary
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Fix != "" {
		s += " (" + e.Fix + ")"
	}
	return s
}

// Unwrap returns the error underneath.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an *Error of the same reason; empty fields of
// target match anything, so errors.Is(err, &sdk.Error{Reason: sdk.ReasonNotFound}) works.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && (t.Reason == "" || t.Reason == e.Reason) && (t.Summary == "" || t.Summary == e.Summary) &&
		(t.Limit == "" || t.Limit == e.Limit) && (t.Path == "" || t.Path == e.Path)
}

// Errorf makes an [Error]; %w works as in [fmt.Errorf].
func Errorf(reason Reason, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Reason: reason, Summary: err.Error(), Err: errors.Unwrap(err)}
}

// WithFix says what to do about the error, and returns it.
func (e *Error) WithFix(format string, args ...any) *Error {
	e.Fix = fmt.Sprintf(format, args...)
	return e
}

// ReasonOf returns the reason of the first [Error] in err's chain, and
// [ReasonInternal] otherwise.
func ReasonOf(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ReasonInternal
}

// Format says how bytes represent files.
type Format string

// The formats.
const (
	FormatTar    Format = "tar"        // a directory tree as an uncompressed tar stream
	FormatFile   Format = "file"       // the content of one regular file
	FormatBundle Format = "git-bundle" // a git bundle
)

// FetchingFile is the step that a Get of [FormatFile] begins with.
const FetchingFile = "fetching the file"

type progressKey struct{}

// Progress returns the function that shows the user how far the call of ctx is, it is never nil.
func Progress(ctx context.Context) func(step string, done, total int64) {
	if tell, ok := ctx.Value(progressKey{}).(func(string, int64, int64)); ok && tell != nil {
		return tell
	}
	return func(string, int64, int64) {}
}

// WithProgress returns a context for calls that report progress to tell, which may be called concurrently with them.
func WithProgress(ctx context.Context, tell func(step string, done, total int64)) context.Context {
	return context.WithValue(ctx, progressKey{}, tell)
}
