// Package workspace is the one way to the workspace of a sandbox: its files, what changed in it, an apply of that to
// the project, and an undo. Command line, MCP tools, web page and loops of models open a [Workspace] and render what
// it answers; they have no rules of their own.
//
// It owns what joins packages files, review and pull to a sandbox: locks, the events in the sandbox's chain, the place
// of the journals, and the choice between a workspace and a branch that was pulled. Start reading at [Open].
package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/hutch-run/hutch/host/flock"
	"github.com/hutch-run/hutch/host/pull"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/workspace/files"
	"github.com/hutch-run/hutch/host/workspace/review"
	"github.com/hutch-run/hutch/sdk"
)

// Workspace is the open workspace of a sandbox, whose lock it holds.
type Workspace struct {
	Record store.SandboxInfo

	box     files.Sandbox
	base    string // file that says what the project looked like when the sandbox was made
	changed func(store.EventType, any) error
	close   func() error
	started func() *sandbox.Sandbox // nil until the backend is needed
	alone   bool
}

// Open opens the workspace of the sandbox that ref means. With [sandbox.Shared] no backend is started where the files
// can be read on this host; an apply needs [sandbox.Exclusive]. The caller closes it.
func Open(ctx context.Context, m *sandbox.Manager, ref string, lock sandbox.Lock) (*Workspace, error) {
	if lock == sandbox.Shared {
		l, err := m.Look(ctx, ref)
		if err != nil {
			return nil, err
		}
		return &Workspace{Record: l.Record, box: l, base: l.Base(), changed: l.Changed, close: l.Close, started: l.Started},
			nil
	}
	s, err := m.Open(ctx, ref, lock)
	if err != nil {
		return nil, err
	}
	return &Workspace{
		Record: s.Record, box: s, base: s.Base, changed: s.Changed, close: s.Close, alone: true,
		started: func() *sandbox.Sandbox { return s },
	}, nil
}

// Close gives the sandbox's lock back.
func (w *Workspace) Close() error { return w.close() }

// Files are the sandbox's files. What they change is in the sandbox's event chain; changes by several processes never
// undo each other. Of o, Lock, Changed and Name are filled in. The caller closes them before the workspace.
func (w *Workspace) Files(o files.Options) (*files.Files, error) {
	o.Lock = func(ctx context.Context) (func(), error) {
		return flock.Path(ctx, filepath.Join(filepath.Dir(w.base), "files.lock"))
	}
	o.Changed = func(c files.Change) error {
		if c.Op == files.OpRemove {
			return w.changed(store.EventSandboxDelete, c)
		}
		return w.changed(store.EventSandboxWrite, c)
	}
	o.Name = w.name()
	return files.Open(w.box, o)
}

// Review is what changed in a workspace; see [review.Review].
type Review struct {
	*review.Review
	of *Workspace // nil where it is not about a sandbox
}

// Close ends the review and closes the workspace.
func (r *Review) Close() error {
	r.Review.Close()
	if r.of == nil {
		return nil
	}
	return r.of.Close()
}

// OpenReview opens a workspace and compares it with the project, or, where a branch was pushed to the sandbox and the
// workspace is a clone, what was pulled from it. The caller closes the review.
func OpenReview(ctx context.Context, m *sandbox.Manager, ref string, lock sandbox.Lock, o review.Options) (*Review,
	error) {
	w, err := Open(ctx, m, ref, lock)
	if err != nil {
		return nil, err
	}
	s, err := w.subject(ctx)
	var r *review.Review
	if err == nil {
		r, err = review.Open(ctx, s, o)
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return &Review{r, w}, nil
}

// subject is the workspace as a review looks at it. It is an error when nothing in it waits for a review.
func (w *Workspace) subject(ctx context.Context) (s review.Subject, err error) {
	of, ready := w.Record.Workspace, w.box.Ready()
	none := func(format string, args ...any) (review.Subject, error) {
		return s, fmt.Errorf("sandbox %s: there is nothing to review: %s", w.name(), fmt.Sprintf(format, args...))
	}
	switch {
	case w.Record.Push != nil:
		if s, err = pull.Subject(ctx, w.Record); err != nil {
			return s, err
		}
	case of.Source == "":
		return none("its workspace was not made from a project, as hutch create --workspace DIR makes it; " +
			"hutch cp copies files out of it")
	case of.Mode == string(sdk.WorkspaceShared):
		return none("its workspace is shared, so that all it writes is in %s at once", of.Source)
	case of.Mode == string(sdk.WorkspaceReadOnly):
		return none("its workspace is read-only")
	default:
		s = review.Subject{Name: w.name(), ID: w.Record.ID, Project: of.Source, Layers: ready.Layers, Ready: ready,
			Omits: of.Omits}
		if b := w.started(); b != nil && b.Facts().Has(sdk.CapChanges) && b.Facts().Has(sdk.CapGet) {
			s.Remote = b.Sandbox
		}
	}
	s.ReadBase = func() (*review.Base, error) { return review.ReadBase(w.base) }
	return s, nil
}

func (w *Workspace) name() string { return cmp.Or(w.Record.Name, w.Record.ID) }
