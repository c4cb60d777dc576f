package sdk

import (
	"errors"
	"fmt"
)

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
	Err       error  // the error underneath; its text does not cross the wire unless Detail holds it
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

// Severity grades a [Diagnostic] or a [Finding].
type Severity string

// The severities.
const (
	SeverityOK      Severity = "ok" // only in a Finding
	SeverityWarning Severity = "warning"
	SeverityError   Severity = "error"
)

// Diagnostic is something to say about the values of a backend block.
type Diagnostic struct {
	Severity Severity
	Summary  string
	Detail   string
	// Path leads to the value inside the block: attribute and block names joined
	// by dots, list elements as [0], map elements as ["key"], as in
	// `mount[1].options["A B"]`. Empty means the block as a whole.
	Path string
	Fix  string // what to do about it; may be empty
}

// DiagnosticOf is an error as a [Plan] has it: the parts of the first [Error] in
// err's chain, and of any other error its text.
func DiagnosticOf(err error) Diagnostic {
	var e *Error
	if errors.As(err, &e) {
		return Diagnostic{Severity: SeverityError, Summary: e.Summary, Detail: e.Detail, Path: e.Path, Fix: e.Fix}
	}
	return Diagnostic{Severity: SeverityError, Summary: err.Error()}
}

// Validator is a configuration struct that checks more than types. The SDK calls
// it after decoding, before Plan and Create.
type Validator interface {
	Validate() []Diagnostic
}
