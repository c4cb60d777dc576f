package sandbox

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
)

// Look is a persistent sandbox for those who look at its files. Where its workspace can be read on this host, its
// backend is started when something needs it, and not before. Its methods may be called concurrently.
type Look struct {
	// Record is what the store knew about it when it was opened.
	Record store.SandboxInfo

	m     *Manager
	rec   *store.SandboxRecord // the lock; nil when open has one
	base  string
	ready sdk.Ready

	mu   sync.Mutex
	open *Sandbox // nil until something needs the backend
}

// Look finds a sandbox like [Manager.Open], with a shared lock. The caller closes it.
func (m *Manager) Look(ctx context.Context, ref string) (*Look, error) {
	info, err := m.store.FindSandbox(ref)
	if err != nil {
		return nil, err
	}
	rec, err := m.store.OpenSandbox(ctx, info.ID, false, sharedPatience)
	if err != nil {
		return nil, about(info, err)
	}
	if info, err = m.moved(rec); err != nil {
		return nil, errors.Join(err, rec.Close())
	}
	w := info.Workspace
	if info.State == store.SandboxReady && w.Path != "" && there(w.Layers) {
		return &Look{Record: info, m: m, rec: rec, base: rec.Base(),
			ready: sdk.Ready{Workspace: w.Path, Input: w.Input, Output: w.Output, Layers: (*sdk.Layers)(w.Layers)}}, nil
	}
	if err := rec.Close(); err != nil {
		return nil, err
	}
	s, err := m.Open(ctx, info.ID, Shared)
	if err != nil {
		return nil, err
	}
	return &Look{Record: s.Record, m: m, base: s.Base, ready: s.Ready(), open: s}, nil
}

// there reports whether the directories of layers are there.
func there(l *store.SandboxLayers) bool {
	if l == nil || l.Lower == "" && l.Upper == "" {
		return false
	}
	for _, dir := range append([]string{l.Lower, l.Upper}, l.Frozen...) {
		if dir == "" {
			continue
		}
		if fi, err := os.Lstat(dir); err != nil || !fi.IsDir() {
			return false
		}
	}
	return true
}

// Changed adds an event to the chain of the sandbox.
func (l *Look) Changed(typ store.EventType, data any) error {
	if l.rec != nil {
		return l.rec.Changed(typ, data)
	}
	return l.Started().Changed(typ, data)
}

// Started is the open sandbox; nil until something needed its backend.
func (l *Look) Started() *Sandbox {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// Base is that of a [Sandbox].
func (l *Look) Base() string { return l.base }

// Ready says where the workspace is. How limits are held is not part of it.
func (l *Look) Ready() sdk.Ready { return l.ready }

// attached starts the backend and attaches to the sandbox, once.
func (l *Look) attached(ctx context.Context) (*Sandbox, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open != nil {
		return l.open, nil
	}
	s, err := l.m.Open(ctx, l.Record.ID, Shared)
	if err != nil {
		return nil, err
	}
	l.open = s
	return s, nil
}

// Get is [client.Sandbox.Get].
func (l *Look) Get(ctx context.Context, path string, format sdk.Format, w io.Writer) error {
	s, err := l.attached(ctx)
	if err != nil {
		return err
	}
	return s.Get(ctx, path, format, w)
}

// Put is [client.Sandbox.Put].
func (l *Look) Put(ctx context.Context, path string, format sdk.Format, r io.Reader) error {
	s, err := l.attached(ctx)
	if err != nil {
		return err
	}
	return s.Put(ctx, path, format, r)
}

// Remove is [client.Sandbox.Remove].
func (l *Look) Remove(ctx context.Context, path string, recursive bool) error {
	s, err := l.attached(ctx)
	if err != nil {
		return err
	}
	return s.Remove(ctx, path, recursive)
}

// Close leaves the sandbox and gives its lock back.
func (l *Look) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if l.open != nil {
		err = l.open.Close()
	}
	if l.rec != nil {
		if cerr := l.rec.Close(); err == nil {
			err = cerr
		}
	}
	return err
}
