package daemon

import (
	"context"
	"errors"
	"syscall"

	"connectrpc.com/connect"
	"github.com/creack/pty"

	pb "github.com/hutch-run/hutch/plugins/e2b/internal/api/process"
)

// processService is the RPC service process.Process.
type processService struct{ *Daemon }

func (s *processService) List(context.Context, *pb.ListRequest) (*pb.ListResponse, error) {
	return &pb.ListResponse{Processes: s.processes.list()}, nil
}

func (s *processService) Start(
	ctx context.Context, req *pb.StartRequest, stream *connect.ServerStream[pb.StartResponse],
) error {
	who, err := s.caller(ctx)
	if err != nil {
		return err
	}
	r, err := s.newRunning(req, who)
	if err != nil {
		return err
	}
	listener, _ := r.listen() // before the start, so that nothing is missed
	defer r.leave(listener)
	if err := s.processes.start(ctx, r, req); err != nil {
		return err
	}
	return follow(ctx, r, listener, nil, func(event *pb.ProcessEvent) error {
		return stream.Send(&pb.StartResponse{Event: event})
	})
}

func (s *processService) Connect(
	ctx context.Context, req *pb.ConnectRequest, stream *connect.ServerStream[pb.ConnectResponse],
) error {
	r, err := s.processes.find(req.GetProcess(), true)
	if err != nil {
		return err
	}
	listener, end := r.listen()
	if listener != nil {
		defer r.leave(listener)
	}
	return follow(ctx, r, listener, end, func(event *pb.ProcessEvent) error {
		return stream.Send(&pb.ConnectResponse{Event: event})
	})
}

// follow reports a process until its end or until the client is gone. end is that of a process that has ended.
func follow(
	ctx context.Context, r *running, l *listener, end *pb.ProcessEvent, send func(*pb.ProcessEvent) error,
) error {
	start := &pb.ProcessEvent_Start{Start: &pb.ProcessEvent_StartEvent{Pid: r.info.GetPid()}}
	if err := send(&pb.ProcessEvent{Event: start}); err != nil {
		return err
	}
	if end != nil {
		return send(end)
	}
	ticker := keepAlive(requestHeader(ctx))
	defer ticker.Stop()
	for {
		event := &pb.ProcessEvent{Event: &pb.ProcessEvent_Keepalive{Keepalive: &pb.ProcessEvent_KeepAlive{}}}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		case event = <-l.events:
		}
		if _, limited := ctx.Deadline(); limited && event.GetEnd() != nil && r.timedOut.Load() {
			<-ctx.Done() // the client that set the deadline is sent no end event
			return ctx.Err()
		}
		if err := send(event); err != nil || event.GetEnd() != nil {
			return err
		}
	}
}

func (s *processService) Update(_ context.Context, req *pb.UpdateRequest) (*pb.UpdateResponse, error) {
	r, err := s.processes.find(req.GetProcess(), false)
	if err != nil || req.Pty == nil {
		return &pb.UpdateResponse{}, err
	}
	r.input.Lock()
	defer r.input.Unlock()
	if r.tty == nil {
		return nil, rpcError(connect.CodeInternal, "error resizing tty: tty not assigned to process")
	}
	if err := pty.Setsize(r.tty, winsize(req.GetPty().GetSize())); err != nil {
		return nil, rpcError(connect.CodeInternal, "error resizing tty: %w", err)
	}
	return &pb.UpdateResponse{}, nil
}

func winsize(size *pb.PTY_Size) *pty.Winsize {
	return &pty.Winsize{Cols: uint16(size.GetCols()), Rows: uint16(size.GetRows())}
}

// write gives a process input.
func (r *running) write(in *pb.ProcessInput) (err error) {
	r.input.Lock()
	defer r.input.Unlock()
	switch in := in.GetInput().(type) {
	case *pb.ProcessInput_Stdin:
		if r.stdin == nil {
			return rpcError(connect.CodeInternal, "error writing to stdin: stdin not enabled or closed")
		}
		_, err = r.stdin.Write(in.Stdin)
	case *pb.ProcessInput_Pty:
		if r.tty == nil {
			return rpcError(connect.CodeInternal, "error writing to tty: tty not assigned to process")
		}
		_, err = r.tty.Write(in.Pty)
	default:
		return rpcError(connect.CodeUnimplemented, "invalid input type %T", in)
	}
	if err != nil {
		return rpcError(connect.CodeInternal, "error writing input: %w", err)
	}
	return nil
}

func (s *processService) SendInput(_ context.Context, req *pb.SendInputRequest) (*pb.SendInputResponse, error) {
	r, err := s.processes.find(req.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	return &pb.SendInputResponse{}, r.write(req.GetInput())
}

func (s *processService) StreamInput(
	_ context.Context, stream *connect.ClientStream[pb.StreamInputRequest],
) (*pb.StreamInputResponse, error) {
	var r *running
	for stream.Receive() {
		var err error
		switch event := stream.Msg().GetEvent().(type) {
		case *pb.StreamInputRequest_Start:
			r, err = s.processes.find(event.Start.GetProcess(), false)
		case *pb.StreamInputRequest_Data:
			if r == nil {
				return nil, rpcError(connect.CodeInvalidArgument, "data before the start event")
			}
			err = r.write(event.Data.GetInput())
		case *pb.StreamInputRequest_Keepalive:
		default:
			err = rpcError(connect.CodeUnimplemented, "invalid event type %T", event)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := stream.Err(); err != nil {
		return nil, rpcError(connect.CodeUnknown, "error streaming input: %w", err)
	}
	return &pb.StreamInputResponse{}, nil
}

func (s *processService) CloseStdin(_ context.Context, req *pb.CloseStdinRequest) (*pb.CloseStdinResponse, error) {
	r, err := s.processes.find(req.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	r.input.Lock()
	defer r.input.Unlock()
	if r.tty != nil {
		return nil, connect.NewError(connect.CodeUnknown,
			errors.New("error closing stdin: cannot close stdin for PTY process - send Ctrl+D (0x04) instead"))
	}
	r.closeInput()
	return &pb.CloseStdinResponse{}, nil
}

func (s *processService) SendSignal(_ context.Context, req *pb.SendSignalRequest) (*pb.SendSignalResponse, error) {
	r, err := s.processes.find(req.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	switch sig := req.GetSignal(); sig {
	case pb.Signal_SIGNAL_SIGKILL, pb.Signal_SIGNAL_SIGTERM: // which have the kernel's numbers
		if err := r.cmd.Process.Signal(syscall.Signal(sig)); err != nil {
			return nil, rpcError(connect.CodeInternal, "error sending signal: %w", err)
		}
		return &pb.SendSignalResponse{}, nil
	default:
		return nil, rpcError(connect.CodeUnimplemented, "invalid signal: %s", sig)
	}
}
