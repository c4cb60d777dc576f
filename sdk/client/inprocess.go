package client

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

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
// real gRPC over a socket. It is for tests: the backend is tested over the wire, and can be
// debugged. opt.PipeDir must be set for Exec.
func InProcess(b sdk.Backend, opt Options) (*Local, error) {
	server, err := sdk.NewServer(b)
	if err != nil {
		return nil, err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	g := server.GRPC()
	go func() { _ = g.Serve(&once{conn: theirs, closed: make(chan struct{})}) }()
	dialed := false
	conn, err := grpc.NewClient(Target, DialOptions(func(context.Context) (net.Conn, error) {
		if dialed {
			return nil, net.ErrClosed
		}
		dialed = true
		return ours, nil
	})...)
	if err != nil {
		g.Stop()
		return nil, err
	}
	return &Local{Client: New(conn, opt), server: server, grpc: g, conn: conn}, nil
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

func socketPair() (a, b net.Conn, err error) {
	syscall.ForkLock.RLock() // no child may be born between the two steps
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	conns := make([]net.Conn, 2)
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		var cerr error
		conns[i], cerr = net.FileConn(f)
		f.Close()
		err = errors.Join(err, cerr)
	}
	if err != nil {
		return nil, nil, err
	}
	return conns[0], conns[1], nil
}

// once is a listener with one connection.
type once struct {
	mu     sync.Mutex
	conn   net.Conn
	end    sync.Once
	closed chan struct{}
}

func (l *once) Accept() (net.Conn, error) {
	l.mu.Lock()
	c := l.conn
	l.conn = nil
	l.mu.Unlock()
	if c != nil {
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *once) Close() error {
	l.end.Do(func() { close(l.closed) })
	return nil
}

func (l *once) Addr() net.Addr { return &net.UnixAddr{Name: "in-process", Net: "unix"} }
