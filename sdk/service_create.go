package sdk

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"google.golang.org/grpc"

	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

type createStream = grpc.BidiStreamingServer[pb.CreateRequest, pb.CreateEvent]

// creation is one Create call: what it sends, one at a time.
type creation struct {
	stream createStream
	box    *box
	ctx    context.Context
	dir    string // for the state of the sandbox

	send      sync.Mutex
	allocated bool
}

func (s *service) Create(stream createStream) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if start == nil {
		return Errorf(ReasonConfig, "the first message of a creation must be its start")
	}
	req := &CreateRequest{
		Spec: specFrom(start.GetSpec()), ID: start.GetSandboxId(), Owner: start.GetOwner(),
		StateDir: string(start.GetStateDir()), Keep: start.GetKeep(),
	}
	var diags []Diagnostic
	req.Config, diags = decodeConfig(s.config, s.fields, start.GetSpec().GetConfigJson())
	if err := errors.Join(checkRequest(req), s.facts.admits(&req.Spec), diagnosticsError(diags)); err != nil {
		return err
	}
	b, mine, err := s.reserve(start)
	if err != nil {
		return err
	}
	ctx, cancel := b.within(withLog(stream.Context(), s.log.With("sandbox", req.ID)))
	defer cancel(nil)
	c := &creation{stream: stream, box: b, ctx: ctx, dir: req.StateDir}
	if !mine {
		return c.again(s.Server, &req.Limits)
	}
	err = s.create(c, req)
	b.leave()
	return err
}

func checkRequest(req *CreateRequest) error {
	switch {
	case !isSandboxID(req.ID):
		return Errorf(ReasonConfig, "%q is no id of a sandbox: 1 to 64 of a-z, 0-9 and -", req.ID)
	case !filepath.IsAbs(req.StateDir):
		return Errorf(ReasonConfig, "the state directory %q is not an absolute path", req.StateDir)
	}
	return nil
}

// admits refuses what Describe does not claim, before a backend can take it for
// something else: nothing ever runs in a weaker sandbox than the one asked for.
func (f *Facts) admits(spec *Spec) error {
	no := func(what string, value any) error {
		return Errorf(ReasonUnsupported, "backend %q has no %s %q", f.Name, what, value).WithFix("use another backend")
	}
	switch {
	case spec.Network != "" && !slices.Contains(f.Networks, spec.Network):
		return no("network mode", spec.Network)
	case len(spec.Rules.Allow)+len(spec.Rules.Deny) > 0 && !slices.Contains(f.Networks, NetworkFiltered):
		return Errorf(ReasonUnsupported, "backend %q holds no rules about the network", f.Name).WithFix("use another backend, or leave allow and deny out")
	case !spec.Workspace.isEmpty() && !slices.Contains(f.Workspaces, spec.Workspace.Mode):
		return no("workspace mode", spec.Workspace.Mode)
	}
	for _, a := range spec.Limits.asked() {
		if !f.Holds(a.limit) {
			return &Error{Reason: ReasonLimit, Limit: a.limit, Summary: fmt.Sprintf("backend %q does not hold the limit %s", f.Name, a.limit),
				Fix: "take the limit away, or use another backend"}
		}
	}
	return nil
}

// diagnosticsError makes one error of what is wrong with a configuration.
func diagnosticsError(diags []Diagnostic) error {
	for _, d := range diags {
		if d.Severity == SeverityError {
			return &Error{Reason: ReasonConfig, Summary: d.Summary, Detail: d.Detail, Path: d.Path}
		}
	}
	return nil
}

// create makes the sandbox of c.box. When that fails, for whatever reason and
// wherever, nothing is left: what the backend left behind is destroyed here.
func (s *service) create(c *creation, req *CreateRequest) (err error) {
	b := c.box
	var sb Sandbox
	defer func() {
		if err != nil {
			b.set(nil, err)
			s.forget(b)
			b.end(err)
		}
		close(b.made)
	}()
	req.Allocated = c.allocate
	req.Progress = c.progress
	err = guard(Log(c.ctx), func() error {
		var err error
		sb, err = s.backend.Create(c.ctx, req)
		if err == nil && sb == nil {
			err = Errorf(ReasonInternal, "the backend made no sandbox and gave no error")
		}
		return err
	})
	if err == nil && !c.allocated { // nothing exists outside this process
		err = c.allocate(b.lastHandle())
	}
	if err == nil {
		// The host may have gone while the backend worked.
		err = context.Cause(c.ctx)
	}
	if err == nil {
		// The host may use it as soon as it reads that it is ready.
		b.set(sb, nil)
		err = c.event(&pb.CreateEvent{Event: &pb.CreateEvent_Ready{Ready: readyTo(s.readyOf(sb, &req.Limits))}})
	}
	if err != nil && (c.allocated || sb != nil) {
		s.undo(c)
	}
	return err
}

// readyOf is what a sandbox is. A backend that has no Planner, and says nothing about
// limits, holds what it claims.
func (s *Server) readyOf(sb Sandbox, asked *Limits) Ready {
	r := sb.Ready()
	if _, ok := s.backend.(Planner); !ok && len(r.Holds) == 0 {
		r.Holds = s.declared(asked)
	}
	return r
}

// undo destroys what a failed creation made. The context of the call may be over.
func (s *service) undo(c *creation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), cleanupTime)
	defer cancel()
	if err := guard(Log(ctx), func() error { return s.backend.Destroy(ctx, c.box.lastHandle()) }); err != nil {
		Log(ctx).Error("what a failed creation made could not be destroyed", "error", err)
	}
}

// again answers a second Create with the same id and spec.
func (c *creation) again(s *Server, asked *Limits) error {
	select {
	case <-c.box.made:
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
	sb, err := c.box.get()
	if err != nil {
		return err
	}
	if sb == nil {
		return Errorf(ReasonNotFound, "sandbox %s is being removed", c.box.id)
	}
	if err := c.tell(c.box.lastHandle()); err != nil {
		return err
	}
	return c.event(&pb.CreateEvent{Event: &pb.CreateEvent_Ready{Ready: readyTo(s.readyOf(sb, asked))}})
}

// allocate is [CreateRequest.Allocated].
func (c *creation) allocate(h Handle) error {
	if h.ID == "" {
		h.ID = c.box.id
	}
	const most = 64 << 10
	switch {
	case h.ID != c.box.id:
		return Errorf(ReasonInternal, "the handle has the id %q of another sandbox than %s", h.ID, c.box.id)
	case len(h.Data) > most:
		return Errorf(ReasonInternal, "the handle has %d bytes, more than %d", len(h.Data), most)
	}
	h.StateDir = c.dir
	c.box.setHandle(h)
	c.allocated = true
	if err := saveHandle(c.dir, h); err != nil {
		return err
	}
	return c.tell(h)
}

// tell sends a handle, and returns once the host has it on disk.
func (c *creation) tell(h Handle) error {
	c.send.Lock()
	defer c.send.Unlock()
	if err := c.stream.Send(&pb.CreateEvent{Event: &pb.CreateEvent_Allocated{Allocated: handleTo(h)}}); err != nil {
		return c.gone(err)
	}
	m, err := c.stream.Recv()
	if err != nil {
		return c.gone(err)
	}
	if m.GetStored() == nil {
		return Errorf(ReasonConfig, "the host answered a handle with something else than stored")
	}
	return nil
}

// progress is [CreateRequest.Progress].
func (c *creation) progress(step string, done, total int64) {
	_ = c.event(&pb.CreateEvent{Event: &pb.CreateEvent_Progress{Progress: &pb.Progress{Step: utf8(step), Done: done, Total: total}}})
}

func (c *creation) event(ev *pb.CreateEvent) error {
	c.send.Lock()
	defer c.send.Unlock()
	if err := c.stream.Send(ev); err != nil {
		return c.gone(err)
	}
	return nil
}

// gone says why the stream broke.
func (c *creation) gone(err error) error {
	if cause := context.Cause(c.ctx); cause != nil {
		return cause
	}
	return fmt.Errorf("the host does not listen any more: %w", err)
}
