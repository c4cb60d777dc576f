package store

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// readInfo reads the short record of a run; what is wrong with it goes into the value.
func (s *Store) readInfo(id string) Info {
	info, err := s.infoOf(id)
	if err != nil {
		started, _ := idTime(id)
		return Info{Schema: RunSchema, ID: id, State: StateDamaged, Started: started, Damage: err.Error()}
	}
	if info.State == StateRunning && !info.Host.Alive() {
		info.State = StateInterrupted
	}
	return info
}

// knownInfo is what the chain of a run said. It holds as long as the file stays as it was.
type knownInfo struct {
	size int64
	time time.Time
	info Info
}

// knownAge is how long ago a chain must have been written to be remembered: a file that changes twice within a tick
// of the kernel's clock looks like one that did not change.
const knownAge = time.Second

// maxKnown is how many chains are remembered.
const maxKnown = 4096

// infoOf is readChainInfo, which a list that is made again and again need not do for each run.
func (s *Store) infoOf(id string) (Info, error) {
	fi, err := os.Lstat(filepath.Join(s.paths.Run(id), eventsFile))
	if err != nil || time.Since(fi.ModTime()) < knownAge {
		return s.readChainInfo(id)
	}
	s.knownMu.Lock()
	defer s.knownMu.Unlock()
	if k, ok := s.known[id]; ok && k.size == fi.Size() && k.time.Equal(fi.ModTime()) && fi.Mode().IsRegular() {
		return k.info, nil
	}
	info, err := s.readChainInfo(id)
	delete(s.known, id)
	if err == nil {
		if s.known == nil || len(s.known) >= maxKnown {
			s.known = map[string]knownInfo{}
		}
		s.known[id] = knownInfo{fi.Size(), fi.ModTime(), info}
	}
	return info, err
}

// readChainInfo reads what the chain of a run says about it: its first and last line do where the run is finished.
func (s *Store) readChainInfo(id string) (info Info, err error) {
	first, last, err := s.readEnds(id)
	if err != nil {
		return info, err
	}
	b := eventData[BeginData](first)
	if b == nil || first.Type != EventBegin || first.Run != id {
		return info, fmt.Errorf("%s does not begin with the begin of run %s", eventsFile, id)
	}
	info = Info{
		Schema: RunSchema, ID: id, Kind: b.Kind, Name: b.Name, File: b.File, Backend: b.Backend, Sandbox: b.Sandbox,
		Parent: first.Parent, State: StateRunning, Started: first.Time, Host: b.Host,
	}
	if last.Type == EventEnd {
		e := eventData[endData](last)
		if e == nil {
			return info, fmt.Errorf("the end of %s cannot be read", eventsFile)
		}
		info.State, info.OK, info.Cause, info.ExitCode, info.Ended = StateFinished, e.OK, e.Cause, e.ExitCode, &last.Time
		info.Backend, info.Sandbox = e.Backend, e.Sandbox
		return info, nil
	}
	events, err := readEvents(s.paths.Run(id))
	for _, e := range events {
		switch e.Type {
		case EventInfo:
			if d := eventData[placeData](e); d != nil {
				info.Backend, info.Sandbox = d.Backend, d.Sandbox
			}
		case EventResume:
			if d := eventData[resumeData](e); d != nil {
				info.Host = d.Host
			}
		}
	}
	return info, err
}

// readEnds reads the first and the last event of a run's chain. A torn tail does not count.
func (s *Store) readEnds(id string) (first, last Event, err error) {
	f, fi, err := openChain(filepath.Join(s.paths.Run(id), eventsFile))
	if err != nil {
		return first, last, err
	}
	defer f.Close()
	d, _, err := lastLine(f, fi.Size())
	if err == nil {
		err = d.bad
	}
	if err == nil {
		_, err = readLines(io.NewSectionReader(f, 0, fi.Size()), func(_ uint64, d decoded) error {
			first = d.event
			return cmp.Or(d.bad, errEnough)
		})
	}
	if !errors.Is(err, errEnough) {
		return first, last, fmt.Errorf("%s: %w", eventsFile, cmp.Or(err, errors.New("it is empty")))
	}
	return first, d.event, nil
}

// errEnough ends the reading of a chain.
var errEnough = errors.New("enough was read")

// Definition is the run as it was evaluated, as JSON.
func (r *Record) Definition() (json.RawMessage, error) {
	first, _, err := r.store.readEnds(r.ID)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", r.ID, err)
	}
	b := eventData[BeginData](first)
	if b == nil || b.Definition == nil {
		return nil, fmt.Errorf("the record of run %s has no definition (see `hutch audit verify`)", r.ID)
	}
	return b.Definition, nil
}

// Result is the result as JSON, with the head of the chain as its member `events`; a run without one gives an error
// that is [fs.ErrNotExist].
func (r *Record) Result() (json.RawMessage, error) {
	_, last, err := r.store.readEnds(r.ID)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", r.ID, err)
	}
	var e *endData
	if last.Type == EventEnd {
		e = eventData[endData](last)
	}
	if e == nil || len(e.Result) < 2 || e.Result[0] != '{' {
		return nil, fmt.Errorf("the result of run %s: %w", r.ID, fs.ErrNotExist)
	}
	events, err := marshal(ChainRef{Path: eventsFile, Events: last.Seq, Head: last.Hash})
	open := bytes.TrimSuffix(e.Result, []byte{'}'})
	if len(open) > 1 {
		open = append(open, ',')
	}
	return fmt.Appendf(nil, "%s\"events\":%s}", open, events), err
}

// Events reads the events of the chain that can be read, in order, without checking how they hang together;
// [Store.Verify] does that.
func (r *Record) Events() ([]Event, error) { return readEvents(r.Dir) }

func readEvents(dir string) ([]Event, error) {
	var events []Event
	_, err := readChain(filepath.Join(dir, eventsFile), func(_ uint64, d decoded) error {
		if d.bad == nil {
			events = append(events, d.event)
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
	States  []State
	Name    string // the exact name
	Backend string
	Sandbox string    // the name of the persistent sandbox that they ran in, or left
	Parent  string    // the loop or run that they belong to
	Whole   bool      // leave out the runs that are parts of a loop which is there
	Since   time.Time // those that began then or later
	Limit   int       // at most so many, the newest
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
		(f.Since.IsZero() || !i.Started.Before(f.Since))
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
