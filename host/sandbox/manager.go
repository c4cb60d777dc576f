// Package sandbox manages sandboxes that outlive a command: it makes them, finds them again by name, runs commands in
// them, resets and removes them.
//
// A persistent sandbox has a record in the store. Every process that works in it starts the backend, attaches by the
// record's handle, and leaves; nothing of hutch keeps running between two commands. Several processes may work in one
// sandbox at once: they hold its lock shared. The process that recreates or removes it holds the lock alone.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// Lock says what a caller needs of a sandbox.
type Lock int

// The kinds of locks.
const (
	// Shared is for commands and for reading and writing single files: any number of processes at once.
	Shared Lock = iota
	// Exclusive is for what must not have anything else happen in the sandbox: reset, apply, remove.
	Exclusive
)

// How long a lock is waited for. Nobody holds one alone for long; who holds it together with others may run a command
// for hours, and is not waited for.
const (
	sharedPatience = time.Minute
	alonePatience  = 2 * time.Second
	endPatience    = time.Minute // for commands that were ended to notice it
)

// Options are what a Manager works with.
type Options struct {
	// Run is how commands are run and sandboxes made; its Store and Backends are the manager's too. Keep and Name do not
	// matter.
	Run run.Options
	// Destroy removes what an intent says was made, through the backend that made it.
	Destroy func(ctx context.Context, i store.Intent) error
}

// Manager knows all persistent sandboxes of a store. It is safe for concurrent use.
type Manager struct {
	opt   Options
	store *store.Store

	surveyTime time.Duration // shorter in tests
}

// New returns a Manager. It looks at nothing yet.
func New(o Options) *Manager { return &Manager{opt: o, store: o.Run.Store, surveyTime: surveyTime} }

// Create makes a persistent sandbox as d says, with its files and dependencies but without running anything, and
// returns its record. name "" lets hutch choose one. When it fails nothing is left, or what is left is a half record
// that gc finishes. What is wrong with d is a [*result.Failure].
func (m *Manager) Create(ctx context.Context, d *runfile.Definition, name string) (*store.SandboxInfo, error) {
	_ = m.Finish(ctx) // what cannot be removed is in the way of nobody; gc says why
	o := m.opt.Run
	o.Name = name
	return run.New(o).Create(ctx, d)
}

// Finish removes the sandboxes that others half made or half removed, and those whose process is gone. It starts
// nothing where there are none.
func (m *Manager) Finish(ctx context.Context) error {
	items, err := m.store.FinishSandboxes(ctx, m.opt.Destroy)
	for _, i := range items {
		if i.Error != "" {
			err = errors.Join(err, fmt.Errorf("remove sandbox %s: %s", i.Name, i.Error))
		}
	}
	return err
}

// RemoveAllOf removes the sandboxes that must not outlive a process, with whatever runs in them.
func (m *Manager) RemoveAllOf(ctx context.Context, p store.Process) error {
	list, err := m.store.Sandboxes()
	for _, i := range list {
		if i.EndsWith == nil || *i.EndsWith != p {
			continue
		}
		if e := m.Remove(ctx, i.ID, true); !errors.Is(e, store.ErrNoSandbox) { // else somebody else removed it
			err = errors.Join(err, e)
		}
	}
	return err
}

// List returns the records of all sandboxes, oldest first.
func (m *Manager) List() ([]store.SandboxInfo, error) { return m.store.Sandboxes() }

// Reset recreates the surroundings of a sandbox and keeps what was written to the workspace, unless hard: then its
// base is taken again, too. With force, commands that run in it are ended; otherwise they are [store.ErrInUse].
func (m *Manager) Reset(ctx context.Context, ref string, hard, force bool) error {
	s, err := m.attachAlone(ctx, ref, force)
	if err != nil {
		return err
	}
	defer s.Close()
	if !s.backend.Facts.Has(sdk.CapReset) {
		return fmt.Errorf("backend %q cannot reset a sandbox", s.Record.Backend)
	}
	renew := func() error { return nil }
	if hard {
		if renew, err = m.newBase(ctx, s); err != nil {
			return err
		}
	}
	if err := s.Sandbox.Reset(ctx, hard); err != nil {
		return err
	}
	if err := renew(); err != nil {
		return err
	}
	if err := s.refurnish(ctx); err != nil {
		return err
	}
	now := time.Now().UTC()
	if err := s.rec.Changed(store.EventSandboxReset, map[string]any{"hard": hard}); err != nil {
		return err
	}
	return s.rec.Update(func(i *store.SandboxInfo) { i.Started = &now })
}

// Remove destroys a sandbox and its record. With force, commands that run in it are ended, and a record that cannot be
// read is removed too; otherwise a sandbox in use is [store.ErrInUse].
func (m *Manager) Remove(ctx context.Context, ref string, force bool) error {
	info, err := m.store.FindSandbox(ref)
	if err != nil {
		return err
	}
	if info.State == store.SandboxDamaged && !force {
		return fmt.Errorf("the record of sandbox %s is damaged: %s (-f removes it; what its backend made may stay)", info.ID,
			info.Damage)
	}
	rec, err := m.store.OpenSandbox(ctx, info.ID, true, alonePatience)
	if errors.Is(err, store.ErrInUse) && force {
		if err := m.evict(ctx, info); err != nil {
			return err
		}
		rec, err = m.store.OpenSandbox(ctx, info.ID, true, endPatience)
	}
	if err != nil {
		return about(info, err)
	}
	defer rec.Close()
	info = rec.Info()
	if info.State != store.SandboxDamaged {
		if err := rec.Update(func(i *store.SandboxInfo) { i.State = store.SandboxRemoving }); err != nil &&
			!errors.Is(err, store.ErrFull) {
			return err
		}
	}
	return about(info, rec.Remove(ctx, m.opt.Destroy))
}

// evict ends what happens in a sandbox that others use, by destroying it under their feet.
func (m *Manager) evict(ctx context.Context, info store.SandboxInfo) error {
	rec, err := m.store.OpenSandbox(ctx, info.ID, false, alonePatience)
	if err != nil {
		return about(info, err) // somebody has it alone: reset, apply or another rm
	}
	defer rec.Close()
	if rec.Info().State == store.SandboxReady {
		if err := rec.Update(func(i *store.SandboxInfo) { i.State = store.SandboxRemoving }); err != nil {
			return err
		}
	}
	return about(info, m.opt.Destroy(ctx, rec.Info().Intent()))
}

// about says which sandbox an error is about, and what to do when it is in use.
func about(i store.SandboxInfo, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrInUse):
		return &BusyError{Name: i.Name}
	}
	return fmt.Errorf("sandbox %s: %w", nameOf(i), err)
}

// nameOf is how messages name a sandbox.
func nameOf(i store.SandboxInfo) string {
	if i.Name != "" {
		return i.Name
	}
	return i.ID
}

// StoppedError says that a sandbox exists and must be started before anything can happen in it.
type StoppedError struct {
	Name      string
	Startable bool // its backend can start it; else a reset does
}

// Error implements error.
func (e *StoppedError) Error() string {
	if e.Startable {
		return "the sandbox " + e.Name + " is stopped; `hutch start " + e.Name + "` starts it and keeps its files"
	}
	return "the sandbox " + e.Name + " is stopped; `hutch reset " + e.Name + "` starts it again and keeps its files"
}

// GoneError says that there is a record of a sandbox and its backend knows nothing of it.
type GoneError struct {
	Name string
	Err  error // what the backend says
}

// Error implements error.
func (e *GoneError) Error() string {
	return "the sandbox " + e.Name + " is gone, only its record is left (`hutch rm " + e.Name + "` removes it): " +
		e.Err.Error()
}

// Unwrap returns what the backend says.
func (e *GoneError) Unwrap() error { return e.Err }

// BusyError says that the lock of a sandbox cannot be had: commands run in it, or somebody resets, applies or removes
// it. It is [store.ErrInUse].
type BusyError struct{ Name string }

// Error implements error.
func (e *BusyError) Error() string {
	return "the sandbox " + e.Name +
		" is in use: another hutch works in it (wait for it, or say -f to end what runs there)"
}

// Unwrap returns [store.ErrInUse].
func (e *BusyError) Unwrap() error { return store.ErrInUse }

// AboutPath is err for somebody who has named the path p already: what the backend says about the path alone, without
// naming it once more. Any other error stays as it is.
func AboutPath(err error, p string) error {
	var no *sdk.Error
	if !errors.As(err, &no) || no.Reason != sdk.ReasonNotFound && no.Reason != sdk.ReasonConfig {
		return err
	}
	short := *no
	short.Summary = strings.TrimPrefix(no.Summary, p+": ")
	return &short
}

// attachAlone attaches to a sandbox that nobody works in; with force, to any.
func (m *Manager) attachAlone(ctx context.Context, ref string, force bool) (*Sandbox, error) {
	s, err := m.attach(ctx, ref, Exclusive)
	if force && errors.Is(err, store.ErrInUse) {
		s, err = m.attach(ctx, ref, Shared)
	}
	return s, err
}

// Stop ends what runs in a sandbox and has its backend give back what it holds besides its files: memory, a virtual
// machine, what a service bills. With force, commands that run in it are ended; otherwise they are [store.ErrInUse]. A
// sandbox that is stopped is success.
func (m *Manager) Stop(ctx context.Context, ref string, force bool) error {
	s, err := m.attachAlone(ctx, ref, force)
	if err != nil {
		return err
	}
	defer s.Close()
	if !s.backend.Facts.Has(sdk.CapStop) {
		return fmt.Errorf("backend %q cannot stop a sandbox; `hutch rm %s` removes it", s.Record.Backend, nameOf(s.Record))
	}
	if err := s.Sandbox.Stop(ctx); err != nil {
		return about(s.Record, err)
	}
	return s.rec.Changed(store.EventSandboxStop, struct{}{})
}

// Start makes a sandbox ready that is stopped or asleep, and leaves alone what runs in one that is ready.
func (m *Manager) Start(ctx context.Context, ref string) error {
	s, err := m.attach(ctx, ref, Exclusive)
	if errors.Is(err, store.ErrInUse) { // somebody works in it
		s, err = m.attach(ctx, ref, Shared)
	}
	if err != nil {
		return err
	}
	defer s.Close()
	if !s.backend.Facts.Has(sdk.CapStop) {
		return fmt.Errorf("backend %q cannot start a sandbox", s.Record.Backend)
	}
	st, err := s.status(ctx)
	if err != nil {
		return err
	}
	switch st.State {
	case sdk.StateReady:
		return nil
	case sdk.StateGone:
		return &GoneError{Name: s.Record.Name, Err: errors.New("its backend says so")}
	}
	if err := s.wake(ctx); err != nil {
		return err
	}
	return s.rec.Changed(store.EventSandboxStart, struct{}{})
}

// wake has the backend start what the sandbox sleeps in, so that no command's time is spent on that.
func (s *Sandbox) wake(ctx context.Context) (err error) {
	if !s.backend.Facts.Has(sdk.CapStop) {
		if _, err = s.Exec(ctx, &client.Command{Argv: []string{"true"}, Dir: s.Ready().Workspace}); err != nil {
			return about(s.Record, err)
		}
		return s.refurnish(ctx)
	}
	progress, over := s.progress()
	defer over()
	if err = s.Wake(ctx, progress); err != nil {
		return about(s.Record, err)
	}
	return s.refurnish(ctx)
}

// progress reports how far something is that takes time; over ends the report.
func (s *Sandbox) progress() (tell func(step string, done, total int64), over func()) {
	to := s.m.opt.Run.Progress
	if to == nil {
		to = func(run.Progress) {}
	}
	said := run.Progress{Run: s.Record.ID, Name: nameOf(s.Record)}
	return func(step string, done, total int64) {
		p := said
		p.Step, p.Done, p.Total = step, done, total
		to(p)
	}, func() { to(said) }
}

// Get is [client.Sandbox.Get] with progress for the user.
func (s *Sandbox) Get(ctx context.Context, path string, format sdk.Format, w io.Writer) error {
	progress, over := s.progress()
	defer over()
	return s.Sandbox.Get(sdk.WithProgress(ctx, progress), path, format, w)
}

// refurnish puts back what the run file put into the sandbox's home and what its backend did not keep.
func (s *Sandbox) refurnish(ctx context.Context) error {
	return about(s.Record, run.Refurnish(ctx, s.Sandbox, s.m.store.Paths().SandboxState(s.Record.ID)))
}

// RemoveProject removes a shared project with all its files. It is refused with [store.ErrInUse] while sandboxes have
// it as their workspace, unless force: then those go first, with whatever runs in them.
func (m *Manager) RemoveProject(ctx context.Context, name string, force bool) error {
	err := m.store.RemoveProject(name)
	if !errors.Is(err, store.ErrInUse) || !force {
		return err
	}
	list, err := m.store.Sandboxes()
	if err != nil {
		return err
	}
	for _, b := range list {
		if b.Project != name {
			continue
		}
		if err := m.Remove(ctx, b.ID, true); err != nil && !errors.Is(err, store.ErrNoSandbox) {
			return fmt.Errorf("project %s: %w", name, err)
		}
	}
	return m.store.RemoveProject(name)
}

// With returns a manager with changed options for what it makes and runs.
func (m *Manager) With(change func(*run.Options)) *Manager {
	c := *m
	change(&c.opt.Run)
	return &c
}

// nonblock opens what may be a FIFO without waiting for its other end.
const nonblock = syscall.O_NONBLOCK
