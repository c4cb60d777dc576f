package client

import (
	"io/fs"
	"maps"
	"slices"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/internal/fields"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

// The functions of this file bound what a hostile or broken backend may say, and convert what package fields leaves to
// its caller. Their opposites, for the backend's side, are in package sdk; wire_test.go sends every type through both.

func factsFrom(r *pb.DescribeResponse) *sdk.Facts {
	out := &sdk.Facts{}
	fields.Copy(out, r)
	return out
}

func findingsFrom(r *pb.CheckResponse) []sdk.Finding {
	out := struct{ Findings []sdk.Finding }{[]sdk.Finding{}}
	fields.Copy(&out, r)
	for i := range out.Findings {
		known(&out.Findings[i].Status)
	}
	return out.Findings
}

// known takes a severity that it does not know for the worst.
func known(s *sdk.Severity) {
	if *s == "" {
		*s = sdk.SeverityError
	}
}

func specTo(s *sdk.Spec) (*pb.Spec, error) {
	config, err := configJSON(s.Config)
	if err != nil {
		return nil, err
	}
	out := &pb.Spec{ConfigJson: config}
	fields.Copy(out, s)
	return out, nil
}

func planFrom(r *pb.PlanResponse) *sdk.Plan {
	p := &sdk.Plan{}
	fields.Copy(p, r)
	for i := range p.Diagnostics {
		known(&p.Diagnostics[i].Severity)
	}
	return p
}

func readyFrom(r *pb.Ready) (out sdk.Ready) {
	if r != nil {
		fields.Copy(&out, r)
	}
	return out
}

func handleTo(h sdk.Handle) *pb.Handle {
	out := &pb.Handle{}
	fields.Copy(out, &h)
	return out
}

func handleFrom(h *pb.Handle) (out sdk.Handle) {
	if h != nil {
		fields.Copy(&out, h)
		out.StateDir = "" // the host's alone
	}
	return out
}

func windowTo(w *sdk.WindowSize) *pb.WindowSize {
	if w == nil {
		return nil
	}
	return &pb.WindowSize{Rows: uint32(w.Rows), Cols: uint32(w.Cols)}
}

// exitFrom bounds what a backend may say: a code is 0 to 255, nothing counted is negative, and a cause that is not
// known is the backend's fault.
func exitFrom(e *pb.ExecExited) *sdk.Exit {
	out := &sdk.Exit{}
	fields.Copy(out, e)
	for _, n := range []*int64{
		(*int64)(&out.Usage.Wall), (*int64)(&out.Usage.User), (*int64)(&out.Usage.Sys),
		&out.Usage.PeakMemory, &out.Usage.PIDs, &out.TrafficMore,
	} {
		*n = max(0, *n)
	}
	if more := len(out.Traffic) - sdk.MaxTraffic; more > 0 {
		out.Traffic, out.TrafficMore = out.Traffic[:sdk.MaxTraffic], out.TrafficMore+int64(more)
	}
	out.Files = out.Files[:min(len(out.Files), sdk.MaxFiles)]
	left := sdk.MaxRequests
	for i := range out.Traffic {
		t := &out.Traffic[i]
		t.Port = min(t.Port, 65535)
		t.Connections, t.Sent, t.Received, t.RequestsMore = max(0, t.Connections), max(0, t.Sent), max(0, t.Received),
			max(0, t.RequestsMore)
		kept := min(len(t.Requests), left)
		t.RequestsMore += int64(len(t.Requests) - kept)
		t.Requests, left = t.Requests[:kept], left-kept
		for _, r := range t.Requests {
			if t.Used == nil {
				t.Used = &sdk.Used{}
			}
			t.Used.Add(r)
		}
	}
	if !out.Cause.Valid() {
		out.Evidence = "the backend gave the unknown cause " + quote(e.GetCause()) + "; " + out.Evidence
		out.Cause = sdk.CauseBackend
	}
	if out.Code < 0 || out.Code > 255 {
		out.Evidence = "the backend gave an exit code outside 0-255; " + out.Evidence
		out.Cause, out.Code = sdk.CauseBackend, 255
	}
	return out
}

// decidedFrom is a destination of which nothing is counted yet.
func decidedFrom(t *pb.Traffic) sdk.Traffic {
	return sdk.Traffic{Name: t.GetName(), Port: int(min(t.GetPort(), 65535)), Allowed: t.GetAllowed(), Rule: t.GetRule(),
		Reason: t.GetReason(), Add: t.GetAdd()}
}

// changeFrom is written out, because there may be a million of them.
func changeFrom(c *pb.Change) sdk.Change {
	return sdk.Change{
		Path:    string(c.GetPath()),
		Kind:    sdk.ChangeKind(c.GetKind()),
		OldMode: fs.FileMode(c.GetOldMode()),
		NewMode: fs.FileMode(c.GetNewMode()),
		Size:    c.GetSize(),
	}
}

// envTo sorts, so that the same environment always gives the same bytes.
func envTo(env map[string]string) [][]byte {
	out := make([][]byte, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, []byte(k+"="+env[k]))
	}
	return out
}
