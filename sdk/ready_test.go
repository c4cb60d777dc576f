package sdk

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"

	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

// quickHost is the host's side of a Create call that uses the sandbox the moment it reads that it is ready.
type quickHost struct {
	grpc.ServerStream
	start *pb.CreateRequest
	ready func() error
	err   error
}

func (h *quickHost) Context() context.Context { return context.Background() }

func (h *quickHost) Recv() (*pb.CreateRequest, error) {
	if r := h.start; r != nil {
		h.start = nil
		return r, nil
	}
	return &pb.CreateRequest{Request: &pb.CreateRequest_Stored{Stored: &pb.HandleStored{}}}, nil
}

func (h *quickHost) Send(ev *pb.CreateEvent) error {
	if ev.GetReady() != nil {
		h.err = h.ready()
	}
	return nil
}

type still struct{ small }

func (still) Create(context.Context, *CreateRequest) (Sandbox, error) { return stillBox{}, nil }

type stillBox struct{}

func (stillBox) Exec(context.Context, *Command) (*Exit, error) { return &Exit{Cause: CauseExited}, nil }
func (stillBox) Ready() Ready                                  { return Ready{Workspace: "/workspace"} }

func TestReadyMeansUsable(t *testing.T) {
	server, err := NewServer(&still{})
	if err != nil {
		t.Fatal(err)
	}
	s := &service{Server: server}
	h := &quickHost{start: &pb.CreateRequest{Request: &pb.CreateRequest_Start{Start: &pb.CreateStart{SandboxId: "box", StateDir: []byte(t.TempDir())}}}}
	h.err = errors.New("it was never said to be ready")
	h.ready = func() error {
		_, _, leave, err := s.use("box")
		if err == nil {
			leave()
		}
		return err
	}
	if err := s.Create(h); err != nil || h.err != nil {
		t.Error(err, h.err)
	}
}
