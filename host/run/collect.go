package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/hutch-run/hutch/host/outputs"
	"github.com/hutch-run/hutch/host/piped"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/gitguard"
)

// maxChanges is how many changes a result lists; more are counted.
const maxChanges = 10_000

// collect copies what the command left in its output directory.
func (j *job) collect(ctx context.Context, p *place) {
	dir := p.Ready().Output
	if dir == "" || !p.b.Facts.Has(sdk.CapGet) {
		return
	}
	sp := j.span.child("outputs")
	defer sp.end()
	var res *outputs.Result
	telling := sdk.WithProgress(ctx, j.progress)
	err := piped.Join(func(w io.Writer) error { return p.Get(telling, dir, sdk.FormatTar, w) },
		func(r io.Reader) (err error) {
			res, err = outputs.Collect(ctx, r, j.rec.OutputDir(), j.d.Outputs, outputs.Caps{}, j.secrets.Text)
			if err != nil {
				return err
			}
			// The end of the archive is not the end of the stream: whatever is after it is thrown away, within bounds.
			if n, _ := io.Copy(io.Discard, io.LimitReader(r, 1<<20)); n == 1<<20 {
				return errors.New("the backend sent more after the end of the archive")
			}
			return nil
		})
	_ = os.Remove(j.rec.OutputDir()) // if there is nothing in it
	j.res.Outputs, j.res.Skipped, j.res.SkippedMore = res.Outputs, res.Skipped, res.More
	if err != nil && !errors.Is(err, &sdk.Error{Reason: sdk.ReasonNotFound}) {
		// What a run leaves is part of its result. Without it, it must not pass for a good one.
		j.note(err, "collect the outputs")
		if j.res.Error == nil && j.res.Cause == sdk.CauseExited {
			j.res.Error = j.failure("outputs", fmt.Errorf("the outputs could not be collected: %w", err))
			j.res.Cause = sdk.CauseBackend
		}
	}
	var refs []store.FileRef
	for _, o := range res.Outputs {
		refs = append(refs, store.FileRef{Path: "output/" + o.Path, Size: o.Size, SHA256: o.SHA256, Mode: o.Mode})
	}
	for i := 0; i == 0 || i < len(refs); i += refsPerEvent {
		j.event(store.EventOutputs, map[string]any{"files": len(refs), "skipped": len(res.Skipped) + res.More},
			refs[i:min(i+refsPerEvent, len(refs))]...)
	}
}

// listChanges begins to list what differs in the workspace. What it returns waits for the list and takes it into the
// result.
func (j *job) listChanges(ctx context.Context, p *place) (wait func()) {
	w := j.d.Workspace
	switch {
	case w == nil || w.Mode == string(sdk.WorkspaceReadOnly):
		return func() { j.res.ChangesKnown = true } // there is nothing that could have changed
	case w.Mode == string(sdk.WorkspaceShared) || !p.b.Facts.Has(sdk.CapChanges):
		return func() {}
	}
	var l []sdk.Change
	var err error
	listed := make(chan struct{})
	go func() {
		defer close(listed)
		sp := j.span.child("changes")
		defer sp.end()
		l, err = p.Changes(ctx)
	}()
	return func() {
		<-listed
		j.changes(l, err)
	}
}

// changes takes a list of changes into the result.
func (j *job) changes(l []sdk.Change, err error) {
	if err != nil {
		j.note(err, "list the changes of the workspace")
		return
	}
	j.res.ChangesKnown = true
	counts := map[sdk.ChangeKind]int{}
	for i, c := range l {
		counts[c.Kind]++
		if i >= maxChanges {
			j.res.ChangesMore++
			continue
		}
		j.res.Changes = append(j.res.Changes, result.Change{
			Path: c.Path, Kind: string(c.Kind), OldMode: octal(c.OldMode), NewMode: octal(c.NewMode), Size: c.Size,
		})
	}
	j.event(store.EventChanges, map[string]any{"counts": counts})
}

// watchRepositories notes which git repositories a shared workspace has. What it returns takes those into the result
// that were made meanwhile: they cannot be guarded before they exist, and git on this host runs what their
// configuration says.
func (j *job) watchRepositories() (after func()) {
	w := j.d.Workspace
	if w == nil || w.Mode != string(sdk.WorkspaceShared) {
		return func() {}
	}
	before, err := gitguard.Repositories(w.Source)
	return func() {
		now, err2 := gitguard.Repositories(w.Source)
		if err := errors.Join(err, err2); err != nil {
			j.note(err, "look for new git repositories")
			return
		}
		for _, p := range now {
			if !slices.Contains(before, p) {
				j.res.NewRepositories = append(j.res.NewRepositories, filepath.Join(w.Source, p))
			}
		}
	}
}

func octal(m fs.FileMode) string {
	if m == 0 {
		return ""
	}
	return fmt.Sprintf("%04o", m.Perm())
}
