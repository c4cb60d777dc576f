package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
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
	Keep         bool   `json:"keep,omitempty"` // the sandbox shall outlive its host: never an orphan
	// Volatile says that nothing of what is made survives a reboot but the backend's state directory: processes,
	// namespaces, mounts. The record then need not survive a power cut either, and is not forced to the disk; a later
	// gc finds a state directory without a record by itself.
	Volatile  bool            `json:"volatile,omitempty"`
	Host      Process         `json:"host"`
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

// IntentRecord is an intent on disk: a file with the intent in one line, and again in a further line for each change, so
// that a change is one append. The last complete line counts. Its methods are safe for concurrent use; read its fields only while none runs.
type IntentRecord struct {
	Intent
	store *Store
	mu    sync.Mutex
}

const intentSuffix = ".jsonl"

var sandboxPattern = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

// Begin puts an intent on disk, with fsync unless it is volatile, and fills in Schema, Host and Created. Nothing may be made before it
// returns. It also makes the directory that the backend keeps its state in, [Paths.SandboxState].
func (s *Store) Begin(i Intent) (*IntentRecord, error) {
	if !sandboxPattern.MatchString(i.ID) {
		return nil, fmt.Errorf("sandbox id %.80q: it must be 1 to 64 of a-z, 0-9 and '-'", i.ID)
	}
	i.Schema, i.Host, i.Created = IntentSchema, Self(), s.now().UTC()
	r := &IntentRecord{Intent: i, store: s}
	if err := r.append(os.O_CREATE | os.O_EXCL); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("sandbox %s is there already (%s)", i.ID, r.path())
		}
		return nil, err
	}
	if !i.Volatile {
		if err := syncDir(s.paths.Intents()); err != nil {
			return nil, errors.Join(err, r.Done())
		}
	}
	state := s.paths.SandboxState(i.ID)
	if err := os.Mkdir(state, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, errors.Join(diskError("make", state, err), r.Done())
	}
	return r, nil
}

func (r *IntentRecord) path() string {
	return filepath.Join(r.store.paths.Intents(), r.ID+intentSuffix)
}

// append puts the intent as it is now into its file. When the disk takes only a part of it that part is taken back.
func (r *IntentRecord) append(flags int) error {
	line, err := json.Marshal(r.Intent)
	if err != nil {
		return fmt.Errorf("intent of sandbox %s: %w", r.ID, err)
	}
	f, err := os.OpenFile(r.path(), os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW|flags, 0o600)
	if err != nil {
		return diskError("write", r.path(), err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return diskError("write", r.path(), err)
	}
	if _, err = f.Write(append(line, '\n')); err == nil && !r.Volatile {
		err = f.Sync()
	}
	if err != nil {
		if flags&os.O_CREATE != 0 {
			_ = os.Remove(r.path())
		} else {
			_ = f.Truncate(fi.Size())
		}
		return diskError("write", r.path(), err)
	}
	return nil
}

// SetHandle puts the sandbox's handle on disk.
func (r *IntentRecord) SetHandle(h json.RawMessage) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Handle = slices.Clone(h)
	return r.append(0)
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
	return r.append(0)
}

// SetKeep notes that the sandbox shall outlive this process, or no longer.
func (r *IntentRecord) SetKeep(keep bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Keep = keep
	return r.append(0)
}

// Done removes the record after everything is destroyed, together with the sandbox's directories ([Paths.Sandbox] and
// [Paths.SandboxState]). When those cannot be removed the record stays, for gc to try again.
func (r *IntentRecord) Done() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, dir := range []string{r.store.paths.SandboxState(r.ID), r.store.paths.Sandbox(r.ID)} {
		if err := removeAll(dir); err != nil {
			return diskError("remove", dir, err)
		}
	}
	// No fsync: a record that comes back after a power cut describes what is gone, and destroying that succeeds.
	if err := os.Remove(r.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return diskError("remove", r.path(), err)
	}
	return nil
}

// Intent reads the record of one sandbox; one that has none gives an error that is [fs.ErrNotExist].
func (s *Store) Intent(id string) (*IntentRecord, error) {
	if !sandboxPattern.MatchString(id) {
		return nil, fmt.Errorf("sandbox id %.80q: %w", id, fs.ErrNotExist)
	}
	return s.readIntent(id)
}

func (s *Store) readIntent(id string) (*IntentRecord, error) {
	r := &IntentRecord{Intent: Intent{ID: id}, store: s}
	path := r.path()
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, diskError("read", path, err)
	}
	whole := bytes.LastIndexByte(b, '\n')
	if whole < 0 {
		// Begin had not returned, so nothing was made: what is known is enough to remove the record.
		return r, nil
	}
	last := b[bytes.LastIndexByte(b[:whole], '\n')+1 : whole]
	if err := json.Unmarshal(last, &r.Intent); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if r.Schema != IntentSchema || r.ID != id {
		return nil, fmt.Errorf("read %s: schema %.40q of sandbox %.80q, want %s of %s", path, r.Schema, r.ID, IntentSchema, id)
	}
	return r, nil
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
		id, ok := strings.CutSuffix(e.Name(), intentSuffix)
		if !ok || !sandboxPattern.MatchString(id) {
			continue
		}
		r, err := s.readIntent(id)
		switch {
		case errors.Is(err, fs.ErrNotExist): // done meanwhile
		case err != nil:
			errs = append(errs, err)
		default:
			list = append(list, r)
		}
	}
	slices.SortStableFunc(list, func(a, b *IntentRecord) int { return a.Created.Compare(b.Created) })
	return list, errors.Join(errs...)
}

// Orphans returns the intents whose host process is gone and whose sandbox was not to be kept. The error is as for
// [Store.Intents].
func (s *Store) Orphans() ([]*IntentRecord, error) {
	list, err := s.Intents()
	return slices.DeleteFunc(list, func(r *IntentRecord) bool { return r.Keep || r.Host.Alive() }), err
}
