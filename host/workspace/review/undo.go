package review

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// ErrNoUndo says that there is no apply to take back.
var ErrNoUndo = errors.New("there is no apply to undo")

// UndoError says that an apply cannot be taken back because the project was changed since.
type UndoError struct {
	Project string
	Changed []string // path and what is the matter
}

// Error implements error.
func (e *UndoError) Error() string {
	return fmt.Sprintf("nothing was undone: %s changed since the apply", english.Plural(len(e.Changed), "path", ""))
}

// Undo takes back the last apply from the sandbox of that name or id, all of it or nothing. It refuses, with an
// *[UndoError], where the project is not as the apply left it.
func (l *Ledger) Undo(ctx context.Context, sandbox string) (*Applied, error) {
	unlock, err := l.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := l.recover(ctx); err != nil {
		return nil, err
	}
	if err := l.prune(time.Now()); err != nil {
		return nil, err
	}
	dir, j, err := l.last(sandbox)
	if err != nil {
		return nil, err
	}
	project, err := j.open()
	if err != nil {
		return nil, fmt.Errorf("undo: %w", err)
	}
	defer project.close()
	back, err := undoSteps(dir, j, project)
	if err != nil {
		return nil, err
	}
	base, err := l.base(j.SandboxID)
	if err != nil {
		return nil, fmt.Errorf("undo: %w", err)
	}
	for _, s := range back {
		s.Base = baseEntry(base, s.Path)
	}
	return l.commit(ctx, &journal{Sandbox: j.Sandbox, SandboxID: j.SandboxID, Project: j.Project, Undoes: j.ID, Steps: back})
}

// Last says what Undo would take back from the sandbox of that name or id: project, paths and until when. The error is
// [ErrNoUndo] where there is nothing.
func (l *Ledger) Last(sandbox string) (*Applied, error) {
	if !exists(l.dir) {
		return nil, ErrNoUndo
	}
	_, j, err := l.last(sandbox)
	if err != nil {
		return nil, err
	}
	a := &Applied{ID: j.ID, Sandbox: j.Sandbox, SandboxID: j.SandboxID, Project: j.Project, Until: j.Time.Add(KeepFor)}
	for _, s := range j.Steps {
		a.Paths = append(a.Paths, s.Path)
	}
	return a, nil
}

// last finds the newest apply from a sandbox.
func (l *Ledger) last(sandbox string) (string, *journal, error) {
	list, err := l.applied()
	if err != nil {
		return "", nil, err
	}
	for _, id := range slices.Backward(list) {
		dir := filepath.Join(l.dir, id)
		j, err := readJournal(dir, appliedFile)
		if err != nil {
			return "", nil, err
		}
		if j.Undoes == "" && (j.Sandbox == sandbox || j.SandboxID == sandbox) {
			return dir, j, nil
		}
	}
	return "", nil, fmt.Errorf("%w from %s", ErrNoUndo, sandbox)
}

// undoSteps turns the steps round, after a look at each path: it must be as the apply left it.
func undoSteps(dir string, j *journal, project *dir) ([]*step, error) {
	e := &engine{project: project}
	known := map[string]bool{}
	for _, s := range j.Steps {
		known[s.Path] = true
	}
	var back []*step
	var changed []string
	for _, s := range j.Steps {
		at := s.Path
		now, err := project.look(at)
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", Quote(at), err)
		}
		onlyMode := s.Old.Type == File && s.New.Type == File && s.Old.Blob == 0
		m := &move{path: at}
		switch {
		case now.Type != s.New.Type:
			changed = append(changed, Quote(at)+": "+describe(now)+" stands there")
			continue
		case now.Type != Nothing && now.Type != Symlink && now.Mode != s.New.Mode:
			changed = append(changed, fmt.Sprintf("%s: its mode is %04o", Quote(at), safefile.Bits(now.Mode)))
			continue
		case onlyMode && !s.Old.Moved(now.Stat), !onlyMode && !e.equal(m, s.New, now):
			changed = append(changed, Quote(at)+": its content is another one")
			continue
		}
		if s.New.Type == Directory && s.Old.Type != Directory {
			names, err := project.list(at)
			if err != nil {
				return nil, fmt.Errorf("look into %s: %w", Quote(at), err)
			}
			if i := slices.IndexFunc(names, func(n string) bool { return !known[path.Join(at, n)] }); i >= 0 {
				changed = append(changed, Quote(at)+": "+Quote(names[i])+" was made in it")
				continue
			}
		}
		b := &step{Path: s.Path, Old: s.New, New: s.Old, Settled: s.Settled, Was: s.Base}
		b.Old.Stat, b.Old.Blob, b.New.Blob = now.Stat, 0, 0
		if s.Old.Type == File && !onlyMode {
			if b.content, err = oldBlob(dir, s.Old); err != nil {
				return nil, fmt.Errorf("undo %s: %w", Quote(at), err)
			}
		}
		back = append(back, b)
	}
	if len(changed) > 0 {
		return nil, &UndoError{j.Project, changed}
	}
	return back, nil
}

// describe names what stands at a path.
func describe(n Node) string {
	switch n.Type {
	case Nothing:
		return "nothing"
	case Symlink:
		return "a symbolic link"
	case Special:
		return "a FIFO, a socket or a device"
	}
	return "a " + strings.ToLower(string(n.Type))
}
