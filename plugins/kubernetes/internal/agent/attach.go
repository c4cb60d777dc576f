// Package agent is the program that the Kubernetes backend has in its pods.
//
// It is there three times. As the init container ([Init]) it waits for the input. As process 1 of the sandbox's
// container ([Serve]) it reaps, kills what is left of commands, and ends the pod when nobody comes for it. And for each plugin process there is one more, started by an exec ([Attach]), which runs that process's commands and
// ends them with its connection.
//
// All of them have the commands' uid, for a pod of the restricted standard has no right to change it. So a command may
// kill what runs it, and with that itself and the others of its sandbox. It can neither trace these processes nor open
// their descriptors, and cannot replace their program, which is mounted read-only.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/kubernetes/internal/wire"
	"github.com/hutch-run/hutch/sdk/contract"
	"github.com/hutch-run/hutch/sdk/guestfiles"
	"github.com/hutch-run/hutch/sdk/guestpath"
	"github.com/hutch-run/hutch/sdk/inside"
	"github.com/hutch-run/hutch/sdk/network/loopback"
	"github.com/hutch-run/hutch/sdk/supervise/descendants"
	"github.com/hutch-run/hutch/sdk/supervise/remote"
)

// server answers one plugin process.
type server struct {
	oom *oomScore

	mu    sync.Mutex
	box   wire.Box
	calls map[*call]bool
	over  bool // the connection has ended: nothing is started any more
}

// Attach answers a backend on the standard streams until it is gone.
func Attach(ctx context.Context) error {
	// Signals of the sandbox's commands have no effect; caught ones are no command's to inherit, as ignored ones would be.
	signal.Notify(make(chan os.Signal, 1))
	s := &server{oom: openOOMScore(), calls: map[*call]bool{}}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("become unreadable: %w", err)
	}
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) // old kernels have it not
	unix.Umask(0o022)
	session, err := yamux.Server(stdio{}, remote.Config())
	if err != nil {
		return err
	}
	defer s.end()
	for {
		var req wire.Request
		call, stream, rest, err := remote.Accept(session, &req, func() bool { return req.Op == wire.OpExec })
		switch {
		case err != nil && session.IsClosed():
			return nil // the backend is gone, which is how this ends
		case err != nil:
			return err
		case call != nil:
			go func() { call.End(s.exec(ctx, req, call)) }()
		default:
			go s.answer(ctx, stream, req, rest)
		}
	}
}

// stdio is the exec's connection.
type stdio struct{}

func (stdio) Read(p []byte) (int, error)  { return os.Stdin.Read(p) }
func (stdio) Write(p []byte) (int, error) { return os.Stdout.Write(p) }
func (stdio) Close() error                { return errors.Join(os.Stdin.Close(), os.Stdout.Close()) }

// end kills the commands of this connection and waits for their ends.
func (s *server) end() {
	s.mu.Lock()
	s.over = true
	all := make([]*call, 0, len(s.calls))
	for c := range s.calls {
		all = append(all, c)
	}
	s.mu.Unlock()
	for _, c := range all {
		c.kill()
	}
	for _, c := range all {
		<-c.gone
	}
}

// answer does what one stream asks for.
func (s *server) answer(ctx context.Context, stream *yamux.Stream, req wire.Request, rest io.Reader) {
	defer stream.Close()
	if req.Op == wire.OpDial {
		dial(stream, rest, req.Port)
		return
	}
	reply := remote.Reply{}
	var err error
	switch req.Op {
	case wire.OpHello:
		reply.State, err = s.hello(req.Box)
	case wire.OpFill:
		err = guestfiles.Fill(ctx, req.Dir, -1, -1, rest)
	case wire.OpReady:
		err = os.WriteFile(wire.Ready, nil, 0o600)
	case wire.OpSnapshot:
		err = guestfiles.SaveBase(ctx, guestpath.Workspace, wire.Base)
	case wire.OpChanges:
		reply.Changes, err = guestfiles.Changes(ctx, guestpath.Workspace, wire.Base)
	case wire.OpReset:
		err = s.reset(ctx, req.Hard)
	case wire.OpProbe:
		reply.State = strings.Join(reached(req.Targets), " ")
	default:
		err = contract.Errorf(contract.ReasonUnsupported, "there is no operation %q", req.Op)
	}
	reply.Err = remote.AsError(err)
	_ = remote.Send(stream, reply) // a backend that is gone is noticed by the session
}

func (s *server) hello(box *wire.Box) (string, error) {
	if box == nil {
		return "", contract.Errorf(contract.ReasonConfig, "the backend does not say what the sandbox is like")
	}
	s.mu.Lock()
	s.box = *box
	s.mu.Unlock()
	uids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(wire.Hello{Version: wire.Version, Path: os.Getenv("PATH"), UID: os.Getuid(),
		UIDMap: strings.Join(strings.Fields(string(uids)), " ")})
	return string(b), err
}

// reset ends all commands, those of other connections too, and empties the temporary directories; hard, also the
// workspace, the output and the home.
func (s *server) reset(ctx context.Context, hard bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := descendants.Kill(ctx, commands); err != nil {
		return err
	}
	s.mu.Lock()
	output := s.box.Output
	s.mu.Unlock()
	again := []string{"/tmp", "/var/tmp"}
	if hard {
		again = append(again, guestpath.Workspace, output, wire.Home, wire.State)
	}
	var mounted []string // what lies in the workspace and is not part of it
	if output == guestpath.Output(false) {
		mounted = []string{output, guestpath.Input(false)}
	}
	for _, dir := range again {
		if err := empty(dir, mounted); err != nil {
			return fmt.Errorf("empty %s: %w", dir, err)
		}
	}
	return nil
}

// empty removes all in a directory but what shall be kept.
func empty(dir string, keep []string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if slices.Contains(keep, filepath.Join(dir, e.Name())) {
			continue
		}
		if err := inside.RemoveAll(root, e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// dial connects a stream with a server of the sandbox.
func dial(stream *yamux.Stream, rest io.Reader, port int) {
	fd, err := loopback.Connect(port)
	if err != nil {
		_ = remote.Send(stream, remote.Reply{Err: contract.Errorf(contract.ReasonNotFound,
			"nothing listens on port %d of the sandbox: %w", port, err)})
		return
	}
	conn, err := loopback.Conn(fd)
	if err != nil {
		_ = remote.Send(stream, remote.Reply{Err: remote.AsError(err)})
		return
	}
	defer conn.Close()
	if remote.Send(stream, remote.Reply{}) != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(conn, rest)
		if c, ok := conn.(*net.TCPConn); ok {
			_ = c.CloseWrite()
		}
	})
	both.Go(func() {
		_, _ = io.Copy(stream, conn)
		_ = stream.Close()
	})
	both.Wait()
}

// Bounds of a probe: a packet that is dropped is answered by nothing, and one that is let through at once. A target
// that was reached before is not taken for closed because one packet was late.
const (
	probeTime  = 400 * time.Millisecond
	probeTries = 2
)

// reached lists the targets that a connection can be made to. One that is empty stands for the API server as pods
// reach it by their environment.
func reached(targets []string) []string {
	for i, t := range targets {
		if t == "" {
			targets[i] = net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
		}
	}
	open := make([]bool, len(targets))
	var all sync.WaitGroup
	for i, t := range targets {
		all.Go(func() {
			for range probeTries {
				if conn, err := net.DialTimeout("tcp", t, probeTime); err == nil {
					conn.Close()
					open[i] = true
					return
				}
			}
		})
	}
	all.Wait()
	var out []string
	for i, t := range targets {
		if open[i] {
			out = append(out, t)
		}
	}
	return out
}
