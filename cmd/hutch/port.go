package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/session"
)

// publishFlag names ports of the sandbox that programs of this machine reach.
type publishFlag struct {
	Publish []string `short:"p" sep:"none" placeholder:"[HOST:]PORT" help:"Lead port HOST of 127.0.0.1 on this machine, by default PORT, to PORT of the sandbox's loopback while the command runs; HOST 0 is any that is free. Needs no network. Repeatable."`
}

// publish adds the ports to what flags say of the network.
func (f *publishFlag) publish(n network.Network) (network.Network, error) {
	if _, err := network.CheckPorts(f.Publish); err != nil {
		return n, fmt.Errorf("--publish: %w", err)
	}
	n.Publish = f.Publish
	return n, nil
}

// published shows where ports lead.
func (s *show) published(ports []*network.Published) {
	if s.cmd.Quiet {
		return
	}
	for _, p := range ports {
		s.u.note("published: %s", p)
	}
}

type portCmd struct {
	Sandbox string   `arg:"" name:"sandbox" help:"Name or id of a sandbox, or the beginning of an id." complete:"sandbox"`
	Ports   []string `arg:"" optional:"" name:"port" help:"PORT of the sandbox's loopback, or HOST:PORT, to choose the port of this machine."`
}

// Help is the text below the synopsis.
func (*portCmd) Help() string {
	return `Leads ports of 127.0.0.1 on this machine to servers that listen on 127.0.0.1 or ::1 in a sandbox, until it is
interrupted, and prints where each leads. The sandbox gets no network by it, and other machines and sandboxes reach
nothing. The port of this machine is the same, or where that is in use any free one. Without a port, it prints the
ports that the sandbox was created with, which every hutch exec publishes.

The server runs in a hutch exec, before or after this command. On bwrap each command has a loopback; the newest that
listens on the port is connected to.

    hutch exec try -- npm run dev
    hutch port try 3000
    hutch port try 8080:80 5432`
}

func (c *portCmd) Run(ctx context.Context, u *ui) error {
	if _, err := network.CheckPorts(c.Ports); err != nil {
		return err
	}
	if len(c.Ports) == 0 {
		return c.list(u)
	}
	return withSandboxes(u, func(m *sandbox.Manager, _ *session.Session) error {
		sb, err := m.Open(ctx, c.Sandbox, sandbox.Shared)
		if err != nil {
			return err
		}
		defer func() { _ = sb.Close() }()
		if !sb.CanDial() {
			return hint(fmt.Errorf("backend %q cannot publish ports", sb.Record.Backend),
				"use a backend that can, such as bwrap or podman")
		}
		if err := sb.Unlock(); err != nil {
			return err
		}
		dial := func(ctx context.Context, port int) (net.Conn, error) {
			conn, err := sb.Dial(ctx, port)
			if err != nil && ctx.Err() == nil {
				u.note("%s", err)
			}
			return conn, err
		}
		for _, text := range c.Ports {
			p, err := network.ParsePort(text)
			if err != nil {
				return err
			}
			at, err := p.Listen(sb.Record.Network)
			if errors.Is(err, syscall.EADDRINUSE) && !strings.Contains(text, ":") {
				p.Host = 0
				at, err = p.Listen(sb.Record.Network)
			}
			if errors.Is(err, syscall.EADDRINUSE) {
				return hint(err, "hutch port %s 0:%d takes any that is free", c.Sandbox, p.Sandbox)
			}
			if err != nil {
				return err
			}
			defer at.Close()
			at.Serve(dial)
			if err := u.line("%s", at); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return nil
	})
}

// list prints the ports that the sandbox was created with.
func (c *portCmd) list(u *ui) error {
	s, done, err := openStore()
	if err != nil {
		return err
	}
	defer done()
	info, err := s.FindSandbox(c.Sandbox)
	if err != nil {
		return err
	}
	for _, text := range info.Network.Publish {
		p, err := network.ParsePort(text)
		if err != nil {
			return err
		}
		host := fmt.Sprint(p.Host)
		if p.Host == 0 {
			host = "any"
		}
		if err := u.line("127.0.0.1:%s -> %d", host, p.Sandbox); err != nil {
			return err
		}
	}
	return nil
}
