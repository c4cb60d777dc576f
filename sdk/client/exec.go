package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/internal/fields"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

// DefaultGrace is the time between SIGTERM and SIGKILL for a [Command] that sets none.
const DefaultGrace = 2 * time.Second

// Command is one command to run in a [Sandbox].
type Command struct {
	Argv []string
	Env  map[string]string // the whole environment
	Dir  string            // absolute path inside the sandbox
	User string            // "" is the backend's default

	// Stdin is copied to the command until it ends; nil is an empty input. A Read
	// that blocks does not hold up [Exec.Wait], but goes on until it returns.
	Stdin io.Reader
	// Stdout and Stderr get the bytes as they come, at most 256 KiB at a time and
	// from one goroutine each; nil discards them. A slow one holds the command up. One that
	// returns an error gets no more, and the command gets SIGPIPE when it writes.
	// With a TTY all comes on Stdout.
	Stdout, Stderr io.Writer

	TTY     *sdk.WindowSize // nil: no terminal
	Timeout time.Duration   // 0: none
	Grace   time.Duration   // between SIGTERM and SIGKILL; 0 means DefaultGrace

	// Secrets are what the command has placeholders of, on a backend with [sdk.CapSecrets]; Authority signs for their
	// hosts. See [sdk.Command].
	Secrets   []sdk.Secret
	Authority *sdk.Authority

	Observe bool     // see [sdk.Command]
	Allow   []string // rules for this command alone, on a backend with [sdk.CapAllow]: see [sdk.Command]
	// Decided is called from one goroutine, at most [sdk.MaxTraffic] times, when the command asks for a destination for
	// the first time, by a backend that says so; nil is fine. Calls hold up the news of the command's end.
	Decided func(sdk.Traffic)
	// Budget bounds the requests to hosts of Secrets, on a backend with [sdk.CapBudget]; nil for no bound.
	Budget *sdk.Budget
}

// Exec is a command that was started.
type Exec struct {
	s      *Sandbox
	stream pb.Backend_ExecClient
	cancel context.CancelCauseFunc
	grace  time.Duration

	sendMu  sync.Mutex // gRPC takes one Send at a time
	started chan struct{}
	stopped chan struct{} // closed by the first Stop
	stopMu  sync.Mutex

	stdin          *fifo
	stdout, stderr *fifo
	copies         sync.WaitGroup
	outErr, errErr error // of the copies; read after copies.Wait

	ended chan struct{} // closed when the end was reported
	done  chan struct{} // closed when the output is copied too
	exit  *sdk.Exit
	err   error
}

// Exec runs a command and waits for its end: [Sandbox.Start] and [Exec.Wait].
func (s *Sandbox) Exec(ctx context.Context, cmd *Command) (*sdk.Exit, error) {
	e, err := s.Start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return e.Wait()
}

// Start starts a command and returns as soon as the backend has the request. When ctx
// ends, the command is stopped as by [Exec.Stop], with [sdk.CauseOutput] when
// the cause of ctx is [sdk.ErrOutputLimit] and with [sdk.CauseCancelled] otherwise. [Exec.Wait] must be called.
func (s *Sandbox) Start(ctx context.Context, cmd *Command) (*Exec, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, s.c.wrap("exec", err)
	}
	// The stream must outlive ctx: after ctx ended the exit is still to come.
	sctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	e := &Exec{
		s: s, cancel: cancel, grace: cmd.Grace,
		started: make(chan struct{}), stopped: make(chan struct{}),
		ended: make(chan struct{}), done: make(chan struct{}),
	}
	if e.grace == 0 {
		e.grace = DefaultGrace
	}
	fail := func(err error) (*Exec, error) {
		cancel(nil)
		e.stdin.drop()
		e.stdout.drop()
		e.stderr.drop()
		return nil, s.c.wrap("exec", err)
	}
	var err error
	if cmd.Stdin != nil {
		if e.stdin, err = s.c.seq.newFIFO(s.c.opt.PipeDir, "i"); err != nil {
			return fail(err)
		}
	}
	if cmd.Stdout != nil {
		if e.stdout, err = s.c.seq.newFIFO(s.c.opt.PipeDir, "o"); err != nil {
			return fail(err)
		}
	}
	if cmd.Stderr != nil && cmd.TTY == nil {
		if e.stderr, err = s.c.seq.newFIFO(s.c.opt.PipeDir, "e"); err != nil {
			return fail(err)
		}
	}
	if e.stream, err = s.c.rpc.Exec(sctx); err != nil {
		return fail(errorFrom(sctx, err))
	}
	start := &pb.ExecStart{
		SandboxId: s.ID(), Env: envTo(cmd.Env),
		Stdin: e.stdin.name(), Stdout: e.stdout.name(), Stderr: e.stderr.name(),
	}
	fields.Copy(start, cmd)
	start.GraceNs = int64(e.grace)
	// on io.EOF Recv has the reason
	if err := e.stream.Send(&pb.ExecRequest{Request: &pb.ExecRequest_Start{Start: start}}); err != nil &&
		!errors.Is(err, io.EOF) {
		return fail(errorFrom(sctx, err))
	}
	if e.stdout != nil {
		e.copies.Go(func() { e.outErr = e.stdout.drain(cmd.Stdout) })
	}
	if e.stderr != nil {
		e.copies.Go(func() { e.errErr = e.stderr.drain(cmd.Stderr) })
	}
	opened := make(chan struct{})
	if e.stdin != nil {
		go e.feed(cmd.Stdin, opened)
	}
	go e.receive(sctx, opened, cmd.Decided)
	go e.watch(ctx, cmd.Timeout)
	return e, nil
}

// feed copies the input, and closes the pipe once the backend holds its end of it.
func (e *Exec) feed(r io.Reader, opened <-chan struct{}) {
	_, _ = io.Copy(e.stdin, r) // a command that does not read its input is no error
	select {
	case <-opened:
	case <-e.ended:
	}
	e.stdin.Close()
}

// receive follows the events up to the end of the command.
func (e *Exec) receive(ctx context.Context, opened chan<- struct{}, decided func(sdk.Traffic)) {
	defer close(e.done)
	defer e.cancel(nil)
	var isOpen, isStarted bool
	quiet := e.s.c.silence("exec", 0)
	quiet.begin()
	defer quiet.end()
	decisions := 0
	for e.exit == nil && e.err == nil {
		ev, err := e.stream.Recv()
		if err != nil {
			e.err = errorFrom(ctx, err)
			break
		}
		switch ev := ev.GetEvent().(type) {
		case *pb.ExecEvent_Opened:
			if !isOpen {
				isOpen = true
				close(opened)
			}
		case *pb.ExecEvent_Started:
			if !isStarted {
				isStarted = true
				quiet.end() // from now on it is the command that takes its time
				close(e.started)
			}
		case *pb.ExecEvent_Decided:
			if decisions++; decided != nil && decisions <= sdk.MaxTraffic {
				decided(decidedFrom(ev.Decided))
			}
		case *pb.ExecEvent_Exited:
			e.exit = exitFrom(ev.Exited)
		}
	}
	quiet.end()
	close(e.ended)
	if e.stdin != nil {
		e.stdin.drop()
	}
	if e.stdout != nil {
		e.stdout.stop()
	}
	if e.stderr != nil {
		e.stderr.stop()
	}
	e.copies.Wait()
	e.stdout.drop()
	e.stderr.drop()
}

// watch stops the command when ctx ends, and gives the backend up when the
// command is not reported as ended in time.
func (e *Exec) watch(ctx context.Context, timeout time.Duration) {
	var overdue <-chan time.Time
	what := "its timeout of " + timeout.String()
	late := timeout + e.grace + e.s.c.opt.Slack
	if timeout > 0 {
		t := time.NewTimer(late)
		defer t.Stop()
		overdue = t.C
	}
	over, stopped := ctx.Done(), e.stopped
	for {
		select {
		case <-e.ended:
			return
		case <-over:
			over = nil
			cause := sdk.CauseCancelled
			if errors.Is(context.Cause(ctx), sdk.ErrOutputLimit) {
				cause = sdk.CauseOutput
			}
			e.Stop(cause)
		case <-stopped:
			stopped = nil
			what, late = "it was stopped", e.grace+e.s.c.opt.Slack
			t := time.NewTimer(late)
			defer t.Stop()
			overdue = t.C
		case <-overdue:
			err := &sdk.Error{Reason: sdk.ReasonUnavailable, Err: context.DeadlineExceeded,
				Summary: fmt.Sprintf("the backend did not end the command within %s after %s", e.grace+e.s.c.opt.Slack, what)}
			e.cancel(err)
			if e.s.c.opt.Overdue != nil {
				e.s.c.opt.Overdue(err)
			}
			return
		}
	}
}

// Started is closed when the command runs. It is never closed for a command that
// could not be started.
func (e *Exec) Started() <-chan struct{} { return e.started }

// Done is closed when Wait will not block.
func (e *Exec) Done() <-chan struct{} { return e.done }

// Wait waits for the end of the command, and until Stdout and Stderr of the
// command got all it wrote. The error is not nil when the backend failed. When
// only a writer of the [Command] failed, both Exit and error are there.
func (e *Exec) Wait() (*sdk.Exit, error) {
	<-e.done
	if e.err != nil {
		return nil, e.s.c.wrap("exec", e.err)
	}
	if err := errors.Join(e.outErr, e.errErr); err != nil {
		return e.exit, fmt.Errorf("writing the output of the command: %w", err)
	}
	return e.exit, nil
}

// Stop asks for the end of the command and all its descendants, and returns at
// once. cause is [sdk.CauseCancelled] or [sdk.CauseOutput]. Only the first call counts.
func (e *Exec) Stop(cause sdk.Cause) {
	e.stopMu.Lock()
	defer e.stopMu.Unlock()
	select {
	case <-e.stopped:
		return
	default:
	}
	close(e.stopped)
	_ = e.send(&pb.ExecRequest{Request: &pb.ExecRequest_End{End: &pb.ExecEnd{Cause: string(cause)}}})
}

// Resize sets the size of the command's terminal.
func (e *Exec) Resize(w sdk.WindowSize) error {
	return e.send(&pb.ExecRequest{Request: &pb.ExecRequest_Resize{Resize: windowTo(&w)}})
}

// Signal sends a signal to the command, not to its descendants.
func (e *Exec) Signal(n int) error {
	return e.send(&pb.ExecRequest{Request: &pb.ExecRequest_Signal{Signal: int32(n)}})
}

// Allow gives the command a rule more from now on, on a backend with [sdk.CapAllow]: see [sdk.Command].
func (e *Exec) Allow(rule string) error {
	return e.send(&pb.ExecRequest{Request: &pb.ExecRequest_Allow{Allow: rule}})
}

// send sends one request; a command that has ended takes none, which is no error.
func (e *Exec) send(r *pb.ExecRequest) error {
	e.sendMu.Lock()
	defer e.sendMu.Unlock()
	select {
	case <-e.ended:
		return nil
	default:
	}
	if err := e.stream.Send(r); err != nil && !errors.Is(err, io.EOF) {
		return e.s.c.wrap("exec", errorFrom(e.stream.Context(), err))
	}
	return nil
}
