package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/network"
	"github.com/hutch-run/hutch/sdk/network/gate"
	"github.com/hutch-run/hutch/sdk/network/netns"
)

// A container with a network begins with a network namespace that has nothing but a loopback (--network=none).
// Before its first command this process makes it a filtered one: see package netns. An ordinary user has the right to
// do so in the user namespace that Podman made, and gets there by nsenter. The gate is there while this process runs
// commands in the container, which share it.

// hasNetwork says that commands have a network at all. Mode full differs from filtered in what the gate allows.
func hasNetwork(spec *sdk.Spec) bool { return spec.Network != sdk.NetworkNone && spec.Network != "" }

// gateway is the gate of a container, opened for the first of the commands that use it at once.
type gateway struct {
	mu   sync.Mutex
	gate *gate.Gate // nil while nobody uses it
	used int
}

// network serves the container's network until the returned function is called, which returns what came through since
// it was last asked.
func (s *sandbox) network(ctx context.Context, c *sdk.Command) (end func() ([]sdk.Traffic, int64), err error) {
	if !hasNetwork(&s.spec) {
		return func() ([]sdk.Traffic, int64) { return nil, 0 }, nil
	}
	w := &s.gateway
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gate != nil && len(c.Secrets) > 0 {
		if err := w.gate.SetSecrets(c.Secrets, c.Authority, c.Budget); err != nil {
			return nil, err
		}
	}
	if w.gate == nil {
		rules, err := network.Parse(s.spec.Network, s.spec.Rules)
		if err != nil {
			return nil, err
		}
		l, err := s.podman.filter(ctx, s.pid, rules.Loopback())
		if err == nil {
			w.gate, err = gate.Open(l, gate.Options{Network: s.spec.Network, Rules: s.spec.Rules, Secrets: c.Secrets,
				Authority: c.Authority, Budget: c.Budget, Names: s.dirs.names()})
		}
		if err != nil {
			return nil, sdk.Errorf(sdk.ReasonMissing, "serve the network of %s: %w", s.name(), err).WithFix("%s", netns.Fix)
		}
	}
	served, err := w.gate.Serve(c)
	if err != nil {
		if w.used == 0 {
			w.gate.Close()
			w.gate = nil
		}
		return nil, err
	}
	w.used++
	return sync.OnceValues(func() ([]sdk.Traffic, int64) {
		w.mu.Lock()
		defer w.mu.Unlock()
		served()
		if w.used--; w.used > 0 {
			return w.gate.Take()
		}
		g := w.gate
		w.gate = nil
		return g.Close()
	}), nil
}

// filter makes a filtered network of that of a container's first process, and returns its listeners. loopback are the
// ports of its loopback that are the host's.
func (p *podman) filter(ctx context.Context, pid int, loopback []int) (netns.Listeners, error) {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return netns.Listeners{}, err
	}
	defer ns.Close()
	if !p.rootless {
		return netns.Filter(int(ns.Fd()), loopback)
	}
	nsenter, err := findNsenter()
	if err != nil {
		return netns.Listeners{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return netns.Listeners{}, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return netns.Listeners{}, err
	}
	far := os.NewFile(uintptr(pair[1]), "socket")
	defer far.Close()
	defer unix.Close(pair[0])
	ctx, cancel := context.WithTimeout(ctx, filterTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, nsenter, fmt.Sprintf("-U/proc/%d/ns/user", pid), self, filterCommand)
	for _, port := range loopback {
		cmd.Args = append(cmd.Args, strconv.Itoa(port))
	}
	cmd.Dir, cmd.Env, cmd.ExtraFiles = "/", []string{}, []*os.File{ns, far}
	if out, err := cmd.CombinedOutput(); err != nil {
		return netns.Listeners{}, fmt.Errorf("enter the container's user namespace: %w: %s", err,
			strings.TrimSpace(string(out)))
	}
	return netns.Receive(pair[0])
}

// filterTime bounds the setting of rules, on a machine that is busy.
const filterTime = time.Minute

// filterCommand makes this program the one that nsenter starts: descriptor 3 is the network namespace, 4 the socket for
// the listeners; the arguments are ports of the loopback.
const filterCommand = "filter-network"

// filterNetwork is the program that nsenter starts.
func filterNetwork(args []string) error {
	loopback := make([]int, len(args))
	for i, arg := range args {
		var err error
		if loopback[i], err = strconv.Atoi(arg); err != nil {
			return err
		}
	}
	l, err := netns.Filter(3, loopback)
	if err != nil {
		return err
	}
	return netns.Send(4, l)
}

// findNsenter returns the path of nsenter, from util-linux or busybox.
func findNsenter() (string, error) {
	for _, dir := range []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin"} {
		if p := filepath.Join(dir, "nsenter"); unix.Access(p, unix.X_OK) == nil {
			return p, nil
		}
	}
	return "",
		sdk.Errorf(sdk.ReasonMissing,
			"a rootless container's network cannot be filtered: there is no nsenter").WithFix("apt-get install util-linux, " +
			"dnf install util-linux-core or apk add util-linux")
}

func (d dirs) names() string    { return filepath.Join(d.base(), "names") } // that the network's addresses mean
func (d dirs) resolver() string { return filepath.Join(d.base(), "resolv.conf") }

// resolve has the container ask the filtered network for names.
func (l *layout) resolve() error {
	if !hasNetwork(l.spec) {
		return nil
	}
	l.bind(l.dirs.resolver(), "/etc/resolv.conf", "ro")
	if l.plan {
		return nil
	}
	err := os.Remove(l.dirs.resolver())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(l.dirs.resolver(), []byte("nameserver "+netns.Resolver+"\n"), 0o444)
}
