package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/internal/names"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

// ErrLost says that the connection to the backend broke during a call.
var ErrLost = errors.New("the connection to the backend broke")

// fail makes of a failed call what the caller gets.
func (c *Client) fail(ctx context.Context, call string, err error) error {
	return c.wrap(call, errorFrom(ctx, err))
}

func (c *Client) wrap(call string, err error) error {
	if err == nil || c.opt.Wrap == nil {
		return err
	}
	return c.opt.Wrap(call, err)
}

// ahead is how much earlier than ours the backend's clock may end a call.
const ahead = 200 * time.Millisecond

// errorFrom turns a gRPC error into one of ours. ctx is the context of the call.
func errorFrom(ctx context.Context, err error) error {
	if errors.Is(err, io.EOF) {
		return &sdk.Error{Reason: sdk.ReasonInternal, Summary: "the backend ended the call without an answer"}
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	for _, d := range st.Details() {
		if f, ok := d.(*pb.Failure); ok {
			return failureFrom(f)
		}
	}
	// The backend watches the deadline too, and may be a moment ahead of us.
	if at, ok := ctx.Deadline(); ok && (st.Code() == codes.Canceled || st.Code() == codes.DeadlineExceeded) && time.Until(at) < ahead {
		<-ctx.Done()
	}
	if cause := context.Cause(ctx); cause != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return &sdk.Error{Reason: sdk.ReasonUnavailable, Summary: cause.Error(), Retryable: true, Err: ctx.Err()}
		}
		return cause
	}
	switch st.Code() {
	case codes.Unavailable, codes.Canceled: // nobody cancelled: our connection was closed
		return fmt.Errorf("%w: %s", ErrLost, plain(st.Message()))
	case codes.Unimplemented:
		return &sdk.Error{Reason: sdk.ReasonUnsupported, Summary: "the backend does not answer this call",
			Detail: "it may be older than this hutch, or claim a capability it does not have"}
	case codes.ResourceExhausted:
		return &sdk.Error{Reason: sdk.ReasonInternal, Summary: "the backend sent a message that is too big", Detail: plain(st.Message())}
	}
	return &sdk.Error{Reason: sdk.ReasonInternal, Summary: plain(st.Message())}
}

func failureFrom(f *pb.Failure) *sdk.Error {
	e := &sdk.Error{
		Reason:    sdk.Reason(names.Reasons.From(f.GetReason())),
		Summary:   f.GetSummary(),
		Detail:    f.GetDetail(),
		Fix:       f.GetFix(),
		Path:      f.GetPath(),
		Limit:     sdk.Limit(f.GetLimit()),
		Retryable: f.GetRetryable(),
	}
	if e.Reason == "" {
		e.Reason = sdk.ReasonInternal
	}
	if e.Summary == "" {
		e.Summary = "the backend gave no reason"
	}
	return e
}

// plain strips the words that gRPC puts before an error of its transport.
func plain(msg string) string {
	if msg == "" {
		return "no reason given"
	}
	return msg
}

func quote(s string) string {
	const most = 64
	if len(s) > most {
		s = s[:most]
	}
	return strconv.Quote(s)
}
