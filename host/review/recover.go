package review

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Recovered is an apply that was interrupted and taken back.
type Recovered struct {
	ID, Project string
	Paths       int
	Err         error // a *StuckError, or what kept it from being taken back
}

// Recover takes back what a dead process began and did not finish. It is quick when there is nothing.
func (l *Ledger) Recover(ctx context.Context) ([]Recovered, error) {
	if _, err := os.Stat(l.dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	unlock, err := l.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return l.recover(ctx)
}

func (l *Ledger) recover(ctx context.Context) ([]Recovered, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, err
	}
	var list []Recovered
	for _, e := range entries {
		dir := filepath.Join(l.dir, e.Name())
		if pid, ok := stageOwner(e.Name()); ok && !alive(pid) {
			os.RemoveAll(dir)
		}
		if !e.IsDir() || strings.HasPrefix(e.Name(), stagePrefix) {
			continue
		}
		if ctx.Err() != nil {
			return list, context.Cause(ctx)
		}
		if exists(filepath.Join(dir, undoneFile)) {
			if j, err := readJournal(dir, undoneFile); err == nil {
				err = l.forget(dir, j)
				if err != nil {
					list = append(list, Recovered{ID: e.Name(), Err: err})
				}
			}
			continue
		}
		j, err := readJournal(dir, restoredFile)
		restored := err == nil
		if errors.Is(err, fs.ErrNotExist) {
			j, err = readJournal(dir, journalFile)
		}
		if errors.Is(err, fs.ErrNotExist) {
			if !exists(filepath.Join(dir, appliedFile)) && !exists(filepath.Join(dir, stuckFile)) {
				os.RemoveAll(dir) // it died before it did anything, or after it was taken back
			}
			continue
		}
		if err != nil {
			list = append(list, Recovered{ID: e.Name(), Err: err})
			continue
		}
		rec := Recovered{ID: j.ID, Project: j.Project, Paths: len(j.Steps)}
		project, err := j.open()
		switch {
		case err != nil:
			rec.Err = fmt.Errorf("an apply was interrupted and cannot be taken back: %w", err)
		case restored:
			rec.Err = l.restored(dir, j, project)
		default:
			rec.Err = l.back(dir, j, project)
		}
		if err == nil {
			project.close()
		}
		list = append(list, rec)
	}
	return list, nil
}

// back puts the project back as it was before the journal's steps.
func (l *Ledger) back(dir string, j *journal, project *dir) error {
	project.forget()
	e := &engine{project: project, prefix: j.prefix(true), careful: true, at: l.at}
	moves := j.moves(dir, true)
	e.sweep(moves, j.prefix(true))
	e.sweep(moves, j.prefix(false))
	if err := e.run(context.Background(), moves); err != nil {
		return err
	}
	if !l.noSync {
		if err := syncDisk(j.Project); err != nil {
			return err
		}
	}
	l.point("back")
	if len(e.left) > 0 {
		err := errors.Join(l.rebase(j, project, true), os.Rename(filepath.Join(dir, journalFile), filepath.Join(dir, stuckFile)))
		return errors.Join(&StuckError{j.Project, e.left, filepath.Join(dir, oldDir)}, err)
	}
	// From here on nothing of the project is put back again: its owner may change it before the base can be written.
	if err := os.Rename(filepath.Join(dir, journalFile), filepath.Join(dir, restoredFile)); err != nil {
		return err
	}
	return l.restored(dir, j, project)
}

// restored ends an apply that was taken back: the base vouches for the restored files, and the journal goes.
func (l *Ledger) restored(dir string, j *journal, project *dir) error {
	l.point("restored")
	if err := os.RemoveAll(filepath.Join(dir, oldDir)); err != nil { // first: the base may need the space
		return err
	}
	if err := l.rebase(j, project, true); err != nil {
		return fmt.Errorf("%s is as before the apply, but the base of sandbox %s cannot be written, so the paths of that apply count as changed in the project; the next apply tries again: %w",
			j.Project, j.Sandbox, err)
	}
	l.point("rebased")
	return os.RemoveAll(dir)
}

// StuckError says that a project could not be put back as it was, because it was changed by somebody else meanwhile.
type StuckError struct {
	Project string
	Left    []string // path and reason
	Old     string   // the directory of the old versions
}

// Error implements error.
func (e *StuckError) Error() string {
	return fmt.Sprintf("an apply to %s was interrupted, and what it had changed was put back, but for:\n%s\nthe old versions are in %s",
		e.Project, strings.Join(e.Left, "\n"), e.Old)
}

// forget drops an apply that was undone, and then its undo.
func (l *Ledger) forget(dir string, undo *journal) error {
	if undo.Undoes == "" {
		return fmt.Errorf("%s undoes nothing", dir)
	}
	return errors.Join(os.RemoveAll(filepath.Join(l.dir, undo.Undoes)), os.RemoveAll(dir))
}

// stageOwner is the process whose stage has this name.
func stageOwner(name string) (int, bool) {
	rest, ok := strings.CutPrefix(name, stagePrefix)
	id, _, ok2 := strings.Cut(rest, "-")
	pid, err := strconv.Atoi(id)
	return pid, ok && ok2 && err == nil && pid > 0
}

func alive(pid int) bool { return !errors.Is(unix.Kill(pid, 0), unix.ESRCH) }
