package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
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

// An intent is a file of its own, ID.jsonl. It appears as a whole, and each later version is a line that is appended:
// the last complete line counts, so a writer may die at any moment. A file without one lost its content in a power cut,
// which only happens to volatile intents.

const intentSuffix = ".jsonl"

// IntentRecord is an intent on disk. Its methods are safe for concurrent use; read its fields only while none runs.
type IntentRecord struct {
	Intent
	store *Store
	mu    sync.Mutex
}

func (r *IntentRecord) path() string {
	return filepath.Join(r.store.paths.Intents(), r.ID+intentSuffix)
}

// line is the intent as it stands in its file.
func (r *IntentRecord) line() ([]byte, error) {
	b, err := json.Marshal(r.Intent)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", r.path(), err)
	}
	return append(b, '\n'), nil
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
	i.Schema, i.Host, i.Created, i.Home = IntentSchema, Self(), s.now().UTC(), s.paths.Data
	r := &IntentRecord{Intent: i, store: s}
	state := s.paths.SandboxState(i.ID)
	for _, path := range []string{state, r.path()} {
		if _, err := os.Lstat(path); err == nil {
			return nil, fmt.Errorf("sandbox %s is there already (%s)", i.ID, path)
		}
	}
	line, err := r.line()
	if err != nil {
		return nil, err
	}
	if err := writeAtomic(r.path(), line, !i.Volatile); err != nil {
		return nil, err
	}
	if !i.Volatile {
		err = syncDir(s.paths.Intents())
	}
	if err == nil {
		if err = os.Mkdir(state, 0o700); err != nil {
			err = diskError("make", state, err)
		}
	}
	if err != nil {
		return nil, errors.Join(err, r.Done())
	}
	return r, nil
}

// SetHandle puts the sandbox's handle on disk.
func (r *IntentRecord) SetHandle(h json.RawMessage) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Handle = slices.Clone(h); len(h) == 0 { // something was made, although its backend needs nothing to find it
		r.Handle = json.RawMessage("null")
	}
	line, err := r.line()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(r.path(), os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return diskError("write", r.path(), err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = f.Write(line)
	}
	if err == nil && !r.Volatile {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Truncate(size)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return diskError("write", r.path(), err)
	}
	return nil
}

// Commit forgets the intent and leaves everything where it is, once the record of a persistent sandbox says that it is
// ready: from then on only that counts. There is no fsync: an intent that comes back after a power cut describes what
// is gone, and destroying that succeeds.
func (r *IntentRecord) Commit() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.forget()
}

func (r *IntentRecord) forget() error {
	if err := os.Remove(r.path()); err != nil && !errors.Is(err, fs.ErrNotExist) { // else a gc was faster
		return diskError("remove", r.path(), err)
	}
	return nil
}

// Done forgets the intent after everything is destroyed, and removes the backend's directory ([Paths.SandboxState]).
// When that fails the intent stays, for gc to try again. A persistent sandbox's record is removed by
// [SandboxRecord.Remove] alone.
func (r *IntentRecord) Done() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.store.paths.SandboxState(r.ID)
	if err := removeAll(state); err != nil {
		return diskError("remove", state, err)
	}
	return r.forget()
}

// Intent reads the intent of one sandbox; one that has none gives an error that is [fs.ErrNotExist].
func (s *Store) Intent(id string) (*IntentRecord, error) {
	if !isSandboxID(id) {
		return nil, fmt.Errorf("sandbox %.80q: %w", id, fs.ErrNotExist)
	}
	path := filepath.Join(s.paths.Intents(), id+intentSuffix)
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, diskError("read", path, err)
	}
	i, err := decodeIntent(id, b)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return &IntentRecord{Intent: i, store: s}, nil
}

// decodeIntent reads the last complete line of an intent's file. Without one only the id is known.
func decodeIntent(id string, b []byte) (Intent, error) {
	lines := bytes.Split(b, []byte{'\n'})
	if len(lines) < 2 {
		return Intent{ID: id}, nil
	}
	var i Intent
	err := json.Unmarshal(lines[len(lines)-2], &i)
	if err == nil && (i.Schema != IntentSchema || i.ID != id) {
		err = fmt.Errorf("schema %.40q, sandbox %.80q", i.Schema, i.ID)
	}
	if err != nil {
		return Intent{}, fmt.Errorf("line %d is not the intent of sandbox %s: %w", len(lines)-1, id, err)
	}
	return i, nil
}

// Intents returns every intent on disk, oldest first. A file that cannot be read is reported in the error while the
// others are returned.
func (s *Store) Intents() ([]*IntentRecord, error) {
	entries, err := entriesOf(s.paths.Intents())
	if err != nil {
		return nil, err
	}
	var list []*IntentRecord
	var errs []error
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), intentSuffix)
		if !ok || !isSandboxID(id) {
			continue
		}
		r, err := s.Intent(id)
		switch {
		case err == nil:
			list = append(list, r)
		case !errors.Is(err, fs.ErrNotExist): // else it is done meanwhile
			errs = append(errs, err)
		}
	}
	slices.SortStableFunc(list, func(a, b *IntentRecord) int { return a.Created.Compare(b.Created) })
	return list, errors.Join(errs...)
}
