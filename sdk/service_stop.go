package sdk

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

// takeAlone takes a sandbox of the kind T for one call alone: what happened in it has been ended, and has told its end.
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
	b, sb, leave, err := s.use(r.GetSandboxId())
	if err != nil {
		return err
	}
	defer leave()
	st, ok := sb.(Stopper)
	if !ok {
		return unsupported("starting a sandbox")
	}
	ctx, cancel := b.within(withLog(stream.Context(), s.log.With("sandbox", r.GetSandboxId())))
	defer cancel(nil)
	var send sync.Mutex
	return st.Start(ctx, func(step string, done, total int64) {
		send.Lock()
		defer send.Unlock()
		_ = stream.Send(&pb.StartEvent{Progress: &pb.Progress{Step: utf8(step), Done: done, Total: total}}) // a host that does not listen hears of the end
	})
}
