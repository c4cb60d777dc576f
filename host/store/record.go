package store

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/hutch-run/hutch/sdk/safepath"
)

// eventsFile is the event chain of a run or of a persistent sandbox, in its directory.
const eventsFile = "events.jsonl"

// record is the directory of a run or of a persistent sandbox: files, and the event chain that says what they are.
type record struct {
	store *Store
	id    string
	dir   string // absolute
	chain *chain
	code  codeWriter

	mu   sync.Mutex // guards what the owner of the record changes, and the order of its events
	head auditHead  // how far the chain goes by what this process appended
}

func (r *record) open(s *Store, id, dir string) {
	r.store, r.id, r.dir, r.code.dir = s, id, dir, filepath.Join(dir, codeDir)
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
	_, head, err := r.chain.append(begin)
	r.chain.path = path
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, r.dir); err != nil {
		return diskError("make", r.dir, err)
	}
	if err := r.store.enter(begin.Type, r.id, auditBegin{Head: head}); err != nil {
		_ = discard(r.dir)
		return err
	}
	return nil
}

// append appends an event, or several of the same type where its files do not fit into one: the first has the
// data. It calls then, unless it is nil, while nobody else can append. The caller holds the mutex.
func (r *record) append(typ EventType, data any, files []FileRef, then func() error) (auditHead, error) {
	b, err := marshalData(typ, data)
	if err != nil {
		return auditHead{}, err
	}
	var events []Event
	for _, piece := range splitFiles(files) {
		events = append(events, Event{Run: r.id, Type: typ, Data: b, Files: piece})
		b = nil
	}
	seq, head, err := r.chain.appendThen(then, events...)
	if seq > 0 {
		r.head = auditHead{Events: seq, Head: head}
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
	entered := s.enter(typ, id, data)
	if entered != nil && !errors.Is(entered, ErrFull) {
		return entered
	}
	if err := discard(dir); err != nil {
		return err
	}
	if entered != nil {
		return s.enter(typ, id, data)
	}
	return nil
}
