package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hutch-run/hutch/plugins/lima/internal/limaout"
	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/guestpath"
	"github.com/hutch-run/hutch/sdk/inside"
	"github.com/hutch-run/hutch/sdk/remoteexec"
)

// sandbox is one sandbox of this process.
type sandbox struct {
	machine *machine
	cfg     *Config
	rec     boxRecord
	ready   sdk.Ready
	say     progress

	mu   sync.RWMutex // held shared while the sandbox is used, alone while it is removed or reset
	gone bool
}

// Ready implements [sdk.Sandbox].
func (s *sandbox) Ready() sdk.Ready { return s.ready }

// exchangeOf is what the VM has to share with the host.
func (s *sandbox) exchangeOf() (exchangeOf, error) {
	base, err := exchangeHome(s.rec.StateDir)
	if err != nil {
		return exchangeOf{}, err
	}
	if s.rec.Dedicated { // and so nothing of another sandbox
		return exchangeOf{filepath.Join(base, s.rec.ID), guestExchange + "/" + s.rec.ID}, nil
	}
	return exchangeOf{base, guestExchange}, nil
}

// exchangeHome is the directory of all exchanges. hutch keeps it beside the directory in which the state of its
// sandboxes lies; a state that lies elsewhere is not hutch's, and has the user's own.
func exchangeHome(stateDir string) (string, error) {
	if all := filepath.Dir(stateDir); filepath.IsAbs(stateDir) && filepath.Base(all) == "sandboxes" {
		return filepath.Join(filepath.Dir(all), "exchange"), nil
	}
	data := os.Getenv("XDG_DATA_HOME")
	if data == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", sdk.Errorf(sdk.ReasonMissing, "this user has no home directory: %w", err).WithFix("set HOME")
		}
		data = filepath.Join(home, ".local", "share")
	}
	if !filepath.IsAbs(data) {
		return "", sdk.Errorf(sdk.ReasonConfig, "XDG_DATA_HOME is %q and must be an absolute path", data)
	}
	return filepath.Join(data, "hutch", "exchange"), nil
}

// make makes the sandbox, and, if missing, the VM for it.
func (s *sandbox) make(ctx context.Context) error {
	exchange, err := s.exchangeOf()
	if err != nil {
		return err
	}
	// Noted before anything of it exists, and before the VM might be given up for having no sandbox.
	if err := s.note(ctx); err != nil {
		return err
	}
	l, err := s.machine.connect(ctx, &plan{s.cfg, exchange, s.rec.Dedicated}, s.cfg.StartTimeout, s.say)
	if err != nil {
		return err
	}
	// A VM that was made meanwhile has records of its own.
	if err := s.note(ctx); err != nil {
		return err
	}
	held := planLimits(s.rec.Spec.Limits, s.cfg, &guestFacts{Limits: l.hello.Limits, Size: l.hello.Size})
	if err := held.Err(); err != nil {
		return err
	}
	s.ready = sdk.Ready{Workspace: guestpath.Workspace + "/" + s.rec.ID, Output: guestpath.Output(true),
		Holds: held.Holds, Notes: held.Notes()}
	if s.rec.Spec.Input != "" {
		s.ready.Input = guestpath.Input(true)
	}
	if err := s.openExchange(l); err != nil {
		return err
	}
	spec := &wire.Sandbox{Limits: held.request, Network: s.rec.Spec.Network == sdk.NetworkFull,
		Input: s.rec.Spec.Input != "", Exchange: s.ready.Exchange != nil}
	if err := s.makeInGuest(ctx, l, spec); err != nil {
		return err
	}
	if s.rec.Spec.Input != "" {
		s.say.say("copying the input into the VM")
		if err := s.fill(ctx, l, wire.PartInput, s.rec.Spec.Input); err != nil {
			return err
		}
	}
	if err := s.fillWorkspace(ctx, l); err != nil {
		return err
	}
	if err := s.sync(ctx, l); err != nil {
		return err
	}
	s.rec.Ready = &s.ready
	return s.note(ctx)
}

// makeInGuest makes the sandbox's directories in the guest. It is not broken off: what came after it would find it half
// done.
func (s *sandbox) makeInGuest(ctx context.Context, l *link, spec *wire.Sandbox) error {
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancel()
	if _, err := l.ask(whole, wire.Request{Op: wire.OpCreate, ID: s.rec.ID, Sandbox: spec}, nil); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// sync has the guest write the sandbox to its disk, so that it is there after a power cut.
func (s *sandbox) sync(ctx context.Context, l *link) error {
	_, err := l.ask(ctx, wire.Request{Op: wire.OpSync, ID: s.rec.ID}, nil)
	return err
}

// openExchange makes the sandbox's own part of the exchange.
func (s *sandbox) openExchange(l *link) error {
	if l.exchange == nil {
		s.ready.Notes = append(s.ready.Notes,
			"the VM "+s.machine.name+" shares no directory with this host, so there is no exchange")
		return nil
	}
	host, guest := s.exchangeIn(l.exchange)
	if err := os.MkdirAll(host, 0o700); err != nil {
		return fmt.Errorf("make the exchange: %w", err)
	}
	s.ready.Exchange = &sdk.Exchange{Host: host, Guest: guest}
	return nil
}

// exchangeIn is the sandbox's own part of what the VM shares with the host.
func (s *sandbox) exchangeIn(e *exchangeOf) (host, guest string) {
	if strings.HasSuffix(e.guest, "/"+s.rec.ID) {
		return e.host, e.guest
	}
	return filepath.Join(e.host, s.rec.ID), e.guest + "/" + s.rec.ID
}

// note puts the sandbox's record on disk.
func (s *sandbox) note(ctx context.Context) error {
	unlock, err := s.machine.lock(ctx, s.say)
	if err != nil {
		return err
	}
	defer unlock()
	return s.machine.write(s.machine.box(s.rec.ID), s.rec)
}

// use keeps the sandbox as it is until release is called, and gives a connection to its VM.
func (s *sandbox) use(ctx context.Context) (l *link, release func(), err error) {
	return s.useWith(ctx, logged(ctx))
}

// logged is progress for a call that has nothing to tell it by: hutch shows the last line of the log with the news that
// the call takes long.
func logged(ctx context.Context) progress {
	last := ""
	return func(step string, _, _ int64) {
		if step != last {
			last = step
			sdk.Log(ctx).Info(step)
		}
	}
}

// useWith is use, and says how far a VM's start is.
func (s *sandbox) useWith(ctx context.Context, say progress) (l *link, release func(), err error) {
	s.mu.RLock()
	if err = s.goneError(); err == nil {
		err = s.takeUp(ctx, say)
	}
	if err == nil {
		if text := s.machine.died(ctx); text != "" {
			sdk.Log(ctx).Warn(text + "; it is started again now, which may take as long as its start_timeout of " +
				s.cfg.StartTimeout.String())
		}
		if l, err = s.machine.connect(ctx, nil, s.cfg.StartTimeout, say); err == nil {
			return l, s.mu.RUnlock, nil
		}
	}
	s.mu.RUnlock()
	return nil, nil, err
}

func (s *sandbox) goneError() error {
	if s.gone {
		return sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone", s.rec.ID)
	}
	return nil
}

// Inspect implements [sdk.Inspector]. Looking starts no VM.
func (s *sandbox) Inspect(ctx context.Context) (sdk.Status, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	gone := sdk.Status{State: sdk.StateGone}
	if s.gone {
		return gone, nil
	}
	stopped, err := s.stopped()
	if err != nil {
		return sdk.Status{}, err
	}
	st := sdk.Status{State: sdk.StateReady, Details: map[string]string{
		"vm": s.machine.name, "vm_status": limaout.StatusRunning, "dedicated": strconv.FormatBool(s.rec.Dedicated),
	}}
	if l := s.machine.live(); l != nil && !stopped {
		reply, err := l.ask(ctx, wire.Request{Op: wire.OpInspect, ID: s.rec.ID}, nil)
		if errors.Is(err, &sdk.Error{Reason: sdk.ReasonNotFound}) {
			return gone, nil
		}
		if err != nil {
			return sdk.Status{}, err
		}
		st.Details["commands"], st.Details["kernel"], st.Details["user"] = reply.State, l.hello.Kernel, l.hello.User
		return st, nil
	}
	i, err := s.machine.list(ctx, s.machine.name)
	if err != nil {
		return sdk.Status{}, err
	}
	if i == nil {
		return gone, nil
	}
	st.Details["vm_status"], st.Details["vm_type"] = orUnknown(i.Status), i.VMType
	if stopped || i.Status != limaout.StatusRunning {
		st.State = sdk.StateAsleep
	}
	st.Details["vm_cpus"], st.Details["vm_memory"] = strconv.Itoa(i.CPUs), sdk.Bytes(i.Memory).String()
	return st, nil
}

// Reset implements [sdk.Resetter].
func (s *sandbox) Reset(ctx context.Context, hard bool) error {
	l, release, err := s.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	if _, err := l.ask(ctx, wire.Request{Op: wire.OpReset, ID: s.rec.ID, Hard: hard}, nil); err != nil {
		return err
	}
	if !hard {
		return nil
	}
	if err := s.fillWorkspace(ctx, l); err != nil {
		return err
	}
	return s.sync(ctx, l)
}

// close ends everything and removes it. It may be called twice.
func (s *sandbox) close(ctx context.Context) error {
	if err := s.end(ctx); err != nil {
		return err
	}
	s.mu.Lock() // the commands have reported their ends
	defer s.mu.Unlock()
	s.gone = true
	return nil
}

// end removes the sandbox from the guest and from the host. Its commands end by that.
func (s *sandbox) end(ctx context.Context) error {
	m := s.machine
	rec, err := m.exists(s.rec.ID)
	if err != nil {
		return err
	}
	if rec == nil {
		return s.removeExchange(nil)
	}
	if !s.rec.Dedicated {
		if err := s.takeUp(ctx, logged(ctx)); err != nil { // else others, who stop theirs, stop the VM under our hands
			return err
		}
	}
	l, i := m.live(), (*limaout.Instance)(nil)
	if l == nil || s.rec.Dedicated {
		if i, err = m.list(ctx, m.name); err != nil {
			return err
		}
	}
	if s.rec.Dedicated {
		return s.deleteVM(ctx, i)
	}
	if l == nil && i != nil && i.Status == limaout.StatusRunning {
		if l, err = m.connect(ctx, nil, s.startTimeout(), logged(ctx)); err != nil {
			return err
		}
	}
	var exchange *exchangeOf
	switch {
	case l != nil:
		exchange = l.exchange
		if err := l.destroy(ctx, s.rec.ID); err != nil {
			return err
		}
	case i != nil:
		exchange = exchangeIn(i)
	}
	if err := s.removeExchange(exchange); err != nil {
		return err
	}
	return s.removeRecord(ctx, l != nil, i != nil)
}

// removeRecord forgets the sandbox, and stops a VM that is to be stopped with its last one. What lies on the disk of a
// VM that does not run is removed when it runs again.
func (s *sandbox) removeRecord(ctx context.Context, runs, stopped bool) error {
	m := s.machine
	unlock, err := m.lock(ctx, logged(ctx))
	if err != nil {
		return err
	}
	defer unlock()
	if !runs && stopped {
		err = os.Rename(m.box(s.rec.ID), m.records.gone(s.rec.ID))
	} else {
		err = os.Remove(m.box(s.rec.ID))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !s.rec.Stop || !runs {
		return nil
	}
	left, err := m.ids("sandboxes")
	if err != nil || len(left) > 0 {
		return err
	}
	m.leave()
	return m.stop(ctx, false)
}

func (s *sandbox) startTimeout() time.Duration {
	if s.cfg.StartTimeout > 0 {
		return s.cfg.StartTimeout
	}
	return cleanTime
}

// deleteVM removes a VM that is the sandbox's own.
func (s *sandbox) deleteVM(ctx context.Context, i *limaout.Instance) error {
	m := s.machine
	m.leave()
	unlock, err := m.lock(ctx, logged(ctx))
	if err != nil {
		return err
	}
	defer unlock()
	if i != nil {
		if err := m.delete(ctx); err != nil {
			return err
		}
	}
	var exchange *exchangeOf
	if i != nil {
		exchange = exchangeIn(i)
	}
	if err := s.removeExchange(exchange); err != nil {
		return err
	}
	// Last, because the lock is in it: who waits for that finds a sandbox that is gone.
	return os.RemoveAll(m.dir)
}

// removeExchange removes what the VM shared with the host for this sandbox, however a command left it. e is nil for a
// VM that is gone.
func (s *sandbox) removeExchange(e *exchangeOf) error {
	if e == nil && s.ready.Exchange != nil {
		return removeAll(s.ready.Exchange.Host)
	}
	if e == nil {
		made, err := s.exchangeOf()
		if err != nil {
			return err
		}
		e = &made
	}
	host, _ := s.exchangeIn(e)
	return removeAll(host)
}

func removeAll(dir string) error {
	root, err := os.OpenRoot(filepath.Dir(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return inside.RemoveAll(root, filepath.Base(dir))
}

// Changes implements [sdk.ChangeLister].
func (s *sandbox) Changes(ctx context.Context) ([]sdk.Change, error) {
	l, release, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	reply, err := l.ask(ctx, wire.Request{Op: wire.OpChanges, ID: s.rec.ID}, nil)
	if err != nil {
		return nil, err
	}
	out := remoteexec.ChangesOf(reply)
	slices.SortStableFunc(out, func(a, b sdk.Change) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// Stop implements [sdk.Stopper]. A VM may hold sandboxes of others: it is stopped once all that are in it are.
func (s *sandbox) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.goneError(); err != nil {
		return err
	}
	m := s.machine
	say := logged(ctx)
	i, err := m.list(ctx, m.name)
	if err != nil {
		return err
	}
	if i == nil {
		return m.noSuchVM()
	}
	stopped, err := s.stopped()
	if err != nil {
		return err
	}
	// A sandbox that is stopped has nothing running, and does not keep others from stopping the VM under our hands.
	if i.Status == limaout.StatusRunning && !stopped {
		l, err := m.connect(ctx, nil, s.startTimeout(), say)
		if err != nil {
			return err
		}
		// Another process may run commands in it, which this ends.
		if _, err := l.ask(ctx, wire.Request{Op: wire.OpReset, ID: s.rec.ID}, nil); err != nil {
			return err
		}
	}
	unlock, err := m.lock(ctx, say)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.rest(true); err != nil {
		return err
	}
	busy, err := m.busy()
	if err != nil || busy || i.Status != limaout.StatusRunning {
		return err
	}
	m.leave()
	return m.stop(ctx, false)
}

// Start implements [sdk.Stopper].
func (s *sandbox) Start(ctx context.Context, progress func(step string, done, total int64)) error {
	_, release, err := s.useWith(ctx, progress)
	if err != nil {
		return err
	}
	release()
	return nil
}

// rest notes whether the sandbox is stopped. The caller holds the VM's lock.
func (s *sandbox) rest(stopped bool) error {
	rec, err := s.machine.exists(s.rec.ID)
	if err != nil {
		return err
	}
	if rec == nil {
		return sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone", s.rec.ID)
	}
	if rec.Stopped == stopped {
		return nil
	}
	rec.Stopped = stopped
	return s.machine.write(s.machine.box(s.rec.ID), rec)
}

// stopped says whether the sandbox was stopped, by whichever process.
func (s *sandbox) stopped() (bool, error) {
	rec, err := s.machine.exists(s.rec.ID)
	return rec != nil && rec.Stopped, err
}

// takeUp notes that the sandbox is in use again, before its VM is looked for, so that nobody stops that any more.
func (s *sandbox) takeUp(ctx context.Context, say progress) error {
	stopped, err := s.stopped()
	if !stopped || err != nil {
		return err
	}
	unlock, err := s.machine.lock(ctx, say)
	if err != nil {
		return err
	}
	defer unlock()
	return s.rest(false)
}

// busy says whether a sandbox in the VM is not stopped. The caller holds the lock.
func (m *machine) busy() (bool, error) {
	ids, err := m.ids("sandboxes")
	if err != nil {
		return false, err
	}
	for _, id := range ids {
		rec, err := m.exists(id)
		if err != nil {
			return false, err
		}
		if rec != nil && !rec.Stopped {
			return true, nil
		}
	}
	return false, nil
}
