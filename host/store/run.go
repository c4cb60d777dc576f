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

	"golang.org/x/sync/errgroup"
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
	Name       string // the label of the run block, or a name for a run without a file
	File       string // the run file; empty without one
	Backend    string // the backend, when it is known already
	Parent     string // the run that this one continues or repeats
	Sandbox    string // name of the lasting sandbox that it runs in; empty without one
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

// Info is the short record of a run: the last line of run.jsonl, schema hutch.run/v1, and what follows from it.
type Info struct {
	Schema   string     `json:"schema"`
	ID       string     `json:"id"`
	Name     string     `json:"name"`
	File     string     `json:"file,omitempty"`
	Backend  string     `json:"backend,omitempty"`
	Parent   string     `json:"parent,omitempty"`
	Sandbox  string     `json:"sandbox,omitempty"` // name of the lasting sandbox that it ran in, or left
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
		Schema: RunSchema, ID: id, Name: n.Name, File: n.File, Backend: n.Backend, Parent: n.Parent, Sandbox: n.Sandbox,
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
		_ = os.RemoveAll(r.dir)
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
	data, err := marshalData(EventBegin, map[string]any{"name": r.info.Name, "file": r.info.File, "host": r.info.Host})
	if err != nil {
		return "", err
	}
	_, head, err = r.chain.append(Event{
		Run: r.info.ID, Type: EventBegin, Time: r.info.Started, Parent: r.info.Parent, Data: data, Record: r.head,
		Files: []FileRef{{Path: definitionFile, Size: int64(len(def)), SHA256: sumHex(def)}},
	})
	r.said = r.head
	r.chain.path = filepath.Join(r.dir, eventsFile)
	r.code.dir = filepath.Join(r.dir, codeDir)
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

// CodeDir is where [Run.WriteCode] puts files. It exists once there is one.
func (r *Run) CodeDir() string { return filepath.Join(r.dir, codeDir) }

// OutputDir is where collected outputs go. It is made when it is asked for, so that only runs with outputs have one.
func (r *Run) OutputDir() string {
	dir := filepath.Join(r.dir, outputDir)
	_ = os.Mkdir(dir, 0o700) // were that to fail, so would the first use of it, and say why
	return dir
}

// SetSandbox notes the name of the lasting sandbox that the run leaves.
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

// End is how a run ended, for its last event and its short record.
type End struct {
	OK       bool
	Cause    string
	ExitCode *int      // nil when no program ended
	Data     any       // further data of the last event
	Files    []FileRef // further files of the last event; logs, code and outputs which earlier events named need not be repeated
}

// endData is the data of [EventEnd] in a run's chain.
type endData struct {
	OK       bool   `json:"ok"`
	Cause    string `json:"cause"`
	ExitCode *int   `json:"exit_code"`
	More     any    `json:"more,omitempty"`
}

// ChainRef names the head of an event chain.
type ChainRef struct {
	Path   string `json:"path"`   // relative to the run's directory
	Events uint64 `json:"events"` // how many
	Head   string `json:"head"`   // hash of the last one
}

// Finish appends [EventEnd], writes result.json from what result returns, given the head of the chain for it to hold,
// and enters both in the audit chain. When it returns nil all of that is on disk; files that events point at are not
// forced there. The run takes no events afterwards, also when Finish failed: it then shows as interrupted once the
// process is gone.
func (r *Run) Finish(end End, result func(ChainRef) (any, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return errDone
	}
	defer func() { _ = r.closeLocked() }() // everything that matters was synced and said by then

	// The last event stands alone at the end, however many files there are.
	if len(end.Files) > 0 {
		if _, _, err := r.appendEvent(EventOutputs, nil, end.Files); err != nil {
			return err
		}
	}
	seq, head, err := r.appendEvent(EventEnd, endData{OK: end.OK, Cause: end.Cause, ExitCode: end.ExitCode, More: end.Data}, r.unsaidLogs())
	if err != nil {
		return err
	}
	v, err := result(ChainRef{Path: eventsFile, Events: seq, Head: head})
	if err != nil {
		return fmt.Errorf("result of run %s: %w", r.info.ID, err)
	}
	data, err := marshalIndent(v)
	if err != nil {
		return fmt.Errorf("result of run %s: %w", r.info.ID, err)
	}
	// The last line of run.jsonl comes last of all, and the audit chain knows before what it will be.
	now, last := r.store.now().UTC(), r.info
	last.State, last.OK, last.Cause, last.ExitCode, last.Ended = StateFinished, end.OK, end.Cause, end.ExitCode, &now
	_, record, err := encodeInfo(r.head, last)
	if err != nil {
		return err
	}
	entry, err := auditEntry(r.info.ID, EventEnd, auditEnd{Events: seq, Head: head, ResultSize: int64(len(data)), ResultSHA256: sumHex(data), Record: record})
	if err != nil {
		return err
	}
	// The contents go to the disk in one wait, before the result takes its name.
	res := newAtomicFile(filepath.Join(r.dir, resultFile))
	defer res.abandon()
	var contents, names errgroup.Group
	contents.Go(r.chain.sync)
	contents.Go(func() error { return res.write(data, true) })
	if err := contents.Wait(); err != nil {
		return err
	}
	if err := res.place(); err != nil {
		return err
	}
	if err := r.store.enter(false, entry); err != nil {
		return err
	}
	// The short record comes last: what says "finished" is finished.
	r.info = last
	if err := r.saveInfo(); err != nil {
		return err
	}
	names.Go(r.store.syncAudit)
	names.Go(r.file.Sync)
	names.Go(func() error { return syncDir(r.dir) })
	if err := names.Wait(); err != nil {
		return diskError("sync", r.dir, err)
	}
	return nil
}

// unsaidLogs are the parts of logs that no event points at yet: what the backend said, and how much of a stream was dropped.
func (r *Run) unsaidLogs() (refs []FileRef) {
	for _, s := range []Stream{Stdout, Stderr, BackendLog} {
		p := s.paths("")
		for _, name := range []string{p.plain, p.ring, p.pos} {
			if r.refs[name] {
				continue
			}
			if ref, err := r.Ref(name); err == nil { // most are not there
				refs = append(refs, ref)
			}
		}
	}
	return refs
}

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

// OpenLog opens the sink of a stream that keeps the last keep bytes; 0 keeps everything. A stream is opened once.
func (r *Run) OpenLog(s Stream, keep int64) (*LogWriter, error) { return newLogWriter(r.dir, s, keep) }

// Ref hashes a regular file of the run's directory, named by its slash path below it, for an event to point at.
func (r *Run) Ref(path string) (FileRef, error) {
	root, err := os.OpenRoot(r.dir)
	if err != nil {
		return FileRef{}, diskError("open", r.dir, err)
	}
	defer root.Close()
	return refFile(root, path)
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
