package sdk

import (
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hutch-run/hutch/sdk/internal/fields"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

// mostDetail bounds the texts of a failure: they travel in a header.
const mostDetail = 16 << 10

var codesOf = map[Reason]codes.Code{
	ReasonConfig:      codes.InvalidArgument,
	ReasonLimit:       codes.FailedPrecondition,
	ReasonMissing:     codes.FailedPrecondition,
	ReasonUnsupported: codes.Unimplemented,
	ReasonNotFound:    codes.NotFound,
	ReasonDenied:      codes.PermissionDenied,
	ReasonQuota:       codes.ResourceExhausted,
	ReasonUnavailable: codes.Unavailable,
	ReasonInternal:    codes.Internal,
}

// statusOf turns an error of a backend into what travels: a status with one
// Failure. An error that is no [Error] is a bug of the backend, unless it is the
// end of a context.
func statusOf(err error) error {
	if err == nil {
		return nil
	}
	f := &pb.Failure{Reason: pb.Failure_REASON_INTERNAL, Summary: clip(oneLine(err.Error()))}
	code := codes.Internal
	var e *Error
	switch {
	case errors.As(err, &e):
		if c, ok := codesOf[e.Reason]; ok {
			code = c
			fields.Clean(f, e)
		}
		// What was said around the Error belongs to its summary.
		f.Summary = clip(oneLine(strings.Replace(err.Error(), e.Error(), e.Summary, 1)))
		f.Detail, f.Fix, f.Path, f.Limit = clip(e.Detail), clip(e.Fix), clip(e.Path), clip(string(e.Limit))
		f.Retryable = e.Retryable
	case errors.Is(err, ErrHostGone), errors.Is(err, ErrCancelled), errors.Is(err, context.Canceled):
		// The sandbox or the whole backend ended during the call.
		code, f.Reason = codes.Canceled, pb.Failure_REASON_UNAVAILABLE
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, f.Summary)
	default:
		if st, ok := status.FromError(err); ok {
			return st.Err()
		}
	}
	st, derr := status.New(code, f.Summary).WithDetails(f)
	if derr != nil {
		return status.Error(code, f.Summary)
	}
	return st.Err()
}

// oneLine makes the text of joined errors a summary, in which each is once: what failed and the cleaning up after it
// often say the same.
func oneLine(s string) string {
	var lines []string
	for line := range strings.SplitSeq(s, "\n") {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

func clip(s string) string {
	if len(s) > mostDetail {
		s = s[:mostDetail] + "…"
	}
	return utf8(s)
}
