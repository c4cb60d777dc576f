package sdk

import (
	"strings"

	"github.com/hutch-run/hutch/sdk/internal/fields"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

// The functions of this file turn what the host sends into Go values, and what a backend answers into messages. Their
// opposites are in package sdk/client. Package fields does most of it; here is what it leaves to its caller.

func utf8(s string) string { return fields.UTF8(s) }

func planTo(p *Plan) *pb.PlanResponse {
	out := &pb.PlanResponse{}
	fields.Clean(out, p)
	return out
}

func readyTo(r Ready) *pb.Ready {
	out := &pb.Ready{}
	fields.Clean(out, &r)
	return out
}

// handleTo leaves the state directory out, which the host knows.
func handleTo(h Handle) *pb.Handle { return &pb.Handle{SandboxId: h.ID, Data: h.Data} }

func handleFrom(h *pb.Handle) (out Handle) {
	if h != nil {
		fields.Copy(&out, h)
	}
	return out
}

func commandFrom(s *pb.ExecStart) *Command {
	c := &Command{Env: make(map[string]string, len(s.GetEnv()))}
	fields.Copy(c, s)
	for _, kv := range s.GetEnv() {
		name, value, _ := strings.Cut(string(kv), "=")
		c.Env[name] = value
	}
	return c
}

func exitTo(e *Exit) *pb.ExecExited {
	kept := *e
	kept.Traffic = e.Traffic[:min(len(e.Traffic), MaxTraffic)]
	kept.Files = e.Files[:min(len(e.Files), MaxFiles)]
	kept.TrafficMore += int64(len(e.Traffic) - len(kept.Traffic))
	out := &pb.ExecExited{}
	fields.Clean(out, &kept)
	return out
}

func trafficTo(t Traffic) *pb.Traffic {
	t.Requests = nil
	out := &pb.Traffic{}
	fields.Clean(out, &t)
	return out
}

// changeTo is written out, because there may be a million of them.
func changeTo(c Change) *pb.Change {
	return &pb.Change{
		Path:    []byte(c.Path),
		Kind:    string(c.Kind),
		OldMode: uint32(c.OldMode),
		NewMode: uint32(c.NewMode),
		Size:    c.Size,
	}
}
