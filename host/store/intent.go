package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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
	Volatile  bool            `json:"volatile,omitempty"`
	Host      Process         `json:"host"`
	Plugin    Process         `json:"plugin,omitzero"` // of the backend, which cleans up by itself when the host is gone
	Created   time.Time       `json:"created"`
	Handle    json.RawMessage `json:"handle,omitempty"` // once allocated: what the backend needs to find it again
	Resources []Resource      `json:"resources,omitempty"`
}

// ResourceKind names a kind of [Resource].
type ResourceKind string

// The kinds of resources that the host itself can remove.
const (
	ResourceCgroup ResourceKind = "cgroup" // a cgroup directory: its processes are killed and it is removed
	ResourceDir    ResourceKind = "dir"    // a directory of our own: removed with all that is in it
	ResourceMount  ResourceKind = "mount"  // a mount point: unmounted lazily
	ResourceSocket ResourceKind = "socket" // a socket or FIFO: removed
)

// Resource is something outside the store that must not stay behind.
type Resource struct {
	Kind ResourceKind `json:"kind"`
	Path string       `json:"path"` // absolute
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

// Begin puts an intent on disk, with fsync unless it is volatile, and fills in Schema, Host and Created.
// Nothing may be made before it returns. It also makes the directory that the backend keeps its state in, [Paths.SandboxState].
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

// AddResources puts further resources on disk, before they are made.
func (r *IntentRecord) AddResources(res ...Resource) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range res {
		if !filepath.IsAbs(one.Path) || filepath.Clean(one.Path) != one.Path {
			return fmt.Errorf("resource %s %q of sandbox %s: the path must be absolute and clean", one.Kind, one.Path, r.ID)
		}
	}
	r.Resources = append(r.Resources, res...)
	return r.append()
}

// Fulfilled forgets the record and leaves everything where it is, once the record of a persistent sandbox says that it is
// ready: from then on that alone speaks for it.
func (r *IntentRecord) Fulfilled() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store.intents.done(r)
}

// Done forgets the intent after everything is destroyed, and removes the backend's directory ([Paths.SandboxState]). When
// that fails the intent stays, for gc to try again. A persistent sandbox's record is removed by [SandboxRecord.Forget] alone.
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
