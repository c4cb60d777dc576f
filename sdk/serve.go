package sdk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/hutch-run/hutch/sdk/internal/handshake"
	"github.com/hutch-run/hutch/sdk/internal/warm"
	"github.com/hutch-run/hutch/sdk/supervise"
)

// Serve runs the backend as a plugin process and does not return. It is all that
// main has to do:
//
//	func main() { sdk.Serve(&backend{}) }
//
// Started by hutch it answers calls until it is drained, or until hutch is gone:
// then it cancels every context with [ErrHostGone], destroys the sandboxes that
// are not to be kept, and exits. Started by a person it says what it is; the
// subcommands describe, cleanup and version work without a host.
func Serve(b Backend) {
	log := Logger() // holds descriptor 2, which go-plugin takes away from os.Stderr
	hosted := os.Getenv(handshake.CookieKey) == handshake.CookieValue
	keepDescriptors()
	var ends <-chan error
	if hosted {
		var err error
		if ends, err = watchHost(); err != nil {
			log.Error("the lifeline of the host does not work", "error", err)
			os.Exit(exitBroken)
		}
	}
	s, err := NewServer(b)
	if err != nil {
		fmt.Fprintf(os.Stderr, "this backend cannot be served: %v\n", err)
		os.Exit(exitBroken)
	}
	if !hosted {
		os.Exit(command(s, os.Args[1:], os.Stdout, os.Stderr))
	}
	nameProcess(filepath.Base(os.Args[0]))

	go warm.Messages() // while the server comes up and the host connects
	if p, ok := b.(Preparer); ok {
		go p.Prepare()
	}
	private := os.Getenv(handshake.EnvSocketDir)
	s.first = takeOver
	var g *grpc.Server
	ready := make(chan struct{})
	go func() {
		<-ready
		s.leave(g, ends, private)
	}()
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: plugin.HandshakeConfig{MagicCookieKey: handshake.CookieKey,
			MagicCookieValue: handshake.CookieValue},
		VersionedPlugins: map[int]plugin.PluginSet{handshake.Protocol: {handshake.PluginName: &grpcPlugin{server: s}}},
		Logger:           quiet(log),
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			g = s.newGRPC(opts)
			close(ready)
			return g
		},
	})
	// Either leave has stopped the server, or the host has, by go-plugin's own call.
	select {
	case <-ready:
	default:
		os.Exit(exitBroken) // no server came to be; go-plugin has logged why
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
	defer cancel()
	if err := s.Shutdown(ctx, ErrCancelled); err != nil {
		os.Exit(exitBroken)
	}
	os.Exit(exitOK)
}

// The exit codes of a backend process.
const (
	exitOK     = 0
	exitBroken = 1
	exitUsage  = 2
)

// grpcPlugin registers the server with go-plugin.
type grpcPlugin struct {
	plugin.NetRPCUnsupportedPlugin
	server *Server
}

func (p *grpcPlugin) GRPCServer(_ *plugin.GRPCBroker, g *grpc.Server) error {
	p.server.register(g)
	return nil
}

func (p *grpcPlugin) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("a backend has no client side")
}

// quiet is the logger for go-plugin: what it says below a warning helps nobody.
func quiet(l hclog.Logger) hclog.Logger {
	q := l.Named("plugin")
	q.SetLevel(hclog.Warn)
	return q
}

// takeOver runs when the first call comes, which is after the handshake. It
// removes the words of the handshake from the environment, so that no command
// sees them, and lets a stray print go to the log instead of go-plugin's pipe, which
// nobody empties and which would block the printer once it is full.
func takeOver() {
	for _, name := range handshake.Environment {
		os.Unsetenv(name)
	}
	os.Stdout, os.Stderr = stderr(), stderr()
}

// watchHost returns a channel that gets the reason to leave: the host is gone, or
// somebody sent SIGTERM, SIGINT, SIGHUP or SIGQUIT. From then on a log line to a host that is gone
// is an error, and not a SIGPIPE that ends the process before it has cleaned up.
func watchHost() (<-chan error, error) {
	ends := make(chan error, 1)
	tell := func(err error) {
		select {
		case ends <- err:
		default:
		}
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	go func() {
		sig := <-signals
		Logger().Warn("asked to leave", "signal", sig.String())
		tell(ErrCancelled)
	}()
	v := os.Getenv(handshake.EnvLifeline)
	if v == "" {
		return ends, nil // a host without one; its last word is Drain
	}
	fd, err := strconv.Atoi(v)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("%s=%q is no descriptor", handshake.EnvLifeline, v)
	}
	alive, _, err := supervise.Lifeline(context.Background(), uintptr(fd))
	if err != nil {
		return nil, err
	}
	context.AfterFunc(alive, func() { tell(ErrHostGone) })
	return ends, nil
}

// leave ends the process after Drain, or when there is a reason to leave.
func (s *Server) leave(g *grpc.Server, ends <-chan error, private string) {
	select {
	case <-s.drained:
		// Let the answer to Drain out.
		time.AfterFunc(time.Second, func() { os.Exit(exitOK) })
		g.GracefulStop()
	case cause := <-ends:
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
		err := s.Shutdown(ctx, cause)
		cancel()
		if errors.Is(cause, ErrHostGone) && private != "" {
			removePrivate(private) // the host would have done it
		}
		if err != nil {
			s.log.Error("not everything could be cleaned up", "error", err)
			os.Exit(exitBroken)
		}
	}
	os.Exit(exitOK)
}

// removePrivate removes the directory of the socket and the FIFOs. What it removes
// was named by the environment; so it is careful: only a directory that is ours
// alone, only what belongs there, and never a tree.
func removePrivate(dir string) {
	var st unix.Stat_t
	if unix.Lstat(dir, &st) != nil || st.Mode&(unix.S_IFMT|0o077) != unix.S_IFDIR || int(st.Uid) != os.Geteuid() {
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.Type() == fs.ModeSocket || e.Type() == fs.ModeNamedPipe {
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	os.Remove(dir) // only when it is empty now
}

// nameProcess gives the process its name back: started by the number of a
// descriptor, it would be called by that number in ps.
func nameProcess(name string) {
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0) // only for people; 15 bytes of it are kept
}
