package sdk

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/hutch-run/hutch/sdk/internal/fields"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

// service holds the handlers of the RPCs.
type service struct {
	pb.UnimplementedBackendServer
	*Server
}

func (s *service) Describe(context.Context, *pb.DescribeRequest) (*pb.DescribeResponse, error) {
	out := &pb.DescribeResponse{}
	fields.Clean(out, &s.facts)
	return out, nil
}

func (s *service) Check(ctx context.Context, _ *pb.CheckRequest) (*pb.CheckResponse, error) {
	findings, err := s.backend.Check(ctx)
	if err != nil {
		return nil, err
	}
	out := &pb.CheckResponse{}
	fields.Clean(out, &struct{ Findings []Finding }{findings})
	return out, nil
}

func (s *service) Plan(ctx context.Context, r *pb.PlanRequest) (*pb.PlanResponse, error) {
	var spec Spec
	if r.GetSpec() != nil {
		fields.Copy(&spec, r.GetSpec())
	}
	var diags []Diagnostic
	if spec.Config, diags = decodeConfig(s.config, s.fields, r.GetSpec().GetConfigJson()); spec.Config == nil &&
		diags != nil {
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
	req := &CreateRequest{}
	fields.Copy(req, start)
	if req.From != nil {
		if !s.facts.Has(CapFork) {
			return Errorf(ReasonUnsupported, "backend %q cannot fork a sandbox", s.facts.Name)
		}
		if !req.Keep {
			return Errorf(ReasonConfig, "a fork is a sandbox that is kept")
		}
	}
	if req.Ahead && (req.Keep || !s.facts.Has(CapAhead)) {
		return Errorf(ReasonUnsupported, "backend %q cannot make this sandbox ahead of its use", s.facts.Name)
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
		return Errorf(ReasonUnsupported, "backend %q holds no rules about the network",
			f.Name).WithFix("use another backend, or leave allow and deny out")
	case !spec.Workspace.isEmpty() && !slices.Contains(f.Workspaces, spec.Workspace.Mode):
		return no("workspace mode", spec.Workspace.Mode)
	}
	for _, a := range spec.Limits.asked() {
		if !f.Holds(a.limit) {
			return &Error{Reason: ReasonLimit, Limit: a.limit, Summary: fmt.Sprintf("backend %q does not hold the limit %s",
				f.Name, a.limit),
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
	_ = c.event(&pb.CreateEvent{Event: &pb.CreateEvent_Progress{Progress: &pb.Progress{Step: utf8(step), Done: done,
		Total: total}}})
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

type execStream = grpc.BidiStreamingServer[pb.ExecRequest, pb.ExecEvent]

func (s *service) Exec(stream execStream) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if start == nil {
		return Errorf(ReasonConfig, "the first message of an execution must be its start")
	}
	cmd := commandFrom(start)
	switch {
	case len(cmd.Argv) == 0 || cmd.Argv[0] == "":
		return Errorf(ReasonConfig, "there is no command to run")
	case cmd.Dir != "" && !path.IsAbs(cmd.Dir):
		return Errorf(ReasonConfig, "the directory %q is not an absolute path", cmd.Dir)
	}
	b, sb, leave, err := s.use(start.GetSandboxId())
	if err != nil {
		return err
	}
	defer leave()

	// The command ends by one of our causes, not by a bare context.Canceled.
	ctx, cancel := b.within(context.WithoutCancel(withLog(stream.Context(), s.log.With("sandbox", b.id))))
	defer cancel(nil)
	defer context.AfterFunc(stream.Context(), func() { cancel(ErrCancelled) })()

	streams, err := openStreams(ctx, start)
	if err != nil {
		return err
	}
	defer streams.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = streams.Stdin, streams.Stdout, streams.Stderr

	ev := &execEvents{stream: stream}
	if start.GetStdin() != "" {
		if err := ev.send(&pb.ExecEvent{Event: &pb.ExecEvent_Opened{Opened: &pb.ExecOpened{}}}); err != nil {
			return err
		}
	}
	cmd.Started = sync.OnceFunc(func() {
		_ = ev.send(&pb.ExecEvent{Event: &pb.ExecEvent_Started{Started: &pb.ExecStarted{}}})
	})
	sent := atomic.Int64{}
	cmd.Decided = func(t Traffic) {
		if sent.Add(1) <= MaxTraffic {
			_ = ev.send(&pb.ExecEvent{Event: &pb.ExecEvent_Decided{Decided: trafficTo(t)}})
		}
	}
	in := newExecInput()
	cmd.Resizes, cmd.Signals, cmd.Allows = in.resizes, in.signals, in.allows
	defer context.AfterFunc(ctx, in.close)()
	defer in.close()
	go in.receive(stream, cancel)

	if cmd.Timeout > 0 {
		defer time.AfterFunc(cmd.Timeout, func() { cancel(ErrTimeout) }).Stop()
	}
	began := time.Now()
	var exit *Exit
	err = guard(Log(ctx), func() error {
		var err error
		exit, err = sb.Exec(ctx, cmd)
		return err
	})
	if exit, err = settle(ctx, exit, err); err != nil {
		return err
	}
	if exit.Usage.Wall == 0 {
		exit.Usage.Wall = time.Since(began)
	}
	streams.Close() // the bytes are all in the pipes before exited is sent
	return ev.send(&pb.ExecEvent{Event: &pb.ExecEvent_Exited{Exited: exitTo(exit)}})
}

// settle decides what an Exec that came back with exit and err has to say.
func settle(ctx context.Context, exit *Exit, err error) (*Exit, error) {
	var typed *Error
	switch {
	case err != nil && ctx.Err() != nil && !errors.As(err, &typed):
		// The backend gave the end of the context back as an error.
		return &Exit{Cause: CauseOf(ctx), Code: 137, Signal: "SIGKILL", Evidence: context.Cause(ctx).Error()}, nil
	case err != nil:
		return nil, err
	case exit == nil:
		return nil, Errorf(ReasonInternal, "the backend ran the command and gave neither an end nor an error")
	}
	out := *exit
	if out.Cause == "" {
		out.Cause = CauseExited
		if cause := CauseOf(ctx); cause != "" { // whatever the command made of SIGTERM
			out.Cause = cause
		} else if out.Signal != "" {
			out.Cause = CauseSignaled
		}
	}
	return &out, nil
}

// execEvents sends the events of one Exec, one at a time.
type execEvents struct {
	mu     sync.Mutex
	stream execStream
}

func (e *execEvents) send(ev *pb.ExecEvent) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stream.Send(ev)
}

// execInput is what comes from the host while a command runs.
type execInput struct {
	resizes chan WindowSize // holds the newest size only
	signals chan int
	allows  chan string
	mu      sync.Mutex
	closed  bool
}

func newExecInput() *execInput {
	return &execInput{resizes: make(chan WindowSize, 1), signals: make(chan int, 64), allows: make(chan string, 64)}
}

// receive runs until the stream ends, which it does when Exec has returned.
func (in *execInput) receive(stream execStream, cancel context.CancelCauseFunc) {
	for {
		m, err := stream.Recv()
		if err != nil {
			return // the host has nothing more to say; if it is gone, so is the stream's context
		}
		switch r := m.GetRequest().(type) {
		case *pb.ExecRequest_Resize:
			var w WindowSize
			fields.Copy(&w, r.Resize)
			in.resize(w)
		case *pb.ExecRequest_Signal:
			if r.Signal >= 1 && r.Signal <= 64 {
				give(in, in.signals, int(r.Signal))
			}
		case *pb.ExecRequest_Allow:
			give(in, in.allows, r.Allow)
		case *pb.ExecRequest_End:
			if Cause(r.End.GetCause()) == CauseOutput {
				cancel(ErrOutputLimit)
			} else {
				cancel(ErrCancelled)
			}
		}
	}
}

func (in *execInput) resize(w WindowSize) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return
	}
	select {
	case <-in.resizes: // nobody took the last one
	default:
	}
	in.resizes <- w
}

// give passes a value on, and drops it when the backend has not taken the last 64.
func give[T any](in *execInput, to chan T, value T) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return
	}
	select {
	case to <- value:
	default:
	}
}

func (in *execInput) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.closed {
		in.closed = true
		close(in.resizes)
		close(in.signals)
		close(in.allows)
	}
}

const (
	chunkSize   = 256 << 10 // bytes of a file in one message
	changeBatch = 1000      // changes in one message
)

func (s *service) Put(stream grpc.ClientStreamingServer[pb.PutRequest, pb.PutResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	h := first.GetHeader()
	if h == nil {
		return Errorf(ReasonConfig, "the first message of a put must be its header")
	}
	ctx, p, done, err := useAs[Putter](stream.Context(), s, h.GetSandboxId(), "putting files")
	if err != nil {
		return err
	}
	defer done()
	if err := s.speaks(h); err != nil {
		return err
	}
	if err := p.Put(ctx, string(h.GetPath()), Format(h.GetFormat()), &putReader{stream: stream}); err != nil {
		return err
	}
	return stream.SendAndClose(&pb.PutResponse{})
}

func (s *Server) speaks(h *pb.TransferHeader) error {
	if !slices.Contains(s.facts.Formats, Format(h.GetFormat())) {
		return Errorf(ReasonUnsupported, "this backend does not take files as %q", h.GetFormat())
	}
	return nil
}

// putReader reads the bytes of a Put. It returns io.EOF only when the host said
// that all is sent: a connection that breaks is another error, and never a short file.
type putReader struct {
	stream grpc.ClientStreamingServer[pb.PutRequest, pb.PutResponse]
	left   []byte
	err    error
}

func (r *putReader) Read(p []byte) (int, error) {
	for len(r.left) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		m, err := r.stream.Recv()
		if err != nil {
			r.err = err
			continue
		}
		r.left = m.GetData()
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

func (s *service) Get(r *pb.GetRequest, stream grpc.ServerStreamingServer[pb.GetResponse]) error {
	h := r.GetHeader()
	ctx, g, done, err := useAs[Getter](stream.Context(), s, h.GetSandboxId(), "getting files")
	if err != nil {
		return err
	}
	defer done()
	if err := s.speaks(h); err != nil {
		return err
	}
	out := &getWriter{stream: stream}
	ctx = WithProgress(ctx, out.progress)
	// A tar writer writes many small pieces; each message costs.
	w := bufio.NewWriterSize(out, chunkSize)
	if err := g.Get(ctx, string(h.GetPath()), Format(h.GetFormat()), w); err != nil {
		return err
	}
	return w.Flush()
}

// getWriter sends the bytes of a Get, and how far it is.
type getWriter struct {
	mu     sync.Mutex
	stream grpc.ServerStreamingServer[pb.GetResponse]
}

func (w *getWriter) send(m *pb.GetResponse) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stream.Send(m)
}

// Write implements [io.Writer].
func (w *getWriter) Write(p []byte) (int, error) {
	n := 0
	for chunk := range slices.Chunk(p, chunkSize) {
		if err := w.send(&pb.GetResponse{Data: chunk}); err != nil {
			return n, err
		}
		n += len(chunk)
	}
	return n, nil
}

func (w *getWriter) progress(step string, done, total int64) {
	// a host that does not listen hears of the end
	_ = w.send(&pb.GetResponse{Progress: &pb.Progress{Step: utf8(step), Done: done, Total: total}})
}

func (s *service) Remove(ctx context.Context, r *pb.RemoveRequest) (*pb.RemoveResponse, error) {
	ctx, rm, done, err := useAs[Remover](ctx, s, r.GetSandboxId(), "removing files")
	if err != nil {
		return nil, err
	}
	defer done()
	if err := rm.Remove(ctx, string(r.GetPath()), r.GetRecursive()); err != nil {
		return nil, err
	}
	return &pb.RemoveResponse{}, nil
}

func (s *service) Changes(r *pb.ChangesRequest, stream grpc.ServerStreamingServer[pb.ChangesResponse]) error {
	ctx, c, done, err := useAs[ChangeLister](stream.Context(), s, r.GetSandboxId(), "listing changes")
	if err != nil {
		return err
	}
	defer done()
	changes, err := c.Changes(ctx)
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(changes, changeBatch) {
		m := &pb.ChangesResponse{Changes: make([]*pb.Change, len(batch))}
		for i, ch := range batch {
			m.Changes[i] = changeTo(ch)
		}
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// useAs takes a sandbox of the kind T for one call beside others, until done is called. The context ends with the
// sandbox's use, too.
func useAs[T any](
	ctx context.Context, s *service, id, what string,
) (_ context.Context, sb T, done func(), err error) {
	b, used, leave, err := s.use(id)
	if err != nil {
		return nil, sb, nil, err
	}
	sb, ok := used.(T)
	if !ok {
		leave()
		return nil, sb, nil, unsupported(what)
	}
	ctx, cancel := b.within(withLog(ctx, s.log.With("sandbox", b.id)))
	return ctx, sb, func() { cancel(nil); leave() }, nil
}

// takeAlone takes a sandbox of the kind T for one call alone: what happened in it has ended and reported that.
// It is of use again after [box.renew].
func takeAlone[T any](ctx context.Context, s *service, id, what string) (b *box, sb T, release func(), err error) {
	b, used, leave, err := s.use(id)
	if err != nil {
		return nil, sb, nil, err
	}
	leave = sync.OnceFunc(leave)
	defer leave()
	sb, ok := used.(T)
	if !ok {
		return nil, sb, nil, unsupported(what)
	}
	release, err = b.alone(ctx)
	if err != nil {
		return nil, sb, nil, err
	}
	b.end(ErrCancelled)
	leave()
	if err := b.idle(ctx); err != nil {
		release()
		return nil, sb, nil, err
	}
	return b, sb, release, nil
}

func (s *service) Stop(ctx context.Context, r *pb.StopRequest) (*pb.StopResponse, error) {
	b, st, release, err := takeAlone[Stopper](ctx, s, r.GetSandboxId(), "stopping a sandbox")
	if err != nil {
		return nil, err
	}
	defer release()
	defer b.renew(s.base) // it can be started again, and stopped once more where that went wrong
	if err := st.Stop(ctx); err != nil {
		return nil, err
	}
	return &pb.StopResponse{}, nil
}

func (s *service) Start(r *pb.StartRequest, stream grpc.ServerStreamingServer[pb.StartEvent]) error {
	ctx, st, done, err := useAs[Stopper](stream.Context(), s, r.GetSandboxId(), "starting a sandbox")
	if err != nil {
		return err
	}
	defer done()
	var send sync.Mutex
	return st.Start(ctx, func(step string, done, total int64) {
		send.Lock()
		defer send.Unlock()
		// a host that does not listen hears of the end
		_ = stream.Send(&pb.StartEvent{Progress: &pb.Progress{Step: utf8(step), Done: done, Total: total}})
	})
}
