package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

// Dial connects to a port of the sandbox's loopback, on a backend with [sdk.CapDial]: see [sdk.Dialer]. What comes over
// the connection is hostile. The connection ends with the sandbox, and with the backend's process.
func (s *Sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	if s.c.opt.PipeDir == "" {
		return nil, s.c.wrap("dial", errors.New("no directory for the sockets of connections was given"))
	}
	path := filepath.Join(s.c.opt.PipeDir, "c"+strconv.FormatUint(s.c.seq.n.Add(1), 36))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, s.c.wrap("dial", fmt.Errorf("make a socket for the connection: %w", err))
	}
	defer l.Close() // removes the socket
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, s.c.wrap("dial", err)
	}
	ctx, cancel := s.c.deadline(ctx, "dial", s.c.opt.Timeout)
	defer cancel()
	if _, err := s.c.rpc.Dial(ctx, &pb.DialRequest{SandboxId: s.ID(), Port: uint32(port), Socket: path}); err != nil {
		return nil, s.c.fail(ctx, "dial", err)
	}
	_ = l.SetDeadline(time.Now().Add(accepting))
	conn, err := l.AcceptUnix()
	if err != nil {
		return nil, s.c.wrap("dial", fmt.Errorf("the backend says that it has connected, and has not: %w", err))
	}
	return conn, nil
}

// accepting is how long a connection may take that the backend has made before it answered.
const accepting = time.Second
