package sdk

import (
	"errors"

	"github.com/hutch-run/hutch/sdk/contract"
)

// What package contract shares with programs that do not link gRPC.
type (
	// Reason classifies an [Error] for the host and the user.
	Reason = contract.Reason
	// Error is a failure that survives the wire: what the backend returned is what the host gets from [errors.As].
	Error = contract.Error
)

// The reasons; see package contract.
const (
	ReasonConfig      = contract.ReasonConfig
	ReasonLimit       = contract.ReasonLimit
	ReasonMissing     = contract.ReasonMissing
	ReasonUnsupported = contract.ReasonUnsupported
	ReasonNotFound    = contract.ReasonNotFound
	ReasonDenied      = contract.ReasonDenied
	ReasonQuota       = contract.ReasonQuota
	ReasonUnavailable = contract.ReasonUnavailable
	ReasonInternal    = contract.ReasonInternal
)

// Errorf makes an [Error]; %w works as in [fmt.Errorf].
func Errorf(reason Reason, format string, args ...any) *Error {
	return contract.Errorf(reason, format, args...)
}

// ReasonOf returns the reason of the first [Error] in err's chain, and [ReasonInternal] otherwise.
func ReasonOf(err error) Reason { return contract.ReasonOf(err) }

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
