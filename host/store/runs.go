package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Record is a run as found on disk.
type Record struct {
	Info
	Dir   string // absolute
	store *Store
}

// Load reads the record of a run by its full id.
func (s *Store) Load(id string) (*Record, error) {
	if !isRunID(id) {
		return nil, fmt.Errorf("%w: %.60q is not a run id", ErrNotFound, id)
	}
	dir := s.paths.Run(id)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return &Record{Info: s.readInfo(id), Dir: dir, store: s}, nil
}

// readInfo reads run.json and settles the state; what is wrong with it goes into the value.
func (s *Store) readInfo(id string) Info {
	var info Info
	b, err := os.ReadFile(filepath.Join(s.paths.Run(id), infoFile))
	if err == nil {
		err = json.Unmarshal(b, &info)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("%s: %w", infoFile, err)
	case info.Schema != RunSchema:
		err = fmt.Errorf("%s: schema %.40q is not %s", infoFile, info.Schema, RunSchema)
	case info.ID != id:
		err = fmt.Errorf("%s: it is the record of %.40q", infoFile, info.ID)
	case info.State != StateRunning && info.State != StateFinished:
		err = fmt.Errorf("%s: state %.40q", infoFile, info.State)
	}
	if err != nil {
		started, _ := idTime(id)
		return Info{Schema: RunSchema, ID: id, State: StateDamaged, Started: started, Damage: err.Error()}
	}
	if info.State == StateRunning && !info.Host.Alive() {
		info.State = StateInterrupted
	}
	return info
}

// Definition reads definition.json.
func (r *Record) Definition() (json.RawMessage, error) { return readJSONFile(r.Dir, definitionFile) }

// Result reads result.json; a run without one gives an error that is [fs.ErrNotExist].
func (r *Record) Result() (json.RawMessage, error) { return readJSONFile(r.Dir, resultFile) }

func readJSONFile(dir, name string) (json.RawMessage, error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil, diskError("read", filepath.Join(dir, name), err)
	}
	if !json.Valid(b) {
		return nil, fmt.Errorf("read %s: it is not JSON (see `hutch audit verify`)", filepath.Join(dir, name))
	}
	return b, nil
}

// Events reads the events of the chain that can be read, in order, without checking how they hang together;
// [Store.Verify] does that.
func (r *Record) Events() ([]Event, error) { return readEvents(r.Dir) }

func readEvents(dir string) ([]Event, error) {
	var events []Event
	_, err := readChain(filepath.Join(dir, eventsFile), func(l chainLine) error {
		if l.d.bad == nil {
			events = append(events, l.d.event)
		}
		return nil
	})
	return events, err
}

// OpenLog opens a stream's log for reading, while it is written or afterwards. A stream that has no log gives an error
// that is [fs.ErrNotExist].
func (r *Record) OpenLog(s Stream) (*LogReader, error) { return newLogReader(r.Dir, s, r.running) }

// Filter chooses runs. Zero fields choose all.
type Filter struct {
	States        []State
	Name          string // the exact name
	Backend       string
	Sandbox       string    // the name of the persistent sandbox that they ran in, or left
	Parent        string    // the loop or run that they belong to
	Whole         bool      // leave out the runs that are parts of a loop which is there
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
	loops := map[string]bool{}
	part := func(i Info) bool {
		if i.Parent == "" {
			return false
		}
		loop, known := loops[i.Parent]
		if !known {
			r, err := s.Load(i.Parent)
			loop = err == nil && r.Kind != KindRun
			loops[i.Parent] = loop
		}
		return loop
	}
	for _, id := range ids {
		if f.Parent != "" && id < f.Parent {
			break // what belongs to another one begins after it
		}
		// The id has the second, so that most of what is out of range need not be read. A run may begin a while
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
		if !f.matches(info) || f.Whole && part(info) {
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
		(f.Sandbox == "" || f.Sandbox == i.Sandbox) &&
		(f.Parent == "" || f.Parent == i.Parent) &&
		(f.Since.IsZero() || !i.Started.Before(f.Since)) &&
		(f.Before.IsZero() || i.Started.Before(f.Before))
}

// Parts lists the runs that are parts of a loop, oldest first: its attempts, or the commands that it ran.
func (s *Store) Parts(loop string) ([]Info, error) {
	parts, err := s.List(Filter{Parent: loop})
	slices.Reverse(parts)
	return parts, err
}

// Remove deletes a run, or a loop with the runs that are parts of it, and says so in the audit chain. It refuses with
// [ErrRunning] while the host of one of them lives.
func (s *Store) Remove(id string) error {
	r, err := s.Load(id)
	if err != nil {
		return err
	}
	all := []*Record{r}
	if r.Kind != KindRun {
		parts, err := s.Parts(id)
		if err != nil {
			return err
		}
		for _, p := range parts { // before the loop: were this process to die, what is left would still name its loop
			all = append(all, &Record{Info: p, Dir: s.paths.Run(p.ID), store: s})
		}
		slices.Reverse(all)
	}
	for _, r := range all {
		if r.State == StateRunning {
			return fmt.Errorf("run %s: %w (pid %d)", r.ID, ErrRunning, r.Host.PID)
		}
	}
	for _, r := range all {
		if err := s.remove(r); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) remove(r *Record) error {
	err := s.removeRecord(EventRemoved, r.ID, r.Dir, map[string]any{"state": r.State})
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s", ErrNotFound, r.ID)
	}
	return err
}
