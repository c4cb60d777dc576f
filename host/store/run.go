package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/safefile"
	"github.com/hutch-run/hutch/sdk/safepath"
)

// The directories of a run's directory. In calls a loop keeps what a model was sent and answered, and what tools were
// asked and answered.
const (
	codeDir   = "code"
	outputDir = "output"
	callsDir  = "calls"
)

// RunSchema is the schema of an [Info].
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

// Info is the short record of a run, schema hutch.run/v1: what the first, the last and the [EventInfo] events of its
// chain say.
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
	Hutch string `json:"hutch,omitempty"` // version of hutch
	Kind  Kind   `json:"kind,omitempty"`
	Name  string `json:"name"`
	File  string `json:"file"`
	placeData
	Host       Process         `json:"host"`
	Definition json.RawMessage `json:"definition,omitempty"` // the run as evaluated
}

// placeData is the data of [EventInfo].
type placeData struct {
	Backend string `json:"backend,omitempty"`
	Sandbox string `json:"sandbox,omitempty"`
}

// resumeData is the data of [EventResume].
type resumeData struct {
	Host Process `json:"host"`
}

// endData is the data of [EventEnd] in a run's chain.
type endData struct {
	OK       bool   `json:"ok"`
	Cause    string `json:"cause"`
	ExitCode *int   `json:"exit_code"`
	placeData
	Result json.RawMessage `json:"result,omitempty"`
}

func (i *Info) place() placeData { return placeData{i.Backend, i.Sandbox} }

// Run is a run that this process is recording.
type Run struct {
	record
	info    Info
	changed bool // what only an [EventInfo] says, which the next event brings along
	done    bool // finished or closed
}

// errDone is what a run says that has its result already.
var errDone = errors.New("the record of the run is closed")

// CreateRun makes the run's directory, the first event of its chain ([EventBegin]) and the entry in the audit chain.
// All of it survives the death of this process at once, and reaches the disk at the latest with [Run.Finish].
func (s *Store) CreateRun(n NewRun) (*Run, error) {
	id := n.ID
	if id == "" {
		id = s.NewID()
	}
	if !isRunID(id) {
		return nil, fmt.Errorf("run id %.60q is not one that the store gave out", id)
	}
	r := &Run{info: Info{
		Schema: RunSchema, ID: id, Kind: n.Kind, Name: n.Name, File: n.File, Backend: n.Backend, Parent: n.Parent,
		Sandbox: n.Sandbox, State: StateRunning, Started: s.now().UTC(), Host: Self(),
	}}
	r.open(s, id, s.paths.Run(id))
	r.code.content = s.paths.Content()
	if err := r.create(func(string) (Event, error) { return r.begin(n.Definition) }); err != nil {
		_ = r.close()
		return nil, fmt.Errorf("record run %s: %w", id, err)
	}
	return r, nil
}

func (r *Run) begin(definition any) (Event, error) {
	def, err := marshal(definition)
	if err != nil {
		return Event{}, fmt.Errorf("definition: %w", err)
	}
	i := r.info
	data, err := marshal(BeginData{r.store.version, i.Kind, i.Name, i.File, i.place(), i.Host, def})
	return Event{Run: i.ID, Type: EventBegin, Time: i.Started, Parent: i.Parent, Data: data}, err
}

// Info is the short record as it is now.
func (r *Run) Info() Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.info
}

// SetSandbox notes the name of the persistent sandbox that the run leaves.
func (r *Run) SetSandbox(name string) error { return r.setInfo(func(i *Info) { i.Sandbox = name }) }

// SetBackend notes which backend was chosen.
func (r *Run) SetBackend(name string) error { return r.setInfo(func(i *Info) { i.Backend = name }) }

func (r *Run) setInfo(set func(*Info)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return errDone
	}
	set(&r.info)
	r.changed = true
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
	return r.event(typ, data, files)
}

func (r *Run) event(typ EventType, data any, files []FileRef) error {
	var before []Event
	if r.changed {
		b, err := marshal(r.info.place())
		if err != nil {
			return err
		}
		before = []Event{{Run: r.id, Type: EventInfo, Data: b}}
	}
	_, err := r.append(typ, data, files, nil, before...)
	r.changed = r.changed && err != nil
	return err
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
	return r.close()
}

// refBytes points at a file that has the content b.
func refBytes(path string, b []byte) FileRef {
	return FileRef{Path: path, Size: int64(len(b)), SHA256: sumHex(b)}
}

func sumHex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// OutputDir is where collected outputs go. It is made when it is asked for, so that only runs with outputs have one.
func (r *Run) OutputDir() string {
	dir := filepath.Join(r.dir, outputDir)
	_ = os.Mkdir(dir, 0o700) // were that to fail, so would the first use of it, and say why
	return dir
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
	return refFile(context.Background(), root, path)
}

// WriteCall writes a file of a loop below calls/, whole or not at all, for an event to point at. A file of that name
// which no event points at, because its writer died, is replaced.
func (r *Run) WriteCall(name string, data []byte) (FileRef, error) {
	dir := filepath.Join(r.dir, callsDir)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return FileRef{}, diskError("make", dir, err)
	}
	if err := writeAtomic(filepath.Join(dir, name), data, false); err != nil {
		return FileRef{}, err
	}
	return FileRef{Path: path.Join(callsDir, name), Size: int64(len(data)), SHA256: sumHex(data)}, nil
}

// ReadRef reads a file that an event points at, of at most max bytes, and refuses one that is not what the event says.
func (r *Record) ReadRef(ref FileRef, max int64) ([]byte, error) {
	root, err := os.OpenRoot(r.Dir)
	if err != nil {
		return nil, diskError("read", r.Dir, err)
	}
	defer root.Close()
	b, err := safefile.ReadFile(root, filepath.FromSlash(ref.Path), max)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", r.ID, err)
	}
	if int64(len(b)) != ref.Size || sumHex(b) != ref.SHA256 {
		return nil, fmt.Errorf("run %s: %s is not what was recorded (see `hutch audit verify %s`)", r.ID, ref.Path, r.ID)
	}
	return b, nil
}

// End is how a run ended, for its last event.
type End struct {
	OK       bool
	Cause    string
	ExitCode *int      // nil when no program ended
	Files    []FileRef // further outputs that no event names yet
	Result   any       // stored as JSON, without a member `events`, which readers get with it

	// Sandbox is the persistent sandbox that the run was in, nil for none. The audit chain learns with the run's end how
	// far the sandbox's chain goes by what this process appended to it, so that what it says about the run cannot be cut
	// off.
	Sandbox *SandboxRecord
}

// ChainRef names the head of an event chain.
type ChainRef struct {
	Path   string `json:"path"`   // relative to the run's directory
	Events uint64 `json:"events"` // how many
	Head   string `json:"head"`   // hash of the last one
}

// Finish appends [EventEnd] with the result, enters it in the audit chain and returns the head of the chain. When it
// returns nil all of that is on disk; files that events point at are not forced there. The run takes no events
// afterwards, also when Finish failed: without its last event it then shows as interrupted once the process is gone.
func (r *Run) Finish(end End) (ChainRef, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return ChainRef{}, errDone
	}
	defer func() { _ = r.closeLocked() }() // everything that matters was synced and reported by then

	// The last event stands alone at the end, however many files there are.
	if len(end.Files) > 0 {
		if err := r.event(EventOutputs, nil, end.Files); err != nil {
			return ChainRef{}, err
		}
	}
	res, err := marshal(end.Result)
	if err != nil {
		return ChainRef{}, fmt.Errorf("result of run %s: %w", r.id, err)
	}
	now, last := r.store.now().UTC(), r.info
	last.State, last.OK, last.Cause, last.ExitCode, last.Ended = StateFinished, end.OK, end.Cause, end.ExitCode, &now
	data, err := marshal(endData{end.OK, end.Cause, end.ExitCode, last.place(), res})
	if err != nil {
		return ChainRef{}, err
	}
	seq, hash, err := r.chain.append(Event{Run: r.id, Type: EventEnd, Time: now, Data: data, Files: r.unnamedLogs()})
	if err != nil {
		return ChainRef{}, err
	}
	ended := []auditEntry{{EventEnd, r.id, auditHead{seq, hash}}}
	if end.Sandbox != nil {
		if head := end.Sandbox.appended(); head.Events > 0 {
			ended = append(ended, auditEntry{EventSandboxHead, end.Sandbox.id, head})
		}
	}
	if err := r.chain.sync(); err != nil {
		return ChainRef{}, err
	}
	if err := r.store.enter(ended...); err != nil {
		return ChainRef{}, err
	}
	if err := r.store.audit.sync(); err != nil {
		return ChainRef{}, err
	}
	r.info = last
	return ChainRef{Path: eventsFile, Events: seq, Head: hash}, r.chain.seal()
}

// unnamedLogs are the files of logs that no event points at yet: what the backend said, and how much of a stream was
// dropped.
func (r *Run) unnamedLogs() (refs []FileRef) {
	names, _ := readNames(r.dir)
	slices.Sort(names)
	for _, name := range names {
		if isLogFile(name) && !r.named[name] {
			if ref, err := r.Ref(name); err == nil {
				refs = append(refs, ref)
			}
		}
	}
	return refs
}

// ContinueRun takes over the record of a loop whose host process died, for this process to go on with it: one record,
// one chain. Its state must be [StateInterrupted]. Of two processes that try, one gets it and the other one
// [ErrRunning]. What the dead writer left of files that no event points at is removed.
func (s *Store) ContinueRun(id string) (*Run, error) {
	rec, err := s.Load(id)
	if err != nil {
		return nil, err
	}
	r := &Run{info: rec.Info}
	r.open(s, id, rec.Dir)
	if err := r.takeOver(); err != nil {
		_ = r.close()
		return nil, fmt.Errorf("go on with %s: %w", id, err)
	}
	return r, nil
}

func (r *Run) takeOver() error {
	dir, err := os.Open(r.dir)
	if err != nil {
		return diskError("open", r.dir, err)
	}
	defer dir.Close() // which unlocks it
	if err := lockFile(dir, unix.LOCK_EX); err != nil {
		return diskError("lock", r.dir, err)
	}
	switch r.info = r.store.readInfo(r.info.ID); { // once more: now nobody else takes it over
	case r.info.Kind == KindRun:
		return errors.New("it is a run, which cannot be gone on with")
	case r.info.State == StateRunning:
		return fmt.Errorf("%w (pid %d)", ErrRunning, r.info.Host.PID)
	case r.info.State == StateFinished:
		return errors.New("it has ended")
	case r.info.State != StateInterrupted:
		return errors.New(r.info.Damage)
	}
	if err := r.recall(); err != nil {
		return err
	}
	r.info.Host, r.info.State = Self(), StateRunning
	return r.event(EventResume, resumeData{r.info.Host}, nil)
}

// recall brings r up to what is on disk, and that into order.
func (r *Run) recall() error {
	if _, err := readChain(r.chain.path, func(n uint64, d decoded) error {
		if d.bad != nil {
			return fmt.Errorf("line %d of %s: %w (see `hutch audit verify %s`)", n, eventsFile, d.bad, r.info.ID)
		}
		for _, f := range d.event.Files {
			r.named[f.Path] = true
		}
		return nil
	}); err != nil {
		return err
	}
	return r.clearCalls()
}

// clearCalls removes the files below calls/ that no event points at.
func (r *Run) clearCalls() error {
	dir := filepath.Join(r.dir, callsDir)
	entries, err := entriesOf(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if r.named[path.Join(callsDir, e.Name())] || e.IsDir() {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return diskError("remove", filepath.Join(dir, e.Name()), err)
		}
	}
	return nil
}

// eventsFile is the event chain of a run or of a persistent sandbox, in its directory.
const eventsFile = "events.jsonl"

// record is the directory of a run or of a persistent sandbox: files, and the event chain that says what they are.
type record struct {
	store *Store
	id    string
	dir   string // absolute
	chain *chain
	code  codeWriter

	mu    sync.Mutex      // guards what the owner of the record changes, and the order of its events
	head  auditHead       // how far the chain goes by what this process appended
	named map[string]bool // files beside the chain that events point at
}

func (r *record) open(s *Store, id, dir string) {
	r.store, r.id, r.dir, r.code.dir, r.named = s, id, dir, filepath.Join(dir, codeDir), map[string]bool{}
	r.chain = newChain(filepath.Join(dir, eventsFile), s.now)
}

// create makes the directory, lets fill write its files, appends the event that fill returns and enters it in the
// audit chain. The directory takes its name when it is complete, so nobody ever sees half a record.
func (r *record) create(fill func(dir string) (Event, error)) (err error) {
	tmp := tempPath(r.dir)
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return diskError("make", tmp, err)
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(tmp)
		}
	}()
	begin, err := fill(tmp)
	if err != nil {
		return err
	}
	path := r.chain.path // the file is opened under its temporary name; the descriptor follows the directory
	r.chain.path = filepath.Join(tmp, eventsFile)
	seq, head, err := r.chain.append(begin)
	r.chain.path = path
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, r.dir); err != nil {
		return diskError("make", r.dir, err)
	}
	if err := r.store.enter(auditEntry{begin.Type, r.id, auditHead{seq, head}}); err != nil {
		_ = discard(r.dir)
		return err
	}
	return nil
}

// append appends an event, or several of the same type where its files do not fit into one: the first has the
// data. They follow the events before, in the same write. It calls then, unless it is nil, while nobody else can
// append. The caller holds the mutex.
func (r *record) append(
	typ EventType, data any, files []FileRef, then func() error, before ...Event) (auditHead, error) {
	b, err := marshalData(typ, data)
	if err != nil {
		return auditHead{}, err
	}
	events := before
	for _, piece := range splitFiles(files) {
		events = append(events, Event{Run: r.id, Type: typ, Data: b, Files: piece})
		b = nil
	}
	seq, head, err := r.chain.appendThen(then, events...)
	if seq > 0 {
		r.head = auditHead{Events: seq, Head: head}
		for _, f := range files {
			if path.Base(f.Path) == f.Path { // of others there may be many
				r.named[f.Path] = true
			}
		}
	}
	return auditHead{Events: seq, Head: head}, err
}

// ID is the id of the run or sandbox.
func (r *record) ID() string { return r.id }

// Dir is the directory of the record, absolute.
func (r *record) Dir() string { return r.dir }

// CodeDir is where WriteCode puts files. It exists once there is one.
func (r *record) CodeDir() string { return r.code.dir }

// WriteCode writes one declared file below code/. The path must be safe (package safepath); a file that exists is an
// error. Only the permission bits of mode count, and the owner may always read. Concurrent calls are fine.
func (r *record) WriteCode(name string, mode fs.FileMode, content io.Reader) (FileRef, error) {
	if err := safepath.Check(name); err != nil {
		return FileRef{}, err
	}
	ref, err := r.code.write(name, mode.Perm()|0o400, content)
	if err != nil {
		return FileRef{}, diskError("write", filepath.Join(r.code.dir, filepath.FromSlash(name)), err)
	}
	return ref, nil
}

// close closes the code directory and the chain.
func (r *record) close() error { return errors.Join(r.code.close(), r.chain.close()) }

// removeRecord removes a directory and enters that in the audit chain. The entry comes first: a record that is gone
// without one looks like tampering, one that is still there does not. A full disk only delays it, because removing
// makes room.
func (s *Store) removeRecord(typ EventType, id, dir string, data any) error {
	entry := auditEntry{typ, id, data}
	entered := s.enter(entry)
	if entered != nil && !errors.Is(entered, ErrFull) {
		return entered
	}
	if err := discard(dir); err != nil {
		return err
	}
	if entered != nil {
		return s.enter(entry)
	}
	return nil
}
