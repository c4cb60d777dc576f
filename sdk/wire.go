package sdk

import (
	"strings"
	"time"

	"github.com/hutch-run/hutch/sdk/internal/names"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

// The functions of this file are pure: they turn what the host sends into Go
// values, and what a backend answers into messages. Their opposites are in
// package sdk/client. Text that comes from a backend is made valid UTF-8, because
// the wire takes nothing else.

func utf8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func utf8s[T ~string](in []T) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = utf8(string(s))
	}
	return out
}

func factsTo(f *Facts) *pb.DescribeResponse {
	return &pb.DescribeResponse{
		Name:         f.Name,
		Version:      f.Version,
		SdkVersion:   f.SDKVersion,
		Summary:      utf8(f.Summary),
		Isolation:    names.Isolations.To(string(f.Isolation)),
		Schema:       schemaTo(f.Schema),
		Capabilities: utf8s(f.Capabilities),
		Limits:       utf8s(f.Limits),
		Workspaces:   utf8s(f.Workspaces),
		Networks:     utf8s(f.Networks),
		Formats:      utf8s(f.Formats),
		Environment:  utf8s(f.Environment),
	}
}

func schemaTo(s Schema) *pb.Schema {
	out := &pb.Schema{}
	for _, a := range s.Attributes {
		out.Attributes = append(out.Attributes, &pb.Attribute{
			Name:        a.Name,
			Type:        a.Type,
			Required:    a.Required,
			DefaultJson: a.Default,
			Doc:         utf8(a.Doc),
			Sensitive:   a.Sensitive,
			Deprecated:  utf8(a.Deprecated),
		})
	}
	for _, b := range s.Blocks {
		out.Blocks = append(out.Blocks, &pb.Block{
			Name:    b.Name,
			Nesting: names.Nestings.To(string(b.Nesting)),
			Min:     int32(b.Min),
			Max:     int32(b.Max),
			Doc:     utf8(b.Doc),
			Schema:  schemaTo(b.Schema),
		})
	}
	return out
}

func findingsTo(in []Finding) []*pb.Finding {
	out := make([]*pb.Finding, len(in))
	for i, f := range in {
		out[i] = &pb.Finding{
			Name:   utf8(f.Name),
			Status: names.Severities.To(string(f.Status)),
			Detail: utf8(f.Detail),
			Fix:    utf8(f.Fix),
		}
	}
	return out
}

// specFrom leaves Config alone: it needs the type, and has diagnostics of its own.
func specFrom(s *pb.Spec) Spec {
	l := s.GetLimits()
	out := Spec{
		Limits: Limits{
			Timeout: time.Duration(l.GetTimeoutNs()),
			Memory:  l.GetMemoryBytes(),
			CPUs:    l.GetCpus(),
			PIDs:    l.GetPids(),
			Disk:    l.GetDiskBytes(),
			Files:   l.GetFiles(),
		},
		Network: NetworkMode(s.GetNetwork()),
		Workspace: Workspace{
			Source: string(s.GetWorkspace().GetSource()),
			Mode:   WorkspaceMode(s.GetWorkspace().GetMode()),
		},
		Input: string(s.GetInput()),
		Rules: NetworkRules{Allow: s.GetRules().GetAllow(), Deny: s.GetRules().GetDeny()},
	}
	for _, m := range s.GetMounts() {
		out.Mounts = append(out.Mounts, Mount{Source: string(m.GetSource()), Target: string(m.GetTarget()), ReadOnly: m.GetReadOnly()})
	}
	return out
}

func planTo(p *Plan) *pb.PlanResponse {
	out := &pb.PlanResponse{Holds: holdsTo(p.Holds), Notes: utf8s(p.Notes)}
	for _, d := range p.Diagnostics {
		out.Diagnostics = append(out.Diagnostics, &pb.Diagnostic{
			Severity: names.Severities.To(string(d.Severity)),
			Summary:  utf8(d.Summary),
			Detail:   utf8(d.Detail),
			Path:     utf8(d.Path),
			Fix:      utf8(d.Fix),
		})
	}
	return out
}

func holdsTo(in []Hold) []*pb.Hold {
	out := make([]*pb.Hold, len(in))
	for i, h := range in {
		out[i] = &pb.Hold{
			Limit:     string(h.Limit),
			Value:     utf8(h.Value),
			IsDefault: h.Default,
			HeldBy:    utf8(h.HeldBy),
			Visible:   utf8(h.Visible),
			Reason:    utf8(h.Reason),
			Fix:       utf8(h.Fix),
		}
	}
	return out
}

func readyTo(r Ready) *pb.Ready {
	out := &pb.Ready{
		Workspace: utf8(r.Workspace),
		Input:     utf8(r.Input),
		Output:    utf8(r.Output),
		Holds:     holdsTo(r.Holds),
		Notes:     utf8s(r.Notes),
	}
	if l := r.Layers; l != nil {
		out.Layers = &pb.Layers{Lower: []byte(l.Lower), Upper: []byte(l.Upper), Trusted: l.Trusted}
	}
	if e := r.Exchange; e != nil {
		out.Exchange = &pb.Exchange{Host: []byte(e.Host), Guest: []byte(e.Guest)}
	}
	return out
}

func handleTo(h Handle) *pb.Handle { return &pb.Handle{SandboxId: h.ID, Data: h.Data} }

func handleFrom(h *pb.Handle) Handle {
	out := Handle{ID: h.GetSandboxId(), StateDir: string(h.GetStateDir())}
	if len(h.GetData()) > 0 {
		out.Data = h.GetData()
	}
	return out
}

func windowFrom(w *pb.WindowSize) *WindowSize {
	if w == nil {
		return nil
	}
	return &WindowSize{Rows: uint16(min(w.GetRows(), 65535)), Cols: uint16(min(w.GetCols(), 65535))}
}

func commandFrom(s *pb.ExecStart) *Command {
	c := &Command{
		Argv:    make([]string, len(s.GetArgv())),
		Env:     make(map[string]string, len(s.GetEnv())),
		Dir:     string(s.GetDir()),
		User:    s.GetUser(),
		TTY:     windowFrom(s.GetTty()),
		Timeout: time.Duration(s.GetTimeoutNs()),
		Grace:   time.Duration(s.GetGraceNs()),
	}
	for i, a := range s.GetArgv() {
		c.Argv[i] = string(a)
	}
	for _, kv := range s.GetEnv() {
		name, value, _ := strings.Cut(string(kv), "=")
		c.Env[name] = value
	}
	for _, x := range s.GetSecrets() {
		secret := Secret{Name: x.GetName(), Placeholder: x.GetPlaceholder(), Value: x.GetValue(), Hosts: x.GetHosts()}
		for _, r := range x.GetRules() {
			secret.Rules = append(secret.Rules, SecretRule{Methods: r.GetMethods(), Paths: r.GetPaths()})
		}
		c.Secrets = append(c.Secrets, secret)
	}
	if a := s.GetAuthority(); a != nil {
		c.Authority = &Authority{Certificate: a.GetCertificate(), Key: a.GetKey()}
	}
	return c
}

func exitTo(e *Exit) *pb.ExecExited {
	kept := e.Traffic[:min(len(e.Traffic), MaxTraffic)]
	traffic := make([]*pb.Traffic, len(kept))
	for i, t := range kept {
		traffic[i] = &pb.Traffic{Name: utf8(t.Name), Port: uint32(t.Port), Allowed: t.Allowed, Rule: utf8(t.Rule), Reason: utf8(t.Reason), Add: utf8(t.Add),
			Connections: t.Connections, Sent: t.Sent, Received: t.Received, Secrets: utf8s(t.Secrets)}
	}
	return &pb.ExecExited{
		Traffic:     traffic,
		TrafficMore: e.TrafficMore + int64(len(e.Traffic)-len(kept)),
		Cause:       string(e.Cause),
		Code:        int32(e.Code),
		Signal:      utf8(e.Signal),
		Evidence:    utf8(e.Evidence),
		NotStarted:  e.NotStarted,
		OutputLost:  utf8(e.OutputLost),
		Usage: &pb.Usage{
			WallNs:          int64(e.Usage.Wall),
			UserNs:          int64(e.Usage.User),
			SysNs:           int64(e.Usage.Sys),
			PeakMemoryBytes: e.Usage.PeakMemory,
			Pids:            e.Usage.PIDs,
		},
	}
}

func changeTo(c Change) *pb.Change {
	return &pb.Change{
		Path:    []byte(c.Path),
		Kind:    string(c.Kind),
		OldMode: uint32(c.OldMode),
		NewMode: uint32(c.NewMode),
		Size:    c.Size,
	}
}
