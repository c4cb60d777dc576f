package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"

	"connectrpc.com/connect"
	"github.com/creack/pty"

	"github.com/hutch-run/hutch/plugins/e2b/internal/api/process"
)

// processService is the RPC service process.Process.
type processService struct{ *Daemon }

func (s *processService) List(_ context.Context, _ *connect.Request[process.ListRequest]) (*connect.Response[process.ListResponse], error) {
	return connect.NewResponse(&process.ListResponse{Processes: s.processes.list()}), nil
}

func (s *processService) Start(ctx context.Context, req *connect.Request[process.StartRequest], stream *connect.ServerStream[process.StartResponse]) error {
	s.log.Debug("process start", "request", req.Msg)
	who, err := s.caller(req.Header())
	if err != nil {
		return err
	}
	r, err := s.newRunning(req.Msg, who)
	if err != nil {
		return err
	}
	listener, _ := r.listen() // before it starts, so that nothing is missed
	defer r.leave(listener)
	if err := s.processes.start(ctx, r, req.Msg); err != nil {
		return err
	}
	return follow(ctx, req.Header(), r, listener, nil, func(event *process.ProcessEvent) error {
		return stream.Send(&process.StartResponse{Event: event})
	})
}

func (s *processService) Connect(ctx context.Context, req *connect.Request[process.ConnectRequest], stream *connect.ServerStream[process.ConnectResponse]) error {
	r, err := s.processes.find(req.Msg.GetProcess(), true)
	if err != nil {
		return err
	}
	listener, end := r.listen()
	if listener != nil {
		defer r.leave(listener)
	}
	return follow(ctx, req.Header(), r, listener, end, func(event *process.ProcessEvent) error {
		return stream.Send(&process.ConnectResponse{Event: event})
	})
}

// follow reports a process until its end or until the caller is gone.
func follow(ctx context.Context, h http.Header, r *running, l *listener, end *process.ProcessEvent, send func(*process.ProcessEvent) error) error {
	start := &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: r.info.GetPid()}}
	if err := send(&process.ProcessEvent{Event: start}); err != nil {
		return connect.NewError(connect.CodeUnknown, fmt.Errorf("error sending start event: %w", err))
	}
	if end != nil {
		return send(end)
	}
	ticker := keepAlive(ctx, h)
	defer ticker.Stop()
	for {
		event := &process.ProcessEvent{Event: &process.ProcessEvent_Keepalive{Keepalive: &process.ProcessEvent_KeepAlive{}}}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		case event = <-l.events:
		}
		if _, limited := ctx.Deadline(); limited && event.GetEnd() != nil && r.timedOut.Load() {
			<-ctx.Done() // of a process whose time was over no end is told to the one who set the time
			return ctx.Err()
		}
		if err := send(event); err != nil {
			return connect.NewError(connect.CodeUnknown, fmt.Errorf("error sending event: %w", err))
		}
		if event.GetEnd() != nil {
			return nil
		}
	}
}

func (s *processService) Update(_ context.Context, req *connect.Request[process.UpdateRequest]) (*connect.Response[process.UpdateResponse], error) {
	r, err := s.processes.find(req.Msg.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	if req.Msg.Pty != nil {
		size := req.Msg.GetPty().GetSize()
		r.input.Lock()
		defer r.input.Unlock()
		if r.tty == nil {
			return nil, connect.NewError(connect.CodeInternal, errors.New("error resizing tty: tty not assigned to process"))
		}
		if err := pty.Setsize(r.tty, &pty.Winsize{Cols: uint16(size.GetCols()), Rows: uint16(size.GetRows())}); err != nil {
			return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error resizing tty: %w", err))
		}
	}
	return connect.NewResponse(&process.UpdateResponse{}), nil
}

// write gives a process input.
func (r *running) write(in *process.ProcessInput) error {
	r.input.Lock()
	defer r.input.Unlock()
	switch in := in.GetInput().(type) {
	case *process.ProcessInput_Stdin:
		if r.stdin == nil {
			return connect.NewError(connect.CodeInternal, errors.New("error writing to stdin: stdin not enabled or closed"))
		}
		if _, err := r.stdin.Write(in.Stdin); err != nil {
			return connect.NewError(connect.CodeInternal, fmt.Errorf("error writing to stdin: %w", err))
		}
	case *process.ProcessInput_Pty:
		if r.tty == nil {
			return connect.NewError(connect.CodeInternal, errors.New("error writing to tty: tty not assigned to process"))
		}
		if _, err := r.tty.Write(in.Pty); err != nil {
			return connect.NewError(connect.CodeInternal, fmt.Errorf("error writing to tty: %w", err))
		}
	default:
		return connect.NewError(connect.CodeUnimplemented, fmt.Errorf("invalid input type %T", in))
	}
	return nil
}

func (s *processService) SendInput(_ context.Context, req *connect.Request[process.SendInputRequest]) (*connect.Response[process.SendInputResponse], error) {
	s.log.Debug("process input", "request", req.Msg)
	r, err := s.processes.find(req.Msg.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	if err := r.write(req.Msg.GetInput()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&process.SendInputResponse{}), nil
}

func (s *processService) StreamInput(_ context.Context, stream *connect.ClientStream[process.StreamInputRequest]) (*connect.Response[process.StreamInputResponse], error) {
	var r *running
	for stream.Receive() {
		var err error
		switch event := stream.Msg().GetEvent().(type) {
		case *process.StreamInputRequest_Start:
			r, err = s.processes.find(event.Start.GetProcess(), false)
		case *process.StreamInputRequest_Data:
			if r == nil {
				return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("data before the start event"))
			}
			err = r.write(event.Data.GetInput())
		case *process.StreamInputRequest_Keepalive:
		default:
			err = connect.NewError(connect.CodeUnimplemented, fmt.Errorf("invalid event type %T", event))
		}
		if err != nil {
			return nil, err
		}
	}
	if err := stream.Err(); err != nil {
		return nil, connect.NewError(connect.CodeUnknown, fmt.Errorf("error streaming input: %w", err))
	}
	return connect.NewResponse(&process.StreamInputResponse{}), nil
}

func (s *processService) CloseStdin(_ context.Context, req *connect.Request[process.CloseStdinRequest]) (*connect.Response[process.CloseStdinResponse], error) {
	r, err := s.processes.find(req.Msg.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	r.input.Lock()
	defer r.input.Unlock()
	if r.tty != nil {
		return nil, connect.NewError(connect.CodeUnknown, errors.New("error closing stdin: cannot close stdin for PTY process - send Ctrl+D (0x04) instead"))
	}
	if r.stdin != nil {
		if err := r.stdin.Close(); err != nil {
			return nil, connect.NewError(connect.CodeUnknown, fmt.Errorf("error closing stdin: %w", err))
		}
		r.stdin = nil
	}
	return connect.NewResponse(&process.CloseStdinResponse{}), nil
}

func (s *processService) SendSignal(_ context.Context, req *connect.Request[process.SendSignalRequest]) (*connect.Response[process.SendSignalResponse], error) {
	r, err := s.processes.find(req.Msg.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	var sig syscall.Signal
	switch req.Msg.GetSignal() {
	case process.Signal_SIGNAL_SIGKILL:
		sig = syscall.SIGKILL
	case process.Signal_SIGNAL_SIGTERM:
		sig = syscall.SIGTERM
	default:
		return nil, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("invalid signal: %s", req.Msg.GetSignal()))
	}
	if err := r.cmd.Process.Signal(sig); err != nil {
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error sending signal: %w", err))
	}
	return connect.NewResponse(&process.SendSignalResponse{}), nil
}
