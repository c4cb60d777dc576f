package client

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hutch-run/hutch/sdk"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

// hostile is a backend that was not made with the SDK, and not in good faith.
type hostile struct {
	pb.UnimplementedBackendServer
	create func(grpc.BidiStreamingServer[pb.CreateRequest, pb.CreateEvent]) error
	exec   func(grpc.BidiStreamingServer[pb.ExecRequest, pb.ExecEvent]) error
}

func (h *hostile) Create(s grpc.BidiStreamingServer[pb.CreateRequest, pb.CreateEvent]) error {
	if h.create != nil {
		return h.create(s)
	}
	return s.Send(&pb.CreateEvent{Event: &pb.CreateEvent_Ready{}})
}

func (h *hostile) Exec(s grpc.BidiStreamingServer[pb.ExecRequest, pb.ExecEvent]) error {
	return h.exec(s)
}

func (h *hostile) Describe(context.Context, *pb.DescribeRequest) (*pb.DescribeResponse, error) {
	return &pb.DescribeResponse{Summary: strings.Repeat("x", 100<<20)}, nil
}

func (h *hostile) Check(context.Context, *pb.CheckRequest) (*pb.CheckResponse, error) {
	return nil, status.Error(codes.DataLoss, "oh\x1b[2J")
}

func (h *hostile) Plan(context.Context, *pb.PlanRequest) (*pb.PlanResponse, error) {
	return &pb.PlanResponse{Diagnostics: []*pb.Diagnostic{{Severity: 99, Summary: "from the future"}}}, nil
}

func (h *hostile) Destroy(context.Context, *pb.DestroyRequest) (*pb.DestroyResponse, error) {
	st, err := status.New(codes.Internal, "x").WithDetails(&pb.Failure{Reason: 77})
	if err != nil {
		return nil, err
	}
	return nil, st.Err()
}

func dialHostile(t *testing.T, h *hostile) *Client {
	t.Helper()
	g := grpc.NewServer()
	pb.RegisterBackendServer(g, h)
	conn, err := connect(g)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		g.Stop()
	})
	return New(conn, Options{PipeDir: t.TempDir()})
}

func TestHostileExits(t *testing.T) {
	tests := map[string]struct {
		exited *pb.ExecExited
		cause  sdk.Cause
		code   int
	}{
		"a code beyond 255":  {&pb.ExecExited{Cause: "exited", Code: 1 << 30}, sdk.CauseBackend, 255},
		"a negative code":    {&pb.ExecExited{Cause: "exited", Code: -1}, sdk.CauseBackend, 255},
		"an unknown cause":   {&pb.ExecExited{Cause: "boredom\x1b[2J", Code: 3}, sdk.CauseBackend, 3},
		"no cause, no usage": {&pb.ExecExited{}, sdk.CauseBackend, 0},
		"nothing at all":     {nil, sdk.CauseBackend, 0},
		"an honest one":      {&pb.ExecExited{Cause: "oom", Code: 137}, sdk.CauseOOM, 137},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := dialHostile(t, &hostile{exec: func(s grpc.BidiStreamingServer[pb.ExecRequest, pb.ExecEvent]) error {
				return s.Send(&pb.ExecEvent{Event: &pb.ExecEvent_Exited{Exited: tt.exited}})
			}})
			sb, err := c.Create(context.Background(), &sdk.CreateRequest{ID: "one"})
			if err != nil {
				t.Fatal(err)
			}
			exit, err := sb.Exec(context.Background(), &Command{Argv: []string{"x"}})
			if err != nil || exit.Cause != tt.cause || exit.Code != tt.code {
				t.Errorf("got %+v and %v, want cause %s and code %d", exit, err, tt.cause, tt.code)
			}
			if strings.Contains(exit.Evidence, "\x1b") {
				t.Errorf("escape codes in %q", exit.Evidence)
			}
		})
	}
}

func TestHostileStreams(t *testing.T) {
	ctx := context.Background()
	c := dialHostile(t, &hostile{exec: func(s grpc.BidiStreamingServer[pb.ExecRequest, pb.ExecEvent]) error {
		for range 3 { // events twice and three times, events of no kind, and no end
			_ = s.Send(&pb.ExecEvent{Event: &pb.ExecEvent_Opened{}})
			_ = s.Send(&pb.ExecEvent{Event: &pb.ExecEvent_Started{}})
			_ = s.Send(&pb.ExecEvent{})
		}
		return nil
	}})
	sb, err := c.Create(ctx, &sdk.CreateRequest{ID: "one"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sb.Exec(ctx, &Command{Argv: []string{"x"}, Stdin: strings.NewReader("x")}); sdk.ReasonOf(err) != sdk.ReasonInternal {
		t.Errorf("exec without an end: %v", err)
	}
	c = dialHostile(t, &hostile{create: func(s grpc.BidiStreamingServer[pb.CreateRequest, pb.CreateEvent]) error {
		return s.Send(&pb.CreateEvent{Event: &pb.CreateEvent_Allocated{Allocated: &pb.Handle{SandboxId: "another"}}})
	}})
	if _, err := c.Create(ctx, &sdk.CreateRequest{ID: "one"}); err == nil || !strings.Contains(err.Error(), `a handle of sandbox "another"`) {
		t.Errorf("a handle of another sandbox: %v", err)
	}
	c = dialHostile(t, &hostile{create: func(grpc.BidiStreamingServer[pb.CreateRequest, pb.CreateEvent]) error { return nil }})
	if _, err := c.Create(ctx, &sdk.CreateRequest{ID: "one"}); sdk.ReasonOf(err) != sdk.ReasonInternal {
		t.Errorf("a creation without an end: %v", err)
	}
}

func TestHostileAnswers(t *testing.T) {
	ctx := context.Background()
	c := dialHostile(t, &hostile{})
	if _, err := c.Describe(ctx); err == nil || !strings.Contains(err.Error(), "a message that is too big") {
		t.Errorf("100 MiB: %v", err)
	}
	_, err := c.Check(ctx)
	var e *sdk.Error
	if !errors.As(err, &e) || e.Reason != sdk.ReasonInternal || strings.Contains(err.Error(), "DataLoss") {
		t.Errorf("a status without a failure: %v", err)
	}
	if err := c.Destroy(ctx, sdk.Handle{ID: "x"}); !errors.As(err, &e) || e.Reason != sdk.ReasonInternal || e.Summary == "" {
		t.Errorf("a failure with an unknown reason: %v", err)
	}
	if _, err := c.List(ctx, ""); !errors.As(err, &e) || e.Reason != sdk.ReasonUnsupported {
		t.Errorf("a call that is not there: %v", err)
	}
	plan, err := c.Plan(ctx, &sdk.Spec{})
	if err != nil || len(plan.Diagnostics) != 1 || plan.Diagnostics[0].Severity != sdk.SeverityError {
		t.Errorf("a severity from the future must count as an error: %+v, %v", plan, err)
	}
}
