package client

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/hutch-run/hutch/sdk"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

// minor is a backend of protocol 1 that was not built with this SDK. A newer one sends fields, values of enums and
// kinds of events that this host has never heard of; an older one knows only what the first version had.
type minor struct {
	pb.UnimplementedBackendServer
	newer bool
}

// more adds to a message what a later version of it may have.
func more[M proto.Message](newer bool, m M) M {
	if newer {
		var b []byte
		b = protowire.AppendTag(b, 4000, protowire.BytesType)
		b = protowire.AppendString(b, "from the future")
		b = protowire.AppendTag(b, 4001, protowire.VarintType)
		b = protowire.AppendVarint(b, 7)
		m.ProtoReflect().SetUnknown(b)
	}
	return m
}

func (m *minor) Describe(context.Context, *pb.DescribeRequest) (*pb.DescribeResponse, error) {
	r := &pb.DescribeResponse{Name: "acme", Version: "1.0.0", Isolation: pb.Isolation_ISOLATION_NAMESPACE}
	if m.newer {
		r.Capabilities = []string{"plan", "teleport"}
		r.Limits, r.Formats = []string{"timeout", "patience"}, []string{"tar", "hologram"}
		r.Schema = more(true, &pb.Schema{Attributes: []*pb.Attribute{more(true, &pb.Attribute{Name: "image", Type: "string"})}})
	}
	return more(m.newer, r), nil
}

func (m *minor) Check(context.Context, *pb.CheckRequest) (*pb.CheckResponse, error) {
	f := &pb.Finding{Name: "acme", Status: pb.Severity_SEVERITY_OK}
	if m.newer {
		f.Status = 4711
	}
	return more(m.newer, &pb.CheckResponse{Findings: []*pb.Finding{more(m.newer, f)}}), nil
}

func (m *minor) Create(s grpc.BidiStreamingServer[pb.CreateRequest, pb.CreateEvent]) error {
	start, err := s.Recv()
	if err != nil {
		return err
	}
	events := []*pb.CreateEvent{{Event: &pb.CreateEvent_Allocated{Allocated: more(m.newer, &pb.Handle{SandboxId: start.GetStart().GetSandboxId(), Data: []byte(`{}`)})}}}
	if m.newer {
		unheardOf := more(true, &pb.CreateEvent{}) // an event of a kind that is not known
		events = []*pb.CreateEvent{unheardOf, events[0], unheardOf}
	}
	for _, e := range events {
		if err := s.Send(e); err != nil {
			return err
		}
		if e.GetAllocated() != nil {
			if _, err := s.Recv(); err != nil {
				return err
			}
		}
	}
	return s.Send(&pb.CreateEvent{Event: &pb.CreateEvent_Ready{Ready: more(m.newer, &pb.Ready{Workspace: "/workspace"})}})
}

func (m *minor) Inspect(context.Context, *pb.InspectRequest) (*pb.InspectResponse, error) {
	return more(m.newer, &pb.InspectResponse{State: "ready", Details: map[string]string{"a": "b"}}), nil
}

func (m *minor) Destroy(context.Context, *pb.DestroyRequest) (*pb.DestroyResponse, error) {
	return more(m.newer, &pb.DestroyResponse{}), nil
}

// One host works with backends of two minor versions of the protocol, one after the other and at the same time.
func TestTwoMinorsUnderOneHost(t *testing.T) {
	for name, newer := range map[string]bool{"older": false, "newer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := dialMinor(t, &minor{newer: newer})
			ctx := t.Context()
			f, err := c.Describe(ctx)
			if err != nil || f.Name != "acme" || f.Isolation != sdk.IsolationNamespace || f.Has(sdk.CapAttach) {
				t.Fatalf("describe: %+v, %v", f, err)
			}
			if newer && !f.Has(sdk.CapPlan) {
				t.Errorf("what is known beside the unknown was lost: %+v", f)
			}
			found, err := c.Check(ctx)
			if err != nil || len(found) != 1 || newer && found[0].Status == sdk.SeverityOK || !newer && found[0].Status != sdk.SeverityOK {
				t.Errorf("check: %+v, %v: what is not known must not count as well", found, err)
			}
			sb, err := c.Create(ctx, &sdk.CreateRequest{ID: "box"})
			if err != nil {
				t.Fatalf("create: %v", err)
			}
			if r := sb.Ready(); r.Workspace != "/workspace" || r.Layers != nil || r.Exchange != nil {
				t.Errorf("ready: %+v", r)
			}
			if st, err := sb.Inspect(ctx); err != nil || st.State != sdk.StateReady || st.Details["a"] != "b" {
				t.Errorf("inspect: %+v, %v", st, err)
			}
			if err := c.Destroy(ctx, sdk.Handle{ID: "box"}); err != nil {
				t.Errorf("destroy: %v", err)
			}
		})
	}
}

func dialMinor(t *testing.T, m *minor) *Client {
	t.Helper()
	g := grpc.NewServer()
	pb.RegisterBackendServer(g, m)
	conn, err := connect(g)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		g.Stop()
	})
	return New(conn, Options{})
}
