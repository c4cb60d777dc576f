// Package client is the host's half of the contract with backends: a gRPC
// connection in, the types of package sdk out.
//
// It knows nothing about processes. Package host/backend adds discovery, launch,
// supervision and death; package sdk/backendtest runs a backend inside the test
// process with [InProcess]. Both talk to it through this package, so a backend
// is tested over the very wire that it will be used over.
//
// # Errors
//
// What a backend returned as [sdk.Error] comes out as one, and errors.Is and
// errors.As work as they would have on the other side. A connection that broke
// is [ErrLost]. Words of gRPC never reach a message.
//
// # Concurrency
//
// All methods may be called from several goroutines.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/internal/fields"
	"github.com/hutch-run/hutch/sdk/internal/handshake"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
	"github.com/hutch-run/hutch/sdk/internal/warm"
)

// Options tune a [Client]. The zero value is good for everything but Exec, which
// needs PipeDir.
type Options struct {
	// PipeDir is the private directory (0700) in which Exec makes its FIFOs.
	PipeDir string

	// HostVersion is sent to the backend, for its messages only.
	HostVersion string

	// Timeout is the deadline of every call that should be quick; 0 means 30 s.
	Timeout time.Duration
	// SlowTimeout is the deadline of Check, Attach, Remove, Changes, Reset, Stop, Destroy and Drain, which may have to
	// move a virtual machine; 0 means 10 minutes. Create and Start may take so long until the backend says how far it is,
	// and again after that; Put and Get, which take as long as there is something to copy, for the backend's next step.
	SlowTimeout time.Duration
	// Slack is how long after its timeout, or after it was stopped, plus its grace, a
	// command may take to be reported as ended before Overdue is called; 0 means 10 s.
	Slack time.Duration

	// Overdue is called when the backend did not end a command in time. It should
	// break the connection. It may be nil.
	Overdue func(err error)

	// Silent is called when nothing has come of a call for as long as silent says, again whenever that has doubled: after
	// 30 s first, or half of what the call may take. most is after what the call fails, 0 when the caller or a command's
	// own timeout ends it sooner. It is called from its own goroutine, maybe for several calls at once, and may be nil.
	Silent func(call string, silent, most time.Duration)

	// Wrap, if set, sees every error before it is returned, with the name of the
	// call that it comes from, such as "exec".
	Wrap func(call string, err error) error
}

// Client talks to one backend.
type Client struct {
	rpc pb.BackendClient
	opt Options
	seq pipeCounter
}

// Warm makes the tables of the messages, which the first calls would otherwise have to wait for: a millisecond
// altogether. It is for a host that starts a backend and has to wait anyway. Only the first call does something.
func Warm() { warm.Messages() }

// New returns a client that speaks over conn. The client does not own conn.
func New(conn grpc.ClientConnInterface, opt Options) *Client {
	if opt.Timeout == 0 {
		opt.Timeout = 30 * time.Second
	}
	if opt.SlowTimeout == 0 {
		opt.SlowTimeout = 10 * time.Minute
	}
	if opt.Slack == 0 {
		opt.Slack = 10 * time.Second
	}
	return &Client{rpc: pb.NewBackendClient(conn), opt: opt}
}

// Describe returns the facts about the backend.
func (c *Client) Describe(ctx context.Context) (*sdk.Facts, error) {
	r, err := call(ctx, c, "describe", c.opt.Timeout, c.rpc.Describe, &pb.DescribeRequest{HostVersion: c.opt.HostVersion})
	if err != nil {
		return nil, err
	}
	return factsFrom(r), nil
}

// Check probes the machine.
func (c *Client) Check(ctx context.Context) ([]sdk.Finding, error) {
	r, err := call(ctx, c, "check", c.opt.SlowTimeout, c.rpc.Check, &pb.CheckRequest{})
	if err != nil {
		return nil, err
	}
	return findingsFrom(r), nil
}

// Plan says how the backend would hold the limits of spec, and what is wrong
// with its values. spec.Config may be nil, a [json.RawMessage], or anything that
// marshals to the JSON of the backend block.
func (c *Client) Plan(ctx context.Context, spec *sdk.Spec) (*sdk.Plan, error) {
	s, err := specTo(spec)
	if err != nil {
		return nil, c.wrap("plan", err)
	}
	r, err := call(ctx, c, "plan", c.opt.Timeout, c.rpc.Plan, &pb.PlanRequest{Spec: s})
	if err != nil {
		return nil, err
	}
	return planFrom(r), nil
}

// List returns the handles of the sandboxes that carry owner, of all sandboxes
// when owner is empty.
func (c *Client) List(ctx context.Context, owner string) ([]sdk.Handle, error) {
	r, err := call(ctx, c, "list", c.opt.Timeout, c.rpc.List, &pb.ListRequest{Owner: owner})
	if err != nil {
		return nil, err
	}
	handles := make([]sdk.Handle, 0, len(r.GetHandles()))
	for _, h := range r.GetHandles() {
		handles = append(handles, handleFrom(h))
	}
	return handles, nil
}

// Destroy removes the sandbox that h leads to. One that is unknown or gone is success.
func (c *Client) Destroy(ctx context.Context, h sdk.Handle) error {
	_, err := call(ctx, c, "destroy", c.opt.SlowTimeout, c.rpc.Destroy, &pb.DestroyRequest{Handle: handleTo(h)})
	return err
}

// Drain is the last call: the backend ends what runs, destroys what is not kept,
// and takes no further calls.
func (c *Client) Drain(ctx context.Context) error {
	_, err := call(ctx, c, "drain", c.opt.SlowTimeout, c.rpc.Drain, &pb.DrainRequest{})
	return err
}

// call makes a unary call, which has to be answered within d.
func call[Request, Answer any](
	ctx context.Context, c *Client, name string, d time.Duration,
	rpc func(context.Context, *Request, ...grpc.CallOption) (*Answer, error), r *Request,
) (*Answer, error) {
	ctx, cancel := c.deadline(ctx, name, d)
	defer cancel()
	answer, err := rpc(ctx, r)
	if err != nil {
		return nil, c.fail(ctx, name, err)
	}
	return answer, nil
}

// deadline bounds ctx, unless it is bounded closer already.
func (c *Client) deadline(ctx context.Context, call string, d time.Duration) (context.Context, context.CancelFunc) {
	quiet := c.silenceIn(ctx, call, d)
	ctx, cancel := context.WithTimeoutCause(ctx, d, fmt.Errorf("no answer within %s", d))
	quiet.begin()
	return ctx, func() {
		quiet.end()
		cancel()
	}
}

// progressing is deadline for a call in which the backend says how far it is; a caller that hears it begins the silence
// again, and the time that the backend has: it may have to boot a machine, and bounds that itself.
func (c *Client) progressing(ctx context.Context, call string, d time.Duration) (context.Context, *silence,
	context.CancelFunc) {
	quiet := c.silenceIn(ctx, call, d)
	ctx, cancel := context.WithCancelCause(ctx)
	quiet.limit = time.AfterFunc(d, func() { cancel(noAnswer(d)) })
	quiet.limited = d
	quiet.begin()
	return ctx, quiet, func() {
		quiet.limit.Stop()
		quiet.end()
		cancel(nil)
	}
}

// silenceIn is silence for a call whose caller may have less time.
func (c *Client) silenceIn(ctx context.Context, call string, d time.Duration) *silence {
	quiet := c.silence(call, d)
	if at, ok := ctx.Deadline(); ok && time.Until(at) < d {
		quiet = c.silence(call, 0) // how long the caller has is not ours to tell
		quiet.room = time.Until(at)
		quiet.first = min(quiet.first, quiet.room/2)
	}
	return quiet
}

// noAnswer is the error of a backend that was waited for too long.
func noAnswer(d time.Duration) error {
	return &sdk.Error{Reason: sdk.ReasonUnavailable, Summary: fmt.Sprintf("no answer within %s", d), Retryable: true,
		Err: context.DeadlineExceeded}
}

// wait is a deadline for each single step of a call: it runs only while the backend is waited for.
type wait struct {
	t     *time.Timer
	d     time.Duration
	quiet *silence
}

// waiting returns a context for a call that has as many steps as there is something to copy.
func (c *Client) waiting(ctx context.Context, call string) (context.Context, wait, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	d := c.opt.SlowTimeout
	quiet := c.silence(call, d)
	quiet.begin()
	t := time.AfterFunc(d, func() { cancel(noAnswer(d)) })
	return ctx, wait{t, d, quiet}, func() {
		t.Stop()
		quiet.end()
		cancel(nil)
	}
}

func (w wait) begin() {
	w.t.Reset(w.d)
	w.quiet.begin()
}

func (w wait) end() {
	w.t.Stop()
	w.quiet.end()
}

// configJSON returns what goes over the wire for a backend block.
func configJSON(config any) (json.RawMessage, error) {
	switch v := config.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		return v, nil
	}
	b, err := json.Marshal(config)
	if err != nil {
		return nil, sdk.Errorf(sdk.ReasonConfig, "the backend block cannot be sent: %w", err)
	}
	return b, nil
}

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
	if at, ok := ctx.Deadline(); ok && (st.Code() == codes.Canceled || st.Code() == codes.DeadlineExceeded) &&
		time.Until(at) < ahead {
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
		return &sdk.Error{Reason: sdk.ReasonInternal, Summary: "the backend sent a message that is too big",
			Detail: plain(st.Message())}
	}
	return &sdk.Error{Reason: sdk.ReasonInternal, Summary: plain(st.Message())}
}

func failureFrom(f *pb.Failure) *sdk.Error {
	e := &sdk.Error{}
	fields.Copy(e, f)
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

// What a host says to a backend, and expects from it, before the first call.
const (
	CookieKey   = handshake.CookieKey   // variable of the magic cookie
	CookieValue = handshake.CookieValue // and its value
	Protocol    = handshake.Protocol    // major version of the contract
	PluginName  = handshake.PluginName  // name of the only plugin, as go-plugin counts
	EnvLifeline = handshake.EnvLifeline // variable with the number of the descriptor that ends with the host
	EnvTemp     = handshake.EnvTemp     // variable with how the names of temporary directories begin
	EnvLogLevel = handshake.EnvLogLevel // variable with the least level of the log
)
