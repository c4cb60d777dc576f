package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/workspace/review"
)

// Ledger is where the applies of a store are journaled.
func Ledger(st *store.Store) *review.Ledger { return review.NewLedger(st.Paths().Applies(), st) }

// Outcome is what an apply did, or would do.
type Outcome struct {
	Taken []review.Pick
	Left  []*review.Change // what was picked and is left out
	Until time.Time        // when undo ends; or the zero time
	Undo  string           // the command that takes it back; or ""
	Notes []string         // what the user should know of it
}

// Apply brings the picks back to the project, all or nothing, and notes that in the sandbox's chain. The error is a
// *[review.BlockedError] when something stands against it. A dry run stops before anything is changed.
func (r *Review) Apply(ctx context.Context, l *review.Ledger, picks []review.Pick, p review.Policy,
	dryRun bool) (*Outcome, error) {
	plan, err := r.Plan(ctx, picks, p)
	if err != nil {
		return nil, err
	}
	out := &Outcome{Taken: plan.Taken, Left: plan.Left}
	if dryRun || len(plan.Paths()) == 0 {
		return out, nil
	}
	a, err := l.Apply(ctx, r.Review, plan)
	if err != nil {
		return nil, err
	}
	note := func(format string, args ...any) { out.Notes = append(out.Notes, fmt.Sprintf(format, args...)) }
	if r.of != nil {
		if err := chained(a, func(n applyNote) error { return r.of.changed(store.EventSandboxApply, n) }); err != nil {
			note("the changes were applied, but not recorded in the sandbox's event chain: %s", err)
		}
	}
	if a.NoBase != nil {
		note("the changes were applied, but the sandbox's base could not be written, so they count as changes of the "+
			"project: %s", a.NoBase)
	}
	if out.Until = a.Until; a.Until.IsZero() {
		note("this apply cannot be undone: %s", a.NoUndo)
	} else {
		out.Undo = "hutch apply --undo " + r.Subject.Name
	}
	return out, nil
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

// chained makes the note of an apply or an undo and adds it to a chain.
func chained(a *review.Applied, add func(applyNote) error) error {
	n := applyNote{Apply: a.ID, Project: a.Project, Paths: len(a.Placed), Placed: []json.RawMessage{}}
	sum, left := sha256.New(), maxPlaced
	for _, p := range a.Placed {
		line, err := json.Marshal(p)
		if err != nil {
			return err
		}
		sum.Write(append(line, '\n'))
		if left -= len(line); left >= 0 {
			n.Placed = append(n.Placed, line)
		}
	}
	n.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return add(n)
}

// Undo takes back the last apply from the sandbox that ref means, which may be removed by now, and notes that in its
// chain; see [review.Ledger.Undo]. No backend is started. The notes are for the user.
func Undo(ctx context.Context, st *store.Store, l *review.Ledger, ref string) (a *review.Applied, notes []string,
	err error) {
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
	if err := chained(a, func(n applyNote) error { return undone(ctx, st, info.ID, n) }); err != nil {
		notes = append(notes, fmt.Sprintf("the undo cannot be recorded in the sandbox's event chain: %s", err))
	}
	if a.NoBase != nil {
		notes = append(notes,
			fmt.Sprintf("the sandbox's base could not be written, so what was undone counts as changed in the project: %s",
				a.NoBase))
	}
	return a, notes, nil
}

// undoPatience is how long an undo waits for the lock of the sandbox's record.
const undoPatience = time.Minute

// undone notes in the chain of the sandbox that an apply from it was taken back. It is no error when there is no such
// sandbox any more.
func undone(ctx context.Context, st *store.Store, id string, n applyNote) error {
	rec, err := st.OpenSandbox(ctx, id, false, undoPatience)
	if errors.Is(err, store.ErrNoSandbox) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(rec.Changed(store.EventSandboxUndo, n), rec.Close())
}
