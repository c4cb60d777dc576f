package sdk

import (
	"context"
	"errors"
	"path"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

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
	in := newExecInput()
	cmd.Resizes, cmd.Signals = in.resizes, in.signals
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
	mu      sync.Mutex
	closed  bool
}

func newExecInput() *execInput {
	return &execInput{resizes: make(chan WindowSize, 1), signals: make(chan int, 64)}
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
			in.resize(*windowFrom(r.Resize))
		case *pb.ExecRequest_Signal:
			in.signal(int(r.Signal))
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

// signal drops a signal when the backend has not taken the last 64.
func (in *execInput) signal(n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed || n < 1 || n > 64 {
		return
	}
	select {
	case in.signals <- n:
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
	}
}
