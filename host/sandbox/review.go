package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hutch-run/hutch/host/review"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
)

// Subject is the sandbox as a review looks at it. It is an error when nothing in the workspace waits for a review.
func (s *Sandbox) Subject() (review.Subject, error) {
	r, err := subject(s.Record, s.Ready(), s.Base)
	if err == nil && s.Facts().Has(sdk.CapChanges) && s.Facts().Has(sdk.CapGet) {
		r.Remote = s.Sandbox
	}
	return r, err
}

// Subject is that of a [Sandbox]. Where the layers can be read on this host, no backend is started.
func (l *Look) Subject() (review.Subject, error) {
	if l.open != nil {
		return l.open.Subject()
	}
	return subject(l.Record, l.ready, l.base)
}

func subject(info store.SandboxInfo, ready sdk.Ready, base string) (review.Subject, error) {
	w := info.Workspace
	none := func(format string, args ...any) (review.Subject, error) {
		return review.Subject{}, fmt.Errorf("sandbox %s: there is nothing to review: %s", nameOf(info), fmt.Sprintf(format, args...))
	}
	switch {
	case w.Source == "":
		return none("its workspace was not made from a project; `hutch cp` copies files out of it")
	case w.Mode == string(sdk.WorkspaceShared):
		return none("its workspace is shared, so that all it writes is in %s at once", w.Source)
	case w.Mode == string(sdk.WorkspaceReadOnly):
		return none("its workspace is read-only")
	}
	return review.Subject{
		Name: nameOf(info), ID: info.ID, Project: w.Source, Layers: ready.Layers, Ready: ready,
		ReadBase: func() (*review.Base, error) { return review.ReadBase(base) },
	}, nil
}

// applyNote is what the chain of a sandbox says about an apply or an undo.
type applyNote struct {
	Apply   string `json:"apply"` // its id
	Project string `json:"project"`
	Paths   int    `json:"paths"`
	SHA256  string `json:"sha256"` // in hex, over all that was placed: one JSON object a line, in path order
	// Placed are as many of the first ones as fit into an event.
	Placed []json.RawMessage `json:"placed"`
}

// maxPlaced bounds the bytes of applyNote.Placed.
const maxPlaced = 32 << 10

func noteOf(a *review.Applied) (applyNote, error) {
	n := applyNote{Apply: a.ID, Project: a.Project, Paths: len(a.Placed), Placed: []json.RawMessage{}}
	sum, left := sha256.New(), maxPlaced
	for _, p := range a.Placed {
		line, err := json.Marshal(p)
		if err != nil {
			return n, err
		}
		sum.Write(append(line, '\n'))
		if left -= len(line); left >= 0 {
			n.Placed = append(n.Placed, line)
		}
	}
	n.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return n, nil
}

// Apply brings changes back to the project and notes that in the sandbox's chain. The project was changed although
// there are notes: they say what could not be written down, for the user.
func (s *Sandbox) Apply(ctx context.Context, l *review.Ledger, r *review.Review, p *review.Plan) (a *review.Applied, notes []string, err error) {
	if a, err = l.Apply(ctx, r, p); err != nil {
		return nil, nil, err
	}
	if err := s.applied(a); err != nil {
		notes = append(notes, fmt.Sprintf("the changes were applied, but not recorded in the sandbox's event chain: %s", err))
	}
	if a.NoBase != nil {
		notes = append(notes, fmt.Sprintf("the changes were applied, but the sandbox's base could not be written, so they count as changes of the project: %s", a.NoBase))
	}
	return a, notes, nil
}

func (s *Sandbox) applied(a *review.Applied) error {
	n, err := noteOf(a)
	if err != nil {
		return err
	}
	return s.rec.Changed(store.EventSandboxApply, n)
}

// Undo takes back the last apply from the sandbox that ref means, which may be removed by now, and notes that in its
// chain; see [review.Ledger.Undo]. No backend is started. The notes are those of [Sandbox.Apply].
func Undo(ctx context.Context, st *store.Store, l *review.Ledger, ref string) (a *review.Applied, notes []string, err error) {
	info, err := st.FindSandbox(ref)
	switch {
	case err == nil:
		ref = info.ID
	case !errors.Is(err, store.ErrNoSandbox):
		return nil, nil, err
	}
	if a, err = l.Undo(ctx, ref); err != nil || info.ID == "" {
		return a, nil, err
	}
	if err := undone(ctx, st, info.ID, a); err != nil {
		notes = append(notes, fmt.Sprintf("the undo cannot be recorded in the sandbox's event chain: %s", err))
	}
	if a.NoBase != nil {
		notes = append(notes, fmt.Sprintf("the sandbox's base could not be written, so what was undone counts as changed in the project: %s", a.NoBase))
	}
	return a, notes, nil
}

// undone notes in the chain of the sandbox that an apply from it was taken back. It is no error when there is no such
// sandbox any more.
func undone(ctx context.Context, st *store.Store, id string, a *review.Applied) error {
	n, err := noteOf(a)
	if err != nil {
		return err
	}
	rec, err := st.OpenSandbox(ctx, id, false, sharedPatience)
	if errors.Is(err, store.ErrNoSandbox) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(rec.Changed(store.EventSandboxUndo, n), rec.Close())
}
