package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/safepath"
)

// The files of a persistent sandbox's directory, besides events.jsonl and code/.
const (
	sandboxFile        = "sandbox.json"
	sandboxPrivateFile = "private.json"
	sandboxLockFile    = "lock"
	sandboxInputDir    = "input"
	baseFile           = "base"
	filesLockFile      = "files.lock" // of host/files
	newMark            = ".new"       // follows the name of a base that is being written
)

// replaced reports whether a file of the record is one that is rewritten, each time with an event before.
func replaced(name string) bool {
	return name == sandboxFile || name == sandboxPrivateFile || name == baseFile
}

// SandboxRecord is a persistent sandbox that this process holds a lock on. Its methods may be called concurrently, but
// for Close and Forget.
type SandboxRecord struct {
	store *Store
	dir   string
	lock  *os.File
	code  codeWriter

	mu    sync.Mutex
	info  SandboxInfo
	chain *chain    // opened by the first event
	head  auditHead // the furthest that this process appended
}

// BeginSandbox puts the record of a sandbox that is about to be made on disk, in state [SandboxCreating], and locks it
// alone until it is closed. It fills in what the store knows: an ID where there is none, the name, the times. Without
// a name one is derived from want, such as want, want-2, want-3. A name that is not free is [ErrNameTaken].
func (s *Store) BeginSandbox(n SandboxInfo, want string) (*SandboxRecord, error) {
	if n.ID == "" {
		n.ID = s.NewID()
	}
	if !isRunID(n.ID) {
		return nil, fmt.Errorf("sandbox id %.60q is not one that the store gave out", n.ID)
	}
	names, err := s.lockNames()
	if err != nil {
		return nil, err
	}
	defer names.Close()
	if n.Name, err = s.freeName(n.Name, want); err != nil {
		return nil, err
	}
	n.Schema, n.State, n.Created, n.Host, n.Owner, n.Home = SandboxSchema, SandboxCreating, s.now().UTC(), Self(), s.Owner(), s.paths.Data
	r := &SandboxRecord{store: s, dir: s.paths.Sandbox(n.ID), info: n}
	// The directory takes its name when it is complete, so nobody ever sees half a record.
	tmp := tempPath(r.dir)
	head, err := r.prepare(tmp)
	if err == nil {
		if err = os.Rename(tmp, r.dir); err != nil {
			err = diskError("make", r.dir, err)
		}
	}
	if err == nil {
		var entry Event
		if entry, err = auditEntry(n.ID, EventSandboxBegin, auditBegin{Head: head}); err == nil {
			err = s.enter(false, entry)
		}
	}
	if err != nil {
		_ = os.RemoveAll(tmp)
		_ = discard(r.dir)
		_ = r.Close()
		return nil, fmt.Errorf("record sandbox %s: %w", n.Name, err)
	}
	return r, nil
}

// prepare fills the directory of a new sandbox and returns the hash of its first event.
func (r *SandboxRecord) prepare(dir string) (head string, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", diskError("make", dir, err)
	}
	if r.lock, err = os.OpenFile(filepath.Join(dir, sandboxLockFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return "", diskError("write", filepath.Join(dir, sandboxLockFile), err)
	}
	if err := tryLock(r.lock, unix.LOCK_EX); err != nil {
		return "", diskError("lock", dir, err)
	}
	data, err := marshalIndent(r.info)
	if err != nil {
		return "", err
	}
	if err := writeNew(filepath.Join(dir, sandboxFile), data); err != nil {
		return "", err
	}
	// As that of a run, the chain is opened under its temporary name; its descriptor follows the directory.
	if r.chain, err = openChain(filepath.Join(dir, eventsFile), r.store.now); err != nil {
		return "", err
	}
	begin, err := marshalData(EventSandboxBegin, map[string]any{"name": r.info.Name, "backend": r.info.Backend, "host": r.info.Host})
	if err != nil {
		return "", err
	}
	_, head, err = r.chain.append(Event{Run: r.info.ID, Type: EventSandboxBegin, Time: r.info.Created, Parent: r.info.MadeBy, Data: begin,
		Files: []FileRef{{Path: sandboxFile, Size: int64(len(data)), SHA256: sumHex(data)}}})
	r.chain.path = filepath.Join(r.dir, eventsFile)
	r.code.dir = filepath.Join(r.dir, codeDir)
	return head, err
}

// ID is the sandbox's id.
func (r *SandboxRecord) ID() string { return r.info.ID }

// Info is the record as it is now.
func (r *SandboxRecord) Info() SandboxInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.info
}

// Dir is the directory of the record, absolute.
func (r *SandboxRecord) Dir() string { return r.dir }

// Base is where [Paths.SandboxBase] lies; the file need not exist.
func (r *SandboxRecord) Base() string { return r.store.paths.SandboxBase(r.info.ID) }

// NewBase is where a base is written that will take the place of Base, see [SandboxRecord.PlaceBase].
func (r *SandboxRecord) NewBase() string { return r.Base() + newMark }

// CodeDir is where [SandboxRecord.WriteCode] puts files. It exists once there is one.
func (r *SandboxRecord) CodeDir() string { return filepath.Join(r.dir, codeDir) }

// InputDir makes the directory for input that must last as long as the sandbox and is not in CodeDir.
func (r *SandboxRecord) InputDir() (string, error) {
	dir := filepath.Join(r.dir, sandboxInputDir)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", diskError("make", dir, err)
	}
	// What keeps others out is the directory above; the sandbox's user may be somebody else.
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", diskError("make", dir, err)
	}
	return dir, nil
}

// WriteCode is as [Run.WriteCode].
func (r *SandboxRecord) WriteCode(name string, mode fs.FileMode, content io.Reader) (FileRef, error) {
	if err := safepath.Check(name); err != nil {
		return FileRef{}, err
	}
	ref, err := r.code.write(name, mode.Perm()|0o400, content)
	if err != nil {
		return FileRef{}, diskError("write", filepath.Join(r.CodeDir(), filepath.FromSlash(name)), err)
	}
	return ref, nil
}

// Event appends one event to the sandbox's chain, as [Run.Event] does to that of a run. Any number of processes append
// to one chain.
func (r *SandboxRecord) Event(typ EventType, data any, files ...FileRef) error {
	_, err := r.event(typ, data, files...)
	return err
}

// Changed appends one event about something that was changed by hand, and enters in the audit chain how far the
// sandbox's chain goes now, so that [Store.VerifySandbox] notices when the event is cut off its end.
func (r *SandboxRecord) Changed(typ EventType, data any) error {
	head, err := r.event(typ, data)
	if err != nil {
		return err
	}
	return r.store.enterHead(r.info.ID, head)
}

// enterHead enters in the audit chain how far the chain of a sandbox goes.
func (s *Store) enterHead(id string, head auditHead) error {
	entry, err := auditEntry(id, EventSandboxHead, head)
	if err != nil {
		return err
	}
	return s.enter(false, entry)
}

// event is Event, and tells how far the chain goes with it.
func (r *SandboxRecord) event(typ EventType, data any, files ...FileRef) (auditHead, error) {
	b, err := marshalData(typ, data)
	if err != nil {
		return auditHead{}, err
	}
	var events []Event
	for _, piece := range splitFiles(files) {
		events = append(events, Event{Run: r.info.ID, Type: typ, Data: b, Files: piece})
		b = nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.append(func() error { return nil }, events...)
}

// append is [chain.appendThen]. The caller holds the mutex.
func (r *SandboxRecord) append(then func() error, events ...Event) (_ auditHead, err error) {
	if r.chain == nil {
		if r.chain, err = openChain(filepath.Join(r.dir, eventsFile), r.store.now); err != nil {
			return auditHead{}, err
		}
	}
	seq, head, err := r.chain.appendThen(then, events...)
	if err == nil {
		r.head = auditHead{Events: seq, Head: head}
	}
	return auditHead{Events: seq, Head: head}, err
}

// said tells how far the chain goes by what this process appended to it; nil if that was nothing.
func (r *SandboxRecord) said() *auditBox {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.head.Events == 0 {
		return nil
	}
	return &auditBox{ID: r.info.ID, auditHead: r.head}
}

// replace writes a file of the record again, and says so in the chain just before the file is there.
func (r *SandboxRecord) replace(name string, data []byte) error {
	f := newAtomicFile(filepath.Join(r.dir, name))
	defer f.abandon()
	if err := f.write(data, true); err != nil {
		return err
	}
	head, err := r.append(f.place, Event{Run: r.info.ID, Type: EventSandboxRecord, Files: []FileRef{{Path: name, Size: int64(len(data)), SHA256: sumHex(data)}}})
	if err != nil {
		return err
	}
	return r.store.enterHead(r.info.ID, head)
}

// PlaceBase puts a new base, written to NewBase, in its place.
func (r *SandboxRecord) PlaceBase() error { return r.store.PlaceSandboxBase(r.info.ID) }

// SandboxBase is [Paths.SandboxBase].
func (s *Store) SandboxBase(id string) string { return s.paths.SandboxBase(id) }

// SandboxesOf are the ids of the sandboxes whose workspace was made from a project, or to which its branch was pushed.
func (s *Store) SandboxesOf(project string) ([]string, error) {
	all, err := s.Sandboxes()
	var ids []string
	for _, i := range all {
		if i.Workspace.Source == project || i.Push != nil && i.Push.Repository == project {
			ids = append(ids, i.ID)
		}
	}
	return ids, err
}

// PlaceSandboxBase is [SandboxRecord.PlaceBase] for callers that have the sandbox's id and not its record.
func (s *Store) PlaceSandboxBase(id string) error {
	dir := s.paths.Sandbox(id)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return diskError("open", dir, err)
	}
	defer root.Close()
	ref, err := refFile(root, baseFile+newMark)
	if err != nil {
		return err
	}
	ref.Path = baseFile
	c, err := openChain(filepath.Join(dir, eventsFile), s.now)
	if err != nil {
		return err
	}
	seq, head, err := c.appendThen(func() error { return root.Rename(baseFile+newMark, baseFile) }, Event{Run: id, Type: EventSandboxRecord, Files: []FileRef{ref}})
	if err = errors.Join(err, c.close()); err != nil {
		return diskError("write", s.paths.SandboxBase(id), err)
	}
	return s.enterHead(id, auditHead{Events: seq, Head: head})
}

// Update changes the record by fn. When it returns nil the new record is on the disk, and a process that reads the record
// afterwards, after a power cut too, reads it or a later one.
func (r *SandboxRecord) Update(fn func(*SandboxInfo)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.info
	fn(&next)
	data, err := marshalIndent(next)
	if err != nil {
		return err
	}
	if err := r.replace(sandboxFile, data); err != nil {
		return err
	}
	if err := r.chain.sync(); err != nil {
		return err
	}
	if err := errors.Join(syncDir(r.dir), syncDir(r.store.paths.Sandboxes())); err != nil {
		return err
	}
	r.info = next
	return nil
}

// Forget removes the record and the backend's directory ([Paths.SandboxState]) after everything else of the sandbox is
// gone, says so in the audit chain, and closes. The caller holds the lock alone.
func (r *SandboxRecord) Forget() error {
	state := r.store.paths.SandboxState(r.info.ID)
	if err := removeAll(state); err != nil {
		return diskError("remove", state, err)
	}
	entry, err := auditEntry(r.info.ID, EventSandboxRemoved, map[string]any{"name": r.info.Name, "state": r.info.State})
	if err != nil {
		return err
	}
	// Said first, as by Remove; a full disk must not keep anybody from making room.
	said := r.store.enter(false, entry)
	if said != nil && !errors.Is(said, ErrFull) {
		return said
	}
	if err := discard(r.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if said != nil {
		if err := r.store.enter(false, entry); err != nil {
			return err
		}
	}
	return r.Close()
}

// Close gives the lock back. A second call does nothing.
func (r *SandboxRecord) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lock == nil {
		return nil
	}
	errs := []error{r.code.close(), r.lock.Close()}
	r.lock = nil
	if r.chain != nil {
		errs = append(errs, r.chain.close())
		r.chain = nil
	}
	return errors.Join(errs...)
}
