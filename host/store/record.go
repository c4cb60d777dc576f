package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

// readInfo reads run.jsonl and settles the state; what is wrong with it goes into the value.
func (s *Store) readInfo(id string) Info {
	var info Info
	b, err := os.ReadFile(filepath.Join(s.paths.Run(id), infoFile))
	if err == nil {
		// Half a line at its end is what a killed writer left.
		whole := b[:bytes.LastIndexByte(b, '\n')+1]
		last := bytes.TrimSuffix(whole, []byte{'\n'})
		err = json.Unmarshal(last[bytes.LastIndexByte(last, '\n')+1:], &info)
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
		return nil, fmt.Errorf("read %s: it is not JSON (`hutch audit verify` tells more)", filepath.Join(dir, name))
	}
	return b, nil
}

// Events reads the events of the chain that can be read, in order, without checking how they hang together;
// [Store.Verify] does that.
func (r *Record) Events() ([]Event, error) {
	var events []Event
	_, err := readChain(filepath.Join(r.Dir, eventsFile), func(l chainLine) error {
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
