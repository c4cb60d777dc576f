package client

import (
	"encoding/json"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/internal/names"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

// The functions of this file are pure. Their opposites, for the backend's side,
// are in package sdk; wire_test.go sends every type through both.

func factsFrom(r *pb.DescribeResponse) *sdk.Facts {
	return &sdk.Facts{
		Name:         r.GetName(),
		Version:      r.GetVersion(),
		SDKVersion:   r.GetSdkVersion(),
		Summary:      r.GetSummary(),
		Isolation:    sdk.Isolation(names.Isolations.From(r.GetIsolation())),
		Schema:       schemaFrom(r.GetSchema()),
		Capabilities: named[sdk.Capability](r.GetCapabilities()),
		Limits:       named[sdk.Limit](r.GetLimits()),
		Workspaces:   named[sdk.WorkspaceMode](r.GetWorkspaces()),
		Networks:     named[sdk.NetworkMode](r.GetNetworks()),
		Formats:      named[sdk.Format](r.GetFormats()),
		Environment:  r.GetEnvironment(),
	}
}

func named[T ~string](in []string) []T {
	if len(in) == 0 {
		return nil
	}
	out := make([]T, len(in))
	for i, s := range in {
		out[i] = T(s)
	}
	return out
}

func schemaFrom(s *pb.Schema) sdk.Schema {
	var out sdk.Schema
	for _, a := range s.GetAttributes() {
		out.Attributes = append(out.Attributes, sdk.Attribute{
			Name:       a.GetName(),
			Type:       a.GetType(),
			Required:   a.GetRequired(),
			Default:    rawFrom(a.GetDefaultJson()),
			Doc:        a.GetDoc(),
			Sensitive:  a.GetSensitive(),
			Deprecated: a.GetDeprecated(),
		})
	}
	for _, b := range s.GetBlocks() {
		out.Blocks = append(out.Blocks, sdk.Block{
			Name:    b.GetName(),
			Nesting: sdk.Nesting(names.Nestings.From(b.GetNesting())),
			Min:     int(b.GetMin()),
			Max:     int(b.GetMax()),
			Doc:     b.GetDoc(),
			Schema:  schemaFrom(b.GetSchema()),
		})
	}
	return out
}

func rawFrom(b []byte) json.RawMessage {
	if len(b) == 0 {
		return nil
	}
	return json.RawMessage(b)
}

func findingsFrom(in []*pb.Finding) []sdk.Finding {
	out := make([]sdk.Finding, 0, len(in))
	for _, f := range in {
		out = append(out, sdk.Finding{
			Name:   f.GetName(),
			Status: severityFrom(f.GetStatus()),
			Detail: f.GetDetail(),
			Fix:    f.GetFix(),
		})
	}
	return out
}

// severityFrom takes a severity that it does not know for the worst.
func severityFrom(s pb.Severity) sdk.Severity {
	if n := names.Severities.From(s); n != "" {
		return sdk.Severity(n)
	}
	return sdk.SeverityError
}

func specTo(s *sdk.Spec) (*pb.Spec, error) {
	config, err := configJSON(s.Config)
	if err != nil {
		return nil, err
	}
	out := &pb.Spec{
		ConfigJson: config,
		Limits: &pb.Limits{
			TimeoutNs:   int64(s.Limits.Timeout),
			MemoryBytes: s.Limits.Memory,
			Cpus:        s.Limits.CPUs,
			Pids:        s.Limits.PIDs,
			DiskBytes:   s.Limits.Disk,
			Files:       s.Limits.Files,
		},
		Network:   string(s.Network),
		Workspace: &pb.Workspace{Source: []byte(s.Workspace.Source), Mode: string(s.Workspace.Mode)},
		Input:     []byte(s.Input),
	}
	if len(s.Rules.Allow)+len(s.Rules.Deny) > 0 {
		out.Rules = &pb.NetworkRules{Allow: s.Rules.Allow, Deny: s.Rules.Deny}
	}
	for _, m := range s.Mounts {
		out.Mounts = append(out.Mounts, &pb.Mount{Source: []byte(m.Source), Target: []byte(m.Target), ReadOnly: m.ReadOnly})
	}
	return out, nil
}

func planFrom(r *pb.PlanResponse) *sdk.Plan {
	p := &sdk.Plan{Holds: holdsFrom(r.GetHolds()), Notes: r.GetNotes()}
	for _, d := range r.GetDiagnostics() {
		p.Diagnostics = append(p.Diagnostics, sdk.Diagnostic{
			Severity: severityFrom(d.GetSeverity()),
			Summary:  d.GetSummary(),
			Detail:   d.GetDetail(),
			Path:     d.GetPath(),
			Fix:      d.GetFix(),
		})
	}
	return p
}

func holdsFrom(in []*pb.Hold) []sdk.Hold {
	var out []sdk.Hold
	for _, h := range in {
		out = append(out, sdk.Hold{
			Limit:   sdk.Limit(h.GetLimit()),
			Value:   h.GetValue(),
			Default: h.GetIsDefault(),
			HeldBy:  h.GetHeldBy(),
			Visible: h.GetVisible(),
			Reason:  h.GetReason(),
			Fix:     h.GetFix(),
		})
	}
	return out
}

func readyFrom(r *pb.Ready) sdk.Ready {
	out := sdk.Ready{
		Workspace: r.GetWorkspace(),
		Input:     r.GetInput(),
		Output:    r.GetOutput(),
		Holds:     holdsFrom(r.GetHolds()),
		Notes:     r.GetNotes(),
	}
	if l := r.GetLayers(); l != nil {
		out.Layers = &sdk.Layers{Lower: string(l.GetLower()), Upper: string(l.GetUpper()), Trusted: l.GetTrusted()}
	}
	if e := r.GetExchange(); e != nil {
		out.Exchange = &sdk.Exchange{Host: string(e.GetHost()), Guest: string(e.GetGuest())}
	}
	return out
}

func handleTo(h sdk.Handle) *pb.Handle {
	return &pb.Handle{SandboxId: h.ID, Data: h.Data, StateDir: []byte(h.StateDir)}
}

func handleFrom(h *pb.Handle) sdk.Handle {
	return sdk.Handle{ID: h.GetSandboxId(), Data: rawFrom(h.GetData())}
}

func windowTo(w *sdk.WindowSize) *pb.WindowSize {
	if w == nil {
		return nil
	}
	return &pb.WindowSize{Rows: uint32(w.Rows), Cols: uint32(w.Cols)}
}

// exitFrom bounds what a hostile or broken backend may say: a code is 0 to 255,
// no usage is negative, and a cause that is not known is the backend's fault.
func exitFrom(e *pb.ExecExited) *sdk.Exit {
	out := &sdk.Exit{
		Cause:      sdk.Cause(e.GetCause()),
		Code:       int(e.GetCode()),
		Signal:     e.GetSignal(),
		Evidence:   e.GetEvidence(),
		NotStarted: e.GetNotStarted(),
		OutputLost: e.GetOutputLost(),
		Usage: sdk.Usage{
			Wall:       time.Duration(max(0, e.GetUsage().GetWallNs())),
			User:       time.Duration(max(0, e.GetUsage().GetUserNs())),
			Sys:        time.Duration(max(0, e.GetUsage().GetSysNs())),
			PeakMemory: max(0, e.GetUsage().GetPeakMemoryBytes()),
			PIDs:       max(0, e.GetUsage().GetPids()),
		},
	}
	for _, t := range e.GetTraffic() {
		if len(out.Traffic) == sdk.MaxTraffic {
			break
		}
		out.Traffic = append(out.Traffic, sdk.Traffic{
			Name: t.GetName(), Port: int(min(t.GetPort(), 65535)), Allowed: t.GetAllowed(), Rule: t.GetRule(), Reason: t.GetReason(), Add: t.GetAdd(),
			Connections: max(0, t.GetConnections()), Sent: max(0, t.GetSent()), Received: max(0, t.GetReceived()), Secrets: t.GetSecrets(),
		})
	}
	out.TrafficMore = max(0, e.GetTrafficMore()) + int64(len(e.GetTraffic())-len(out.Traffic))
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

func changeFrom(c *pb.Change) sdk.Change {
	return sdk.Change{
		Path:    string(c.GetPath()),
		Kind:    sdk.ChangeKind(c.GetKind()),
		OldMode: fs.FileMode(c.GetOldMode()),
		NewMode: fs.FileMode(c.GetNewMode()),
		Size:    c.GetSize(),
	}
}

func argvTo(argv []string) [][]byte {
	out := make([][]byte, len(argv))
	for i, a := range argv {
		out[i] = []byte(a)
	}
	return out
}

func secretsTo(cmd *Command) (secrets []*pb.Secret, authority *pb.Authority) {
	for _, s := range cmd.Secrets {
		secret := &pb.Secret{Name: s.Name, Placeholder: s.Placeholder, Value: s.Value, Hosts: s.Hosts}
		for _, r := range s.Rules {
			secret.Rules = append(secret.Rules, &pb.SecretRule{Methods: r.Methods, Paths: r.Paths})
		}
		secrets = append(secrets, secret)
	}
	if a := cmd.Authority; a != nil {
		authority = &pb.Authority{Certificate: a.Certificate, Key: a.Key}
	}
	return secrets, authority
}

// envTo sorts, so that the same environment always gives the same bytes.
func envTo(env map[string]string) [][]byte {
	out := make([][]byte, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, []byte(k+"="+env[k]))
	}
	return out
}
