package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// The files of a run's directory.
const (
	infoFile       = "run.jsonl"
	definitionFile = "definition.json"
	resultFile     = "result.json"
	eventsFile     = "events.jsonl"
	codeDir        = "code"
	outputDir      = "output"
)

// RunSchema is the schema of run.jsonl.
const RunSchema = "hutch.run/v1"

// NewRun is what is known when a run begins.
type NewRun struct {
	ID         string // empty: the store chooses one; else one from [Store.NewID]
	Kind       Kind   // what it is a record of; empty for a run
	Name       string // the label of the run block, or a name for a run without a file
	File       string // the run file; empty without one
	Backend    string // the backend, when it is known already
	Parent     string // the loop that this run is part of, or the run that it repeats
	Sandbox    string // name of the persistent sandbox that it runs in; empty without one
	Definition any    // the run as evaluated, secrets redacted; stored as JSON
}

// Kind says what a record is about. A loop of a model is recorded as a run is: directory, chain, result.
type Kind string

// The kinds.
const (
	KindRun      Kind = ""         // one run
	KindGenerate Kind = "generate" // a loop that generates code until it works; its attempts are runs
	KindCycle    Kind = "cycle"    // a loop that works a specification in a sandbox; its commands are runs
)

// State is where a run is in its life.
type State string

// The states of a run.
const (
	StateRunning     State = "running"     // its host process lives
	StateFinished    State = "finished"    // it has a result
	StateInterrupted State = "interrupted" // its host process died before it had one
	StateDamaged     State = "damaged"     // its record cannot be read
)

// Info is the short record of a run: the last line of run.jsonl, schema hutch.run/v1, and what follows from it.
type Info struct {
	Schema   string     `json:"schema"`
	ID       string     `json:"id"`
	Kind     Kind       `json:"kind,omitempty"` // empty for a run
	Name     string     `json:"name"`
	File     string     `json:"file,omitempty"`
	Backend  string     `json:"backend,omitempty"`
	Parent   string     `json:"parent,omitempty"`
	Sandbox  string     `json:"sandbox,omitempty"` // name of the persistent sandbox that it ran in, or left
	State    State      `json:"state"`
	OK       bool       `json:"ok"`                  // it did what was expected of it
	Cause    string     `json:"cause,omitempty"`     // once finished
	ExitCode *int       `json:"exit_code,omitempty"` // once finished, where a program ended
	Started  time.Time  `json:"started"`
	Ended    *time.Time `json:"ended,omitempty"`
	Host     Process    `json:"host"`
	// Damage says why the record cannot be read, for [StateDamaged].
	Damage string `json:"damage,omitempty"`
}

// BeginData is the data of [EventBegin] in a run's chain.
type BeginData struct {
	Hutch string  `json:"hutch,omitempty"` // version of hutch
	Kind  Kind    `json:"kind,omitempty"`
	Name  string  `json:"name"`
	File  string  `json:"file"`
	Host  Process `json:"host"`
}

// Run is a run that this process is recording.
type Run struct {
	store *Store
	dir   string
	chain *chain
	code  codeWriter

	mu   sync.Mutex
	info Info
	file *os.File        // run.jsonl, one line for each change of info
	head string          // hash of its last line
	said string          // the one that the event chain knows
	refs map[string]bool // files beside events.jsonl that events point at
	done bool            // finished or closed
}

// errDone is what a run says that has its result already.
var errDone = errors.New("the record of the run is closed")

// CreateRun makes the run's directory, its record and definition, the first event of its chain ([EventBegin]) and the
// entry in the audit chain. All of it survives the death of this process at once, and reaches the disk at the latest
// with [Run.Finish].
func (s *Store) CreateRun(n NewRun) (*Run, error) {
	id := n.ID
	if id == "" {
		id = s.NewID()
	}
	if !isRunID(id) {
		return nil, fmt.Errorf("run id %.60q is not one that the store gave out", id)
	}
	r := &Run{store: s, dir: s.paths.Run(id), refs: map[string]bool{}, head: noPrev, info: Info{
		Schema: RunSchema, ID: id, Kind: n.Kind, Name: n.Name, File: n.File, Backend: n.Backend, Parent: n.Parent, Sandbox: n.Sandbox,
		State: StateRunning, Started: s.now().UTC(), Host: Self(),
	}}
	// The directory takes its name when it is complete, so nobody ever sees half a run.
	tmp := tempPath(r.dir)
	head, err := r.prepare(tmp, n.Definition)
	if err == nil {
		if err = os.Rename(tmp, r.dir); err != nil {
			err = diskError("make", r.dir, err)
		}
	}
	if err == nil {
		var entry Event
		if entry, err = auditEntry(id, EventBegin, auditBegin{Head: head}); err == nil {
			err = s.enter(false, entry)
		}
	}
	if err != nil {
		_ = r.closeFiles()
		_ = os.RemoveAll(tmp)
		_ = discard(r.dir)
		return nil, fmt.Errorf("record run %s: %w", id, err)
	}
	return r, nil
}

// prepare fills the directory of a new run and returns the hash of its first event.
func (r *Run) prepare(dir string, definition any) (head string, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", diskError("make", dir, err)
	}
	def, err := marshalIndent(definition)
	if err != nil {
		return "", fmt.Errorf("definition: %w", err)
	}
	if err := writeNew(filepath.Join(dir, definitionFile), def); err != nil {
		return "", err
	}
	if r.file, err = os.OpenFile(filepath.Join(dir, infoFile), os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return "", diskError("write", filepath.Join(dir, infoFile), err)
	}
	if err := r.saveInfo(); err != nil {
		return "", err
	}
	// The chain is opened under its temporary name; its descriptor follows the directory when that is renamed.
	if r.chain, err = openChain(filepath.Join(dir, eventsFile), r.store.now); err != nil {
		return "", err
	}
	data, err := marshalData(EventBegin, BeginData{Hutch: r.store.version, Kind: r.info.Kind, Name: r.info.Name, File: r.info.File, Host: r.info.Host})
	if err != nil {
		return "", err
	}
	_, head, err = r.chain.append(Event{
		Run: r.info.ID, Type: EventBegin, Time: r.info.Started, Parent: r.info.Parent, Data: data, Record: r.head,
		Files: []FileRef{{Path: definitionFile, Size: int64(len(def)), SHA256: sumHex(def)}},
	})
	r.said = r.head
	r.chain.path = filepath.Join(r.dir, eventsFile)
	r.code.dir, r.code.content = filepath.Join(r.dir, codeDir), r.store.paths.Content()
	return head, err
}

// ID is the run's id.
func (r *Run) ID() string { return r.info.ID }

// Info is the short record as it is now.
func (r *Run) Info() Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.info
}

// Dir is the run's directory, absolute.
func (r *Run) Dir() string { return r.dir }

// SetSandbox notes the name of the persistent sandbox that the run leaves.
func (r *Run) SetSandbox(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return errDone
	}
	r.info.Sandbox = name
	return r.saveInfo()
}

// SetBackend notes which backend was chosen.
func (r *Run) SetBackend(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return errDone
	}
	r.info.Backend = name
	return r.saveInfo()
}

// saveInfo appends the short record as it is now. The event that comes next says its hash.
func (r *Run) saveInfo() error {
	line, head, err := encodeInfo(r.head, r.info)
	if err != nil {
		return err
	}
	if err := appendBytes(r.file, filepath.Join(r.dir, infoFile), line, false); err != nil {
		return err
	}
	r.head = head
	return nil
}

// Event appends one event to the run's chain. Data is marshalled to JSON and must stay small ([MaxEventData]); what is
// large belongs in a file that the event points at. More files than fit into one event make several of the same type,
// of which the first has the data. Events survive the death of the process at once, and reach the disk at the next
// [Run.Sync] or [Run.Finish].
func (r *Run) Event(typ EventType, data any, files ...FileRef) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return errDone
	}
	_, _, err := r.appendEvent(typ, data, files)
	return err
}

func (r *Run) appendEvent(typ EventType, data any, files []FileRef) (seq uint64, head string, err error) {
	b, err := marshalData(typ, data)
	if err != nil {
		return 0, "", err
	}
	var events []Event
	for _, piece := range splitFiles(files) {
		events = append(events, Event{Run: r.info.ID, Type: typ, Data: b, Files: piece})
		b = nil
	}
	if r.head != r.said {
		events[0].Record = r.head
	}
	if seq, head, err = r.chain.append(events...); err != nil {
		return 0, "", err
	}
	r.said = r.head
	for _, f := range files {
		if !strings.Contains(f.Path, "/") {
			r.refs[f.Path] = true
		}
	}
	return seq, head, nil
}

// Sync forces the events so far to the disk.
func (r *Run) Sync() error { return r.chain.sync() }

// Close ends the recording without a result, for a host that gives up: the run shows as interrupted once the process
// is gone. After Finish it does nothing.
func (r *Run) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return nil
	}
	return r.closeLocked()
}

func (r *Run) closeLocked() error {
	r.done = true
	return r.closeFiles()
}

func (r *Run) closeFiles() error {
	errs := []error{r.code.close()}
	if r.chain != nil {
		errs = append(errs, r.chain.close())
	}
	if r.file != nil {
		errs = append(errs, r.file.Close())
	}
	return errors.Join(errs...)
}

// writeNew writes a file that must not exist.
func writeNew(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return diskError("write", path, err)
	}
	_, err = f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return diskError("write", path, err)
	}
	return nil
}

func sumHex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
