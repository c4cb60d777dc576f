package sdk

import (
	"context"
	"errors"
	"os"
	"time"

	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
	"github.com/hutch-run/hutch/sdk/supervise"
)

// openTime bounds the opening of the FIFOs. The host has its ends open already, so
// that none blocks; a host that has not must not hold us up for ever.
const openTime = 10 * time.Second

var errNotOpen = errors.New("the host has not opened its end")

// openStreams opens our ends of the FIFOs; a stream without one is /dev/null.
func openStreams(ctx context.Context, start *pb.ExecStart) (*supervise.Streams, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, openTime, errNotOpen)
	defer cancel()
	s, err := supervise.OpenStreams(ctx, start.GetStdin(), start.GetStdout(), start.GetStderr())
	if err != nil {
		return nil, Errorf(ReasonConfig, "the streams of the command: %w", err)
	}
	for _, f := range []**os.File{&s.Stdin, &s.Stdout, &s.Stderr} {
		if *f != nil {
			continue
		}
		if *f, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}
