package client

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/hutch-run/hutch/sdk"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

// FuzzAnswers reads the same bytes as each message of a backend that what it says is taken from.
func FuzzAnswers(f *testing.F) {
	for _, m := range []proto.Message{
		&pb.ExecExited{Cause: "exited", Code: -1, Usage: &pb.Usage{WallNs: -1, PeakMemoryBytes: -1}}, &pb.ExecExited{Cause: "won", Code: 256},
		&pb.DescribeResponse{Name: "x", Isolation: 99, Schema: &pb.Schema{Blocks: []*pb.Block{{Nesting: 99, Schema: &pb.Schema{}}}}},
		&pb.PlanResponse{Diagnostics: []*pb.Diagnostic{{Severity: 99}}}, &pb.Ready{Layers: &pb.Layers{}, Exchange: &pb.Exchange{}},
		&pb.Failure{Reason: 99}, &pb.Handle{SandboxId: "x", Data: []byte("{")},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		read := func(m proto.Message, check func()) {
			if proto.Unmarshal(data, m) == nil {
				check()
			}
		}
		var exited pb.ExecExited
		read(&exited, func() {
			e := exitFrom(&exited)
			if u := e.Usage; !e.Cause.Valid() || e.Code < 0 || e.Code > 255 || min(u.Wall, u.User, u.Sys) < 0 || min(u.PeakMemory, u.PIDs) < 0 {
				t.Errorf("%+v", e)
			}
		})
		var facts pb.DescribeResponse
		read(&facts, func() { factsFrom(&facts) })
		var plan pb.PlanResponse
		read(&plan, func() {
			for _, d := range planFrom(&plan).Diagnostics {
				if d.Severity == "" {
					t.Errorf("%+v", d)
				}
			}
		})
		var ready pb.Ready
		read(&ready, func() {
			if _, err := json.Marshal(readyFrom(&ready)); err != nil {
				t.Error(err)
			}
		})
		var failure pb.Failure
		read(&failure, func() {
			if e := failureFrom(&failure); e.Reason == "" || e.Summary == "" {
				t.Errorf("%+v", e)
			}
		})
		var handle pb.Handle
		read(&handle, func() {
			if h := handleFrom(&handle); h.ID != handle.GetSandboxId() || h.StateDir != "" {
				t.Errorf("%+v", h)
			}
		})
		var change pb.Change
		read(&change, func() { _ = sdk.Change(changeFrom(&change)) })
	})
}
