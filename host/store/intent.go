package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// IntentSchema is the schema of an intent record.
const IntentSchema = "hutch.intent/v1"

// Intent says, before it happens, what is about to be made outside this process, so that a later process can unmake it.
type Intent struct {
	Schema       string `json:"schema"`        // hutch.intent/v1
	ID           string `json:"id"`            // of the sandbox: 1 to 64 of a-z, 0-9 and '-'
	Run          string `json:"run,omitempty"` // the run it was made for
	Backend      string `json:"backend"`
	Binary       string `json:"binary"`        // path of the plugin
	BinarySHA256 string `json:"binary_sha256"` // hex; may be empty
	Owner        string `json:"owner,omitempty"`
	Home         string `json:"home,omitempty"` // Paths.Data of the store that it belongs to
	// Volatile says that nothing of what is made survives a reboot but the backend's state directory: processes,
	// namespaces, mounts. The record then need not survive a power cut either, and is not forced to the disk; a later
	// gc finds a state directory without a record by itself.
	Volatile bool            `json:"volatile,omitempty"`
	Host     Process         `json:"host"`
	Plugin   Process         `json:"plugin,omitzero"` // of the backend, which cleans up by itself when the host is gone
	Created  time.Time       `json:"created"`
	Handle   json.RawMessage `json:"handle,omitempty"` // once allocated: what the backend needs to find it again
}

// IntentRecord is an intent on disk. Its methods are safe for concurrent use; read its fields only while none runs.
type IntentRecord struct {
	Intent
	store *Store
	file  string
	mu    sync.Mutex
}

// isSandboxID says whether id is 1 to 64 of a-z, 0-9 and '-'.
func isSandboxID(id string) bool {
	return id != "" && len(id) <= 64 && madeOf(id, letters+digits+"-")
}

// Begin puts an intent on disk, with fsync unless it is volatile, and fills in Schema, Host and Created. Nothing may
// be made before it returns. It also makes the directory that the backend keeps its state in, [Paths.SandboxState].
func (s *Store) Begin(i Intent) (*IntentRecord, error) {
	if !isSandboxID(i.ID) {
		return nil, fmt.Errorf("sandbox id %.80q: it must be 1 to 64 of a-z, 0-9 and '-'", i.ID)
	}
	state := s.paths.SandboxState(i.ID)
	if _, err := os.Lstat(state); err == nil {
		return nil, fmt.Errorf("sandbox %s is there already (%s)", i.ID, state)
	}
	i.Schema, i.Host, i.Created, i.Home = IntentSchema, Self(), s.now().UTC(), s.paths.Data
	file, err := s.intents.claim(i.ID, !i.Volatile)
	if err != nil {
		return nil, err
	}
	r := &IntentRecord{Intent: i, store: s, file: file}
	if err := r.append(); err != nil {
		s.intents.release(i.ID)
		return nil, err
	}
	if err := os.Mkdir(state, 0o700); err != nil {
		return nil, errors.Join(diskError("make", state, err), r.Done())
	}
	return r, nil
}

// append puts the intent as it is now on disk.
func (r *IntentRecord) append() error { return appendIntent(r.file, r.Intent, !r.Volatile) }

// SetHandle puts the sandbox's handle on disk.
func (r *IntentRecord) SetHandle(h json.RawMessage) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Handle = slices.Clone(h)
	return r.append()
}

// Commit forgets the record and leaves everything where it is, once the record of a persistent sandbox says that it is
// ready: from then on only that counts.
func (r *IntentRecord) Commit() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store.intents.done(r)
}

// Done forgets the intent after everything is destroyed, and removes the backend's directory ([Paths.SandboxState]).
// When that fails the intent stays, for gc to try again. A persistent sandbox's record is removed by
// [SandboxRecord.Forget] alone.
func (r *IntentRecord) Done() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.store.paths.SandboxState(r.ID)
	if err := removeAll(state); err != nil {
		return diskError("remove", state, err)
	}
	return r.store.intents.done(r)
}

// Intent reads the record of one sandbox; one that has none gives an error that is [fs.ErrNotExist].
func (s *Store) Intent(id string) (*IntentRecord, error) {
	list, err := s.Intents()
	for _, r := range list {
		if r.ID == id {
			return r, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("sandbox %.80q: %w", id, fs.ErrNotExist)
	}
	return nil, err
}

// Intents returns every intent on disk, oldest first. A file that cannot be read is reported in the error while the
// others are returned.
func (s *Store) Intents() ([]*IntentRecord, error) {
	entries, err := os.ReadDir(s.paths.Intents())
	if err != nil {
		return nil, diskError("read", s.paths.Intents(), err)
	}
	var list []*IntentRecord
	var errs []error
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), intentSuffix) {
			continue
		}
		path := filepath.Join(s.paths.Intents(), e.Name())
		intents, err := readIntents(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // else it is done meanwhile
			errs = append(errs, err)
		}
		for _, i := range intents {
			list = append(list, &IntentRecord{Intent: i, store: s, file: path})
		}
	}
	slices.SortStableFunc(list, func(a, b *IntentRecord) int { return a.Created.Compare(b.Created) })
	return list, errors.Join(errs...)
}

// Orphans returns the intents whose host process is gone. The error is as for [Store.Intents].
func (s *Store) Orphans() ([]*IntentRecord, error) {
	list, err := s.Intents()
	return slices.DeleteFunc(list, func(r *IntentRecord) bool { return r.Host.Alive() }), err
}

// Each process has one file of intents, made with its first and removed when the store is closed with none left. A
// line is an intent as it is from then on, or says that it is done. So recording and forgetting a sandbox are appends,
// where its own file would have to be made and removed each time, which some file systems take badly.

const intentSuffix = ".jsonl"

// intentDone is the line that ends an intent.
type intentDone struct {
	Schema string `json:"schema"`
	ID     string `json:"id"`
	Done   bool   `json:"done"`
}

// intentLog is this process's file of intents.
type intentLog struct {
	dir string

	mu     sync.Mutex
	path   string // empty until there is one
	placed bool   // its name is on disk
	active map[string]bool
}

// claim takes a place for an intent and returns the file that it goes into.
//
// With persistent, the file's name is on disk too when claim returns. Intents that need not outlive a reboot are
// spared the wait for that.
func (l *intentLog) claim(id string, persistent bool) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.active[id] {
		return "", fmt.Errorf("sandbox %s is there already", id)
	}
	if l.path == "" {
		path := filepath.Join(l.dir, ownedName()+intentSuffix)
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return "", diskError("write", path, err)
		}
		f.Close()
		l.path, l.placed, l.active = path, false, map[string]bool{}
	}
	if persistent && !l.placed {
		if err := syncDir(l.dir); err != nil {
			return "", err
		}
		l.placed = true
	}
	l.active[id] = true
	return l.path, nil
}

func (l *intentLog) release(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.active, id)
}

// done ends an intent of this process or of one that is gone. No fsync: an intent that comes back after a power cut
// describes what is gone, and destroying that succeeds.
func (l *intentLog) done(r *IntentRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.file != l.path {
		err := appendIntent(r.file, intentDone{IntentSchema, r.ID, true}, false)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a gc was faster
		}
		return err
	}
	delete(l.active, r.ID)
	if len(l.active) > 0 {
		return appendIntent(r.file, intentDone{IntentSchema, r.ID, true}, false)
	}
	if err := os.Truncate(l.path, 0); err != nil { // nothing is left in it: so it never grows long
		return diskError("write", l.path, err)
	}
	return nil
}

// close removes the file if nothing is left in it.
func (l *intentLog) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == "" || len(l.active) > 0 {
		return nil
	}
	path := l.path
	l.path = ""
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return diskError("remove", path, err)
	}
	return nil
}

// appendIntent appends one line to a file of intents, which must exist. When the disk takes only a part of the line
// that part is taken back.
func appendIntent(path string, v any, sync bool) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return diskError("write", path, err)
	}
	defer f.Close()
	if err := lockFile(f, unix.LOCK_EX); err != nil {
		return diskError("lock", path, err)
	}
	if !sameFile(f, path) {
		return diskError("write", path, fs.ErrNotExist) // a gc took it while we waited
	}
	return appendLine(f, path, v, sync)
}

// appendLine appends v as one line of JSON, after cutting off what a writer that died left of a line.
func appendLine(f *os.File, path string, v any, sync bool) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return appendBytes(f, path, append(line, '\n'), sync)
}

// appendBytes appends a whole line, newline included.
func appendBytes(f *os.File, path string, line []byte, sync bool) error {
	fi, err := f.Stat()
	if err != nil {
		return diskError("write", path, err)
	}
	size := fi.Size()
	if end, err := lastNewline(f, size); err != nil {
		return diskError("read", path, err)
	} else if end+1 < size {
		if err := f.Truncate(end + 1); err != nil {
			return diskError("write", path, err)
		}
		size = end + 1
	}
	if _, err = f.Write(line); err == nil && sync {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Truncate(size)
		return diskError("write", path, err)
	}
	return nil
}

// readIntents returns the intents in a file that are not done, as they were last. Half a line at the end belongs to a
// call that never returned, and does not count.
func readIntents(path string) ([]Intent, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, diskError("read", path, err)
	}
	var ids []string
	last := map[string]Intent{}
	var bad error
	for n := 1; ; n++ {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			break
		}
		var line struct {
			Intent
			Done bool `json:"done"`
		}
		err := json.Unmarshal(b[:i], &line)
		b = b[i+1:]
		switch {
		case err == nil && (line.Schema != IntentSchema || !isSandboxID(line.ID)):
			err = fmt.Errorf("schema %.40q, sandbox %.80q", line.Schema, line.ID)
			fallthrough
		case err != nil:
			if bad == nil {
				bad = fmt.Errorf("read %s: line %d is not an intent: %w", path, n, err)
			}
		case line.Done:
			delete(last, line.ID)
		default:
			if _, known := last[line.ID]; !known {
				ids = append(ids, line.ID)
			}
			last[line.ID] = line.Intent
		}
	}
	var list []Intent
	for _, id := range ids {
		if i, ok := last[id]; ok {
			list = append(list, i)
			delete(last, id) // an id that was used again stands in ids twice
		}
	}
	return list, bad
}
