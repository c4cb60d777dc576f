package sdk

import (
	"context"
	"net"

	"github.com/hutch-run/hutch/sdk/network/loopback"

	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

func (s *service) Dial(ctx context.Context, r *pb.DialRequest) (*pb.DialResponse, error) {
	b, sb, leave, err := s.use(r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	defer leave()
	d, ok := sb.(Dialer)
	if !ok {
		return nil, unsupported("connections to ports of a sandbox")
	}
	if p := r.GetPort(); p < 1 || p > 65535 {
		return nil, Errorf(ReasonConfig, "%d is not a port: want 1 to 65535", p)
	}
	ctx, cancel := b.within(withLog(ctx, s.log.With("sandbox", b.id)))
	defer cancel(nil)
	far, err := d.Dial(ctx, int(r.GetPort()))
	if err != nil {
		return nil, err
	}
	near, err := (&net.Dialer{}).DialContext(ctx, "unix", r.GetSocket())
	if err != nil {
		far.Close()
		return nil, Errorf(ReasonConfig, "the socket of the connection: %w", err)
	}
	// The connection outlives the call, but not the sandbox.
	life, end := b.within(context.WithoutCancel(ctx))
	stop := context.AfterFunc(life, func() {
		near.Close()
		far.Close()
	})
	go func() {
		defer end(nil)
		defer stop()
		loopback.Relay(near, far)
	}()
	return &pb.DialResponse{}, nil
}
