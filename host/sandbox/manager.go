package sandbox

import (
	"context"
	"errors"

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

// Options are what a Manager works with.
type Options struct {
	Store    *store.Store
	Backends run.Backends
}

// Manager knows all lasting sandboxes of a store. It is safe for concurrent use.
type Manager struct{ opt Options }

// New returns a Manager. It looks at nothing yet.
func New(o Options) *Manager { return &Manager{opt: o} }

// Create makes a lasting sandbox as d says, without running its command, and returns its record. name "" lets hutch
// choose one. When it fails nothing is left, or an intent is, which gc finishes.
func (m *Manager) Create(ctx context.Context, d *runfile.Definition, name string) (*store.SandboxInfo, error) {
	return nil, errNotYet
}

// List returns the records of all sandboxes, oldest first.
func (m *Manager) List() ([]store.SandboxInfo, error) { return nil, errNotYet }

// Sandbox is a lasting sandbox that this process is attached to and holds a lock on. Its methods may be called
// concurrently.
type Sandbox struct {
	*client.Sandbox
	// Record is what the store knows about it.
	Record store.SandboxInfo
	// Base is the path of the file that says what the workspace's source looked like when the sandbox was made; the
	// file need not exist, as for a shared workspace.
	Base string
}

// Open finds the sandbox that ref means (a name, an id, or an unambiguous prefix of an id), waits for its lock, starts
// its backend and attaches to it. Whoever opens it closes it.
//
// The error is [store.ErrNoSandbox] when there is none, [store.ErrInUse] when the lock cannot be had in time, and a
// [StoppedError] when it must be started anew first.
func (m *Manager) Open(ctx context.Context, ref string, lock Lock) (*Sandbox, error) {
	return nil, errNotYet
}

// Close leaves the sandbox, which goes on existing, and gives the lock back. A second call does nothing.
func (s *Sandbox) Close() error { return nil }

// Inspect says how the sandbox that ref means is, without changing it.
func (m *Manager) Inspect(ctx context.Context, ref string) (*store.SandboxInfo, *sdk.Status, error) {
	return nil, nil, errNotYet
}

// Reset makes the surroundings of the sandbox anew and keeps what was written to the workspace, unless hard.
func (m *Manager) Reset(ctx context.Context, ref string, hard bool) error { return errNotYet }

// Remove destroys the sandbox and its record.
func (m *Manager) Remove(ctx context.Context, ref string) error { return errNotYet }

var errNotYet = errors.New("lasting sandboxes are not implemented yet")

// StoppedError says that a sandbox exists and must be started anew before anything can happen in it.
type StoppedError struct{ Name string }

// Error implements error.
func (e *StoppedError) Error() string {
	return "the sandbox " + e.Name + " is stopped; `hutch reset " + e.Name + "` starts it anew and keeps its files"
}
