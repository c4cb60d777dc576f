package store

import (
	"encoding/json"
	"io"
	"io/fs"
	"time"
)

// NewRun is what is known when a run begins.
type NewRun struct {
	ID         string // empty: the store chooses one; else one from [Store.NewID]
	Name       string // the label of the run block, or a name for a run without a file
	File       string // the run file; empty without one
	Backend    string // the backend, when it is known already
	Parent     string // the run that this one continues or repeats
	Definition any    // the run as evaluated, secrets redacted; stored as JSON
}

// State is where a run is in its life.
type State string

// The states of a run.
const (
	StateRunning     State = "running"     // its host process lives
	StateFinished    State = "finished"    // it has a result
	StateInterrupted State = "interrupted" // its host process died before it had one
	StateDamaged     State = "damaged"     // its record cannot be read
)

// Info is the short record of a run: `run.json`, schema hutch.run/v1, and what follows from it.
type Info struct {
	Schema   string     `json:"schema"`
	ID       string     `json:"id"`
	Name     string     `json:"name"`
	File     string     `json:"file,omitempty"`
	Backend  string     `json:"backend,omitempty"`
	Parent   string     `json:"parent,omitempty"`
	State    State      `json:"state"`
	OK       bool       `json:"ok"`                  // it did what was expected of it
	Cause    string     `json:"cause,omitempty"`     // once finished
	ExitCode *int       `json:"exit_code,omitempty"` // once finished
	Started  time.Time  `json:"started"`
	Ended    *time.Time `json:"ended,omitempty"`
	Host     Process    `json:"host"`
	// Damage says why the record cannot be read, for [StateDamaged].
	Damage string `json:"damage,omitempty"`
}

// Run is a run that this process is recording.
type Run struct {
	store *Store
	info  Info
}

// Stream names a log of a run.
type Stream string

// The logs of a run.
const (
	Stdout     Stream = "stdout"
	Stderr     Stream = "stderr"
	BackendLog Stream = "backend"
)

// NewID returns a fresh run id: the UTC second and a tail that sorts within it, such as 261121-034512-c3k7q2. Ids of
// one process are strictly increasing.
func (s *Store) NewID() string { return "" }

// CreateRun makes the run's directory, its record and definition, the first event of its chain ([EventBegin]) and the
// entry in the audit chain, all of it on disk when it returns.
func (s *Store) CreateRun(n NewRun) (*Run, error) { return nil, errNotImplemented }

// ID is the run's id.
func (r *Run) ID() string { return r.info.ID }

// Info is the short record as it is now.
func (r *Run) Info() Info { return r.info }

// Dir is the run's directory, absolute.
func (r *Run) Dir() string { return r.store.paths.Run(r.info.ID) }

// CodeDir is where [Run.WriteCode] puts files; it exists from the start.
func (r *Run) CodeDir() string { return "" }

// OutputDir is where collected outputs go; it exists from the start.
func (r *Run) OutputDir() string { return "" }

// SetBackend notes which backend was chosen.
func (r *Run) SetBackend(name string) error { return errNotImplemented }

// WriteCode writes one declared file below code/. The path must be safe (package safepath); a file that exists is an
// error. Only the permission bits of mode count, and the owner may always read. Concurrent calls are fine.
func (r *Run) WriteCode(path string, mode fs.FileMode, content io.Reader) (FileRef, error) {
	return FileRef{}, errNotImplemented
}

// Ref hashes a regular file of the run's directory, named by its slash path below it, for an event to point at.
func (r *Run) Ref(path string) (FileRef, error) { return FileRef{}, errNotImplemented }

// OpenLog opens the sink of a stream that keeps the last keep bytes; 0 keeps everything.
func (r *Run) OpenLog(s Stream, keep int64) (*LogWriter, error) { return nil, errNotImplemented }

// Event appends one event to the run's chain. Data is marshalled to JSON and must stay small ([MaxEventData]); what is
// large belongs in a file that the event points at. Events reach the disk at the next [Run.Sync] or [Run.Finish], and
// survive the death of the process at once.
func (r *Run) Event(typ EventType, data any, files ...FileRef) error { return errNotImplemented }

// Sync forces the events so far to the disk.
func (r *Run) Sync() error { return errNotImplemented }

// End is how a run ended, for its last event and its short record.
type End struct {
	OK       bool
	Cause    string
	ExitCode int
	Data     any       // further data of the last event
	Files    []FileRef // further files of the last event; logs, code and outputs which earlier events named need not be repeated
}

// ChainRef names the head of an event chain.
type ChainRef struct {
	Path   string `json:"path"`   // relative to the run's directory
	Events uint64 `json:"events"` // how many
	Head   string `json:"head"`   // hash of the last one
}

// Finish appends [EventEnd], writes result.json from what result returns, given the head of the chain for it to hold,
// and enters both in the audit chain. When it returns nil all of that is on disk. The run takes no events afterwards.
func (r *Run) Finish(end End, result func(ChainRef) (any, error)) error { return errNotImplemented }

// Close ends the recording without a result, for a host that gives up: the run shows as interrupted once the process
// is gone. After Finish it does nothing.
func (r *Run) Close() error { return errNotImplemented }

// Record is a run as found on disk.
type Record struct {
	Info
	Dir string // absolute
}

// Load reads the record of a run by its full id.
func (s *Store) Load(id string) (*Record, error) { return nil, errNotImplemented }

// Definition reads definition.json.
func (r *Record) Definition() (json.RawMessage, error) { return nil, errNotImplemented }

// Result reads result.json; a run without one gives an error that is [fs.ErrNotExist].
func (r *Record) Result() (json.RawMessage, error) { return nil, errNotImplemented }

// Events reads the chain without checking more than its syntax; [Store.Verify] checks it.
func (r *Record) Events() ([]Event, error) { return nil, errNotImplemented }

// OpenLog opens a stream's log for reading, while it is written or afterwards. A stream that has no log gives an error
// that is [fs.ErrNotExist].
func (r *Record) OpenLog(s Stream) (*LogReader, error) { return nil, errNotImplemented }
