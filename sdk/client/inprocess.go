package client

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/hutch-run/hutch/sdk"
)

// maxMessage is the biggest message that is taken from a backend.
const maxMessage = 16 << 20

// DialOptions are the options for a connection to a backend, whose address means
// nothing: dial connects.
func DialOptions(dial func(context.Context) (net.Conn, error), more ...grpc.DialOption) []grpc.DialOption {
	return append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a private socket; see package host/backend
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithInitialWindowSize(4 << 20),
		grpc.WithInitialConnWindowSize(4 << 20),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
	}, more...)
}

// Target is the address to give to [grpc.NewClient] with [DialOptions].
const Target = "passthrough:///backend"

// Local is a backend inside this process.
type Local struct {
	*Client
	server *sdk.Server
	grpc   *grpc.Server
	conn   *grpc.ClientConn
}

// InProcess serves b inside this process and returns a client of it, which talks
// real gRPC over a pipe in memory. It is for tests: the backend is tested over the wire, and can be
// debugged. opt.PipeDir must be set for Exec.
func InProcess(b sdk.Backend, opt Options) (*Local, error) {
	server, err := sdk.NewServer(b)
	if err != nil {
		return nil, err
	}
	g := server.GRPC()
	conn, err := connect(g)
	if err != nil {
		return nil, err
	}
	return &Local{Client: New(conn, opt), server: server, grpc: g, conn: conn}, nil
}

// connect has g serve a connection to it.
func connect(g *grpc.Server) (*grpc.ClientConn, error) {
	l := bufconn.Listen(pipeSize)
	go func() { _ = g.Serve(l) }()
	conn, err := grpc.NewClient(Target, DialOptions(l.DialContext)...)
	if err != nil {
		g.Stop()
	}
	return conn, err
}

// Server returns the server that answers.
func (l *Local) Server() *sdk.Server { return l.server }

// Conn returns the connection that the client speaks over.
func (l *Local) Conn() grpc.ClientConnInterface { return l.conn }

// Break cuts the connection, as the death of either side would.
func (l *Local) Break() { l.conn.Close() }

// Close drains the backend and ends it. It returns what could not be destroyed.
func (l *Local) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := l.server.Shutdown(ctx, sdk.ErrCancelled)
	l.conn.Close()
	l.grpc.Stop()
	return err
}
