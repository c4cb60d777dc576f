package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"
)

// Filter chooses runs. Zero fields choose all.
type Filter struct {
	States        []State
	Name          string // the exact name
	Backend       string
	Since, Before time.Time // by the time of their start
	Limit         int       // at most so many, the newest
}

// List returns short records, newest first. It reads one small file for each run it looks at and stops at the limit.
// A run whose record cannot be read is listed as [StateDamaged].
func (s *Store) List(f Filter) ([]Info, error) {
	ids, err := s.runIDs()
	if err != nil {
		return nil, err
	}
	var list []Info
	for _, id := range ids {
		// The id tells the second, so that most of what is out of range need not be read. A run may begin a while
		// after it got its id, never before.
		if t, err := idTime(id); err == nil {
			if !f.Before.IsZero() && t.After(f.Before) {
				continue
			}
			if !f.Since.IsZero() && t.Add(time.Hour).Before(f.Since) {
				break
			}
		}
		info := s.readInfo(id)
		if info.State == StateDamaged {
			if _, err := os.Lstat(s.paths.Run(id)); errors.Is(err, fs.ErrNotExist) {
				continue // removed since the directory was read
			}
		}
		if !f.matches(info) {
			continue
		}
		list = append(list, info)
		if f.Limit > 0 && len(list) == f.Limit {
			break
		}
	}
	return list, nil
}

func (f Filter) matches(i Info) bool {
	return (len(f.States) == 0 || slices.Contains(f.States, i.State)) &&
		(f.Name == "" || f.Name == i.Name) &&
		(f.Backend == "" || f.Backend == i.Backend) &&
		(f.Since.IsZero() || !i.Started.Before(f.Since)) &&
		(f.Before.IsZero() || i.Started.Before(f.Before))
}

// Remove deletes a run and says so in the audit chain. It refuses with [ErrRunning] while the run's host lives.
func (s *Store) Remove(id string) error {
	r, err := s.Load(id)
	if err != nil {
		return err
	}
	if r.State == StateRunning {
		return fmt.Errorf("run %s: %w (pid %d)", id, ErrRunning, r.Host.PID)
	}
	// Say it first: a run that is gone without a word looks like tampering, one that is still there does not.
	entry, err := auditEntry(id, EventRemoved, map[string]any{"state": r.State})
	if err != nil {
		return err
	}
	said := s.enter(false, entry)
	if said != nil && !errors.Is(said, ErrFull) {
		return said
	}
	// Taking the name away first means that nobody ever sees half a run.
	trash := tempPath(r.Dir)
	if err := os.Rename(r.Dir, trash); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %s", ErrNotFound, id)
		}
		return diskError("remove", r.Dir, err)
	}
	if err := removeAll(trash); err != nil {
		return diskError("remove", trash, err)
	}
	if said != nil { // the disk was full, which removing is the way out of
		return s.enter(false, entry)
	}
	return nil
}
