package sdk

import (
	"context"
	"slices"
	"strconv"
	"time"

	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

// service holds the handlers of the RPCs. Those that stream are in
// service_create.go, service_exec.go and service_files.go.
type service struct {
	pb.UnimplementedBackendServer
	*Server
}

func (s *service) Describe(context.Context, *pb.DescribeRequest) (*pb.DescribeResponse, error) {
	return factsTo(&s.facts), nil
}

func (s *service) Check(ctx context.Context, _ *pb.CheckRequest) (*pb.CheckResponse, error) {
	findings, err := s.backend.Check(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.CheckResponse{Findings: findingsTo(findings)}, nil
}

func (s *service) Plan(ctx context.Context, r *pb.PlanRequest) (*pb.PlanResponse, error) {
	spec := specFrom(r.GetSpec())
	var diags []Diagnostic
	if spec.Config, diags = decodeConfig(s.config, s.fields, r.GetSpec().GetConfigJson()); spec.Config == nil && diags != nil {
		return planTo(&Plan{Diagnostics: diags}), nil // nothing to plan with
	}
	p, ok := s.backend.(Planner)
	if !ok {
		return planTo(&Plan{Holds: s.declared(&spec.Limits), Diagnostics: diags}), nil
	}
	plan, err := p.Plan(ctx, &spec)
	if err != nil {
		return nil, err
	}
	if plan == nil {
		plan = &Plan{}
	}
	plan.Diagnostics = append(diags, plan.Diagnostics...)
	return planTo(plan), nil
}

// declared is the plan of a backend that has no Planner: it holds what it said it holds.
func (s *Server) declared(l *Limits) []Hold {
	var holds []Hold
	for _, a := range l.asked() {
		h := Hold{Limit: a.limit, Value: a.value}
		if slices.Contains(s.facts.Limits, a.limit) {
			h.HeldBy = "the backend"
		} else {
			h.Reason = "backend " + strconv.Quote(s.facts.Name) + " does not hold this limit"
			h.Fix = "take the limit away, or use another backend"
		}
		holds = append(holds, h)
	}
	return holds
}

type asked struct {
	limit Limit
	value string
}

// asked lists the limits that are not zero, each with its value as text.
func (l *Limits) asked() []asked {
	var out []asked
	add := func(limit Limit, is bool, value func() string) {
		if is {
			out = append(out, asked{limit, value()})
		}
	}
	add(LimitTimeout, l.Timeout > 0, l.Timeout.String)
	add(LimitMemory, l.Memory > 0, Bytes(l.Memory).String)
	add(LimitCPUs, l.CPUs > 0, func() string { return strconv.FormatFloat(l.CPUs, 'g', -1, 64) })
	add(LimitPIDs, l.PIDs > 0, func() string { return strconv.FormatInt(l.PIDs, 10) })
	add(LimitDisk, l.Disk > 0, Bytes(l.Disk).String)
	add(LimitFiles, l.Files > 0, func() string { return strconv.FormatInt(l.Files, 10) })
	return out
}

func (s *service) Attach(ctx context.Context, r *pb.AttachRequest) (*pb.AttachResponse, error) {
	h := handleFrom(r.GetHandle())
	if !isSandboxID(h.ID) {
		return nil, Errorf(ReasonConfig, "%q is no id of a sandbox", h.ID)
	}
	if b := s.lookup(h.ID); b != nil {
		select {
		case <-b.made:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if sb, _ := b.get(); sb != nil {
			return &pb.AttachResponse{Ready: readyTo(sb.Ready())}, nil
		}
	}
	a, ok := s.backend.(Attacher)
	if !ok {
		return nil, unsupported("sandboxes that outlive the command that made them")
	}
	sb, err := a.Attach(ctx, h)
	if err != nil {
		return nil, err
	}
	s.attached(h, sb)
	return &pb.AttachResponse{Ready: readyTo(sb.Ready())}, nil
}

func unsupported(what string) *Error {
	return Errorf(ReasonUnsupported, "this backend does not support %s", what)
}

func (s *service) Inspect(ctx context.Context, r *pb.InspectRequest) (*pb.InspectResponse, error) {
	_, sb, leave, err := s.use(r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	defer leave()
	i, ok := sb.(Inspector)
	if !ok {
		return nil, unsupported("inspecting a sandbox")
	}
	st, err := i.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	details := make(map[string]string, len(st.Details))
	for k, v := range st.Details {
		details[utf8(k)] = utf8(v)
	}
	return &pb.InspectResponse{State: string(st.State), Details: details}, nil
}

func (s *service) Reset(ctx context.Context, r *pb.ResetRequest) (*pb.ResetResponse, error) {
	b, rs, release, err := takeAlone[Resetter](ctx, s, r.GetSandboxId(), "resetting a sandbox")
	if err != nil {
		return nil, err
	}
	defer release()
	if err := rs.Reset(ctx, r.GetHard()); err != nil {
		return nil, err
	}
	b.renew(s.base)
	return &pb.ResetResponse{}, nil
}

func (s *service) Destroy(ctx context.Context, r *pb.DestroyRequest) (*pb.DestroyResponse, error) {
	h := handleFrom(r.GetHandle())
	ctx = withLog(ctx, s.log.With("sandbox", h.ID))
	b := s.lookup(h.ID)
	if b == nil {
		return &pb.DestroyResponse{}, s.backend.Destroy(ctx, h)
	}
	release, err := b.alone(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	b.end(ErrCancelled)
	if err := b.idle(ctx); err != nil {
		return nil, err
	}
	// What the host has may be older than what the backend allocated last.
	if last := b.lastHandle(); last.Data != nil {
		h = last
	}
	if err := s.backend.Destroy(ctx, h); err != nil {
		return nil, err
	}
	s.forget(b)
	return &pb.DestroyResponse{}, nil
}

func (s *service) List(ctx context.Context, r *pb.ListRequest) (*pb.ListResponse, error) {
	l, ok := s.backend.(Lister)
	if !ok {
		return nil, unsupported("listing sandboxes")
	}
	handles, err := l.List(ctx, r.GetOwner())
	if err != nil {
		return nil, err
	}
	out := &pb.ListResponse{}
	for _, h := range handles {
		out.Handles = append(out.Handles, handleTo(h))
	}
	return out, nil
}

func (s *service) Drain(ctx context.Context, _ *pb.DrainRequest) (*pb.DrainResponse, error) {
	start := time.Now()
	err := s.Shutdown(ctx, ErrCancelled)
	s.log.Debug("drained", "took", time.Since(start), "error", err)
	return &pb.DrainResponse{}, err
}
