package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hutch-run/hutch/plugins/lima/internal/limaout"
	"github.com/hutch-run/hutch/sdk"
)

// machine is one VM as this process knows it.
type machine struct {
	name string
	*limactl
	records

	mu   sync.Mutex
	link *link // nil, or perhaps dead
}

func newMachine(name string, l *limactl) *machine {
	return &machine{name: name, limactl: l, records: l.records(name)}
}

// progress reports what is going on.
type progress func(step string, done, total int64)

func (p progress) say(format string, args ...any) {
	if p != nil {
		p(fmt.Sprintf(format, args...), 0, 0)
	}
}

// steadyTime is how often something is said where nothing changes.
const steadyTime = 15 * time.Second

// steady says again and again what was said last, until over is called: the host takes a backend that is silent for
// long to hang, and how long a boot may take is ours to know.
func (p progress) steady() (_ progress, over func()) {
	if p == nil {
		return nil, func() {}
	}
	var mu sync.Mutex
	last := ""
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(steadyTime)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				mu.Lock()
				if last != "" {
					p(last, 0, 0)
				}
				mu.Unlock()
			}
		}
	}()
	return func(step string, done, total int64) {
			mu.Lock()
			defer mu.Unlock()
			last = step
			p(step, done, total)
		}, func() {
			close(stop)
			<-stopped
		}
}

// exchangeOf says which directory a VM of its own shares with the host, on both sides.
type exchangeOf struct{ host, guest string }

// plan is what a VM has to be like when it is made.
type plan struct {
	cfg       *Config
	exchange  exchangeOf
	dedicated bool
}

// connect returns a connection to the VM, which is started for it. With a plan a VM that does not exist is made;
// without one that is [sdk.ReasonNotFound]. While somebody else starts it, or works on it, say hears what that does,
// again and again: that takes as long as their own start_timeout allows, and the caller's begins afterwards.
func (m *machine) connect(ctx context.Context, p *plan, timeout time.Duration, say progress) (*link, error) {
	if l := m.live(); l != nil {
		return l, nil
	}
	unlock, err := m.lock(ctx, say)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if l := m.live(); l != nil { // another call of this process was faster
		return l, nil
	}
	report := say
	say = func(step string, done, total int64) {
		m.does(step)
		if report != nil {
			report(step, done, total)
		}
	}
	i, err := m.running(ctx, p, timeout, say)
	if err != nil {
		return nil, err
	}
	l, err := dial(ctx, i, timeout, say)
	if err != nil {
		return nil, err
	}
	if err := m.greet(ctx, i, l, p); err != nil {
		l.close()
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.link = l
	return l, nil
}

// greet notes what the guest is, and removes what it still has of sandboxes that are gone.
func (m *machine) greet(ctx context.Context, i *limaout.Instance, l *link, p *plan) error {
	l.exchange = exchangeIn(i)
	if p != nil && l.exchange == nil && p.dedicated {
		return sdk.Errorf(sdk.ReasonInternal, "the VM %s does not see %s", m.name, p.exchange.host)
	}
	if err := m.write(filepath.Join(m.dir, "guest.json"), factsOf(l.hello)); err != nil {
		return err
	}
	gone, err := m.ids("gone")
	if err != nil {
		return err
	}
	for _, id := range gone {
		if err := l.destroy(ctx, id); err != nil {
			return fmt.Errorf("remove what is left of the sandbox %s: %w", id, err)
		}
		if err := os.Remove(m.gone(id)); err != nil {
			return err
		}
	}
	return nil
}

// exchangeIn finds the directory that a VM shares with the host for sandboxes, or nil.
func exchangeIn(i *limaout.Instance) *exchangeOf {
	for _, m := range i.Config.Mounts {
		if m.Writable && (m.MountPoint == guestExchange || strings.HasPrefix(m.MountPoint, guestExchange+"/")) {
			return &exchangeOf{m.Location, m.MountPoint}
		}
	}
	return nil
}

// running makes sure that the VM runs. The caller holds the lock.
func (m *machine) running(ctx context.Context, p *plan, timeout time.Duration, say progress) (*limaout.Instance,
	error) {
	i, err := m.list(ctx, m.name)
	if err != nil {
		return nil, err
	}
	made := false
	if i == nil {
		if p == nil {
			return nil, m.noSuchVM()
		}
		if err := m.create(ctx, p, say); err != nil {
			return nil, err
		}
		made = true
	} else if p != nil {
		if err := m.fits(p); err != nil {
			return nil, err
		}
	}
	if i == nil || i.Status != limaout.StatusRunning {
		if i != nil && i.Status != limaout.StatusStopped {
			say.say("the VM %s is %s: %s", m.name, orUnknown(i.Status), strings.Join(i.Errors, "; "))
			if err := m.stop(ctx, true); err != nil {
				return nil, err
			}
		}
		if err := m.start(ctx, timeout, say); err != nil {
			// A start that failed leaves what it had started.
			after, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
			defer cancel()
			if made {
				return nil, errors.Join(err, m.delete(after))
			}
			return nil, errors.Join(err, m.stop(after, true))
		}
	}
	if i == nil || i.Status != limaout.StatusRunning { // it has a new port
		if i, err = m.list(ctx, m.name); err != nil {
			return nil, err
		}
		if i == nil {
			return nil, m.noSuchVM()
		}
	}
	return i, nil
}

// cleanTime bounds what is done after something went wrong.
const cleanTime = 2 * time.Minute

func (m *machine) noSuchVM() error {
	return sdk.Errorf(sdk.ReasonNotFound, "there is no VM %s", m.name)
}

func orUnknown(s string) string {
	if s == "" {
		return "in no state that limactl knows"
	}
	return s
}

// fits says whether a VM that exists is the one that p asks for. One that hutch did not make is whatever its maker
// wanted.
func (m *machine) fits(p *plan) error {
	v, err := m.vm()
	if v == nil || err != nil {
		return err
	}
	want := p.exchange
	want.host = v.Exchange // made for another store it serves this one as well
	file, err := render(p.cfg, want)
	if err != nil {
		return err
	}
	if fingerprint(file) == v.Fingerprint {
		return nil
	}
	return &sdk.Error{Reason: sdk.ReasonConfig, Path: "instance",
		Summary: fmt.Sprintf("the VM %s was made from other settings than this block has", m.name),
		Fix: fmt.Sprintf("give another instance, or let it be recreated: limactl delete --force %s (its sandboxes go "+
			"with it)", m.name)}
}

// create makes the VM, stopped.
func (m *machine) create(ctx context.Context, p *plan, say progress) error {
	if err := m.checkSocket(); err != nil {
		return err
	}
	if err := m.forget(); err != nil { // of one that was deleted by hand
		return err
	}
	if err := os.MkdirAll(p.exchange.host, 0o700); err != nil {
		return fmt.Errorf("make the exchange: %w", err)
	}
	// Named with its links resolved, so that it stays what it was.
	host, err := filepath.EvalSymlinks(p.exchange.host)
	if err != nil {
		return err
	}
	exchange := exchangeOf{host, p.exchange.guest}
	text, err := render(p.cfg, exchange)
	if err != nil {
		return err
	}
	for _, dir := range []string{"sandboxes", "gone"} {
		if err := os.MkdirAll(filepath.Join(m.dir, dir), 0o700); err != nil {
			return err
		}
	}
	name := filepath.Join(m.dir, "vm.yaml")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		return err
	}
	defer os.Remove(name)
	say.say("making the VM %s", m.name)
	if _, err := m.call(ctx, relay(say), "create", "--name="+m.name, name); err != nil {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
		defer cancel()
		return errors.Join(sdk.Errorf(sdk.ReasonUnavailable, "the VM %s cannot be made: %w", m.name, err), m.delete(after))
	}
	return m.write(filepath.Join(m.dir, "vm.json"), vmRecord{Fingerprint: fingerprint(text), Exchange: host})
}

// maxSocket is the longest path of a unix socket, one less on some systems.
const maxSocket = 104

// checkSocket says whether ssh's control socket can exist, which Lima finds out late.
func (m *machine) checkSocket() error {
	p := filepath.Join(m.home, m.name, "ssh.sock.0123456789abcdef")
	if len(p) < maxSocket {
		return nil
	}
	return sdk.Errorf(sdk.ReasonConfig, "LIMA_HOME is too long: the socket %s would have %d bytes, and %d are allowed", p,
		len(p), maxSocket-1).
		WithFix("set LIMA_HOME to a shorter path, or choose a shorter instance")
}

// start boots the VM, and comes back when it has booted.
func (m *machine) start(ctx context.Context, timeout time.Duration, say progress) error {
	say, over := say.steady()
	defer over()
	say.say("starting the VM %s", m.name)
	const look = "look at the log of its boot, %s, and at start_timeout"
	log := filepath.Join(m.home, m.name, "serial*.log")
	tooSlow := sdk.Errorf(sdk.ReasonUnavailable, "the VM %s did not start within %s", m.name, timeout).WithFix(look, log)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout+stopTime, tooSlow)
	defer cancel()
	_, err := m.call(ctx, relay(say), "start", fmt.Sprintf("--timeout=%s", timeout), m.name)
	var e *limaError
	if errors.As(err, &e) {
		return sdk.Errorf(sdk.ReasonUnavailable, "the VM %s does not start: %w", m.name, e).WithFix(look, log)
	}
	return err
}

// relay passes limactl's own words on.
func relay(say progress) func(level, msg string) {
	return func(level, msg string) {
		if level == "info" {
			say.say("%s", strings.TrimPrefix(msg, "[hostagent] "))
		}
	}
}

func (m *machine) stop(ctx context.Context, force bool) error {
	args := []string{"stop", m.name}
	if force {
		args = []string{"stop", "--force", m.name}
	}
	if _, err := m.call(ctx, nil, args...); err != nil {
		// Somebody else may have been faster, whom our lock does not keep away: limactl calls that an error.
		if i, lerr := m.list(ctx, m.name); lerr == nil && (i == nil || i.Status == limaout.StatusStopped) {
			return nil
		}
		return sdk.Errorf(sdk.ReasonUnavailable, "the VM %s does not stop: %w", m.name, err)
	}
	return nil
}

// delete removes the VM with everything in it, running or not. One that does not exist is success.
func (m *machine) delete(ctx context.Context) error {
	if _, err := m.call(ctx, nil, "delete", "--force", m.name); err != nil {
		return sdk.Errorf(sdk.ReasonUnavailable, "the VM %s cannot be deleted: %w", m.name, err)
	}
	return nil
}

// live is the current connection, or nil.
func (m *machine) live() *link {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.link == nil || !m.link.alive() {
		return nil
	}
	return m.link
}

// leave ends the connection, if there is one.
func (m *machine) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.link != nil {
		m.link.close()
		m.link = nil
	}
}

// How long a VM whose connection broke may still be listed as running until it counts as running.
const (
	dyingRounds = 5
	dyingRound  = 200 * time.Millisecond
)

// died says of a VM whose connection broke what has become of it; "" where there was none, or it was ended on purpose.
func (m *machine) died(ctx context.Context) string {
	m.mu.Lock()
	lost := m.link != nil && !m.link.alive()
	m.mu.Unlock()
	if !lost {
		return ""
	}
	i, err := m.list(ctx, m.name)
	for range dyingRounds { // the connection breaks before all of its processes have ended
		if err != nil || i == nil || i.Status == limaout.StatusStopped {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(dyingRound):
		}
		i, err = m.list(ctx, m.name)
	}
	switch {
	case err != nil:
		return fmt.Sprintf("the connection to the VM %s broke, and limactl does not say why: %v", m.name, err)
	case i == nil:
		return fmt.Sprintf("the VM %s was deleted, and its sandboxes with it", m.name)
	case i.Status == limaout.StatusRunning:
		return fmt.Sprintf("the connection to the VM %s broke, and it runs: it hangs, or has booted again. Its commands "+
			"have ended; the files of its sandboxes are on its disk", m.name)
	}
	return fmt.Sprintf("the VM %s died: limactl says %s. Its commands have ended; the files of its sandboxes are on "+
		"its disk", m.name, orUnknown(i.Status))
}

// exists reports whether a sandbox is known to be in the VM.
func (m *machine) exists(id string) (*boxRecord, error) {
	b := &boxRecord{Spec: sdk.Spec{Config: &Config{}}}
	err := m.read(m.box(id), b)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && b.Spec.Config == nil {
		err = fmt.Errorf("%s: it has no configuration", m.box(id))
	}
	if err == nil && b.ID != id {
		err = fmt.Errorf("%s: it is the record of the sandbox %q", m.box(id), b.ID)
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}
