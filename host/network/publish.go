package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	rules "github.com/hutch-run/hutch/sdk/network"
	"github.com/hutch-run/hutch/sdk/network/loopback"
)

// Port is a TCP port of a sandbox's loopback that programs of this machine reach at 127.0.0.1.
type Port struct {
	Host    int // on this machine; 0 for any that is free
	Sandbox int
}

// ParsePort reads PORT, the same on both sides, or HOST:SANDBOX.
func ParsePort(text string) (Port, error) {
	host, inside, two := strings.Cut(text, ":")
	if !two {
		inside = host
	}
	p := Port{}
	var err error
	if strings.Count(text, ":") > 1 || strings.Contains(text, "/") {
		return p,
			fmt.Errorf("invalid port %q: want PORT or HOST:SANDBOX, such as 3000 or 8080:3000; it is TCP on 127.0.0.1 always",
				text)
	}
	if p.Sandbox, err = parsePort(inside, 1); err == nil {
		p.Host, err = parsePort(host, 0)
	}
	if err != nil {
		return p,
			fmt.Errorf("invalid port %q: want PORT or HOST:SANDBOX, such as 3000, 8080:3000, or 0:3000 for any free port", text)
	}
	return p, nil
}

func parsePort(text string, least uint64) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err == nil && n < least {
		err = errors.New("too small")
	}
	return int(n), err
}

// CheckPorts returns the index of the first port that is wrong, or asked for twice on this machine, with what is wrong;
// the error is nil when all are right.
func CheckPorts(ports []string) (int, error) {
	seen := map[int]bool{}
	for i, text := range ports {
		p, err := ParsePort(text)
		if err == nil && p.Host != 0 && seen[p.Host] {
			err = fmt.Errorf("port %d of this machine is published twice", p.Host)
		}
		if err != nil {
			return i, err
		}
		seen[p.Host] = true
	}
	return 0, nil
}

// String is what [ParsePort] reads.
func (p Port) String() string { return fmt.Sprintf("%d:%d", p.Host, p.Sandbox) }

// Published is a port that this machine listens on, from [Port.Listen] to [Published.Close].
type Published struct {
	Port // Host is the port that is listened on

	listener net.Listener
	serving  sync.WaitGroup
	stop     context.CancelFunc
}

// Listen listens on 127.0.0.1, for a sandbox with the network n. Connections wait until [Published.Serve].
func (p Port) Listen(n Network) (*Published, error) {
	for _, rule := range n.Allow {
		r, err := rules.ParseRule(rule)
		if err == nil && r.IsLoopback() && r.Port() == p.Sandbox {
			return nil, fmt.Errorf("port %d of the sandbox is this machine's by the rule %q: publish another one, or take the rule out",
				p.Sandbox, rule)
		}
	}
	l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", p.Host))
	if err != nil {
		var errno syscall.Errno
		if errors.As(err, &errno) {
			err = errno // the rest says the port once more
		}
		return nil, fmt.Errorf("port %d of 127.0.0.1: %w", p.Host, err)
	}
	return &Published{Port: Port{Host: l.Addr().(*net.TCPAddr).Port, Sandbox: p.Sandbox}, listener: l}, nil
}

// String says what leads where, as in 127.0.0.1:8080 -> 3000.
func (p *Published) String() string { return fmt.Sprintf("127.0.0.1:%d -> %d", p.Host, p.Sandbox) }

// Serve passes connections on to the port of the sandbox, by dial, and returns at once. One that dial refuses is reset.
func (p *Published) Serve(dial func(ctx context.Context, port int) (net.Conn, error)) {
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	p.serving.Go(func() {
		for {
			near, err := p.listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				time.Sleep(10 * time.Millisecond) // out of descriptors: some will be closed
				continue
			}
			p.serving.Go(func() {
				far, err := dial(ctx, p.Sandbox)
				if err != nil {
					_ = near.(*net.TCPConn).SetLinger(0)
					near.Close()
					return
				}
				defer context.AfterFunc(ctx, func() {
					near.Close()
					far.Close()
				})()
				loopback.Relay(near, far)
			})
		}
	})
}

// Close ends all connections, and returns when nothing is listened on.
func (p *Published) Close() {
	p.listener.Close()
	if p.stop != nil {
		p.stop()
	}
	p.serving.Wait()
}
