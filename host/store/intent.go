package store

import (
	"encoding/json"
	"time"
)

// Intent says, before it happens, what is about to be made outside this process, so that a later process can unmake it.
type Intent struct {
	Schema       string          `json:"schema"`        // hutch.intent/v1
	ID           string          `json:"id"`            // of the sandbox
	Run          string          `json:"run,omitempty"` // the run it was made for
	Backend      string          `json:"backend"`
	Binary       string          `json:"binary"`        // path of the plugin
	BinarySHA256 string          `json:"binary_sha256"` // hex; may be empty
	Owner        string          `json:"owner,omitempty"`
	Keep         bool            `json:"keep,omitempty"` // the sandbox shall outlive its host: never an orphan
	Host         Process         `json:"host"`
	Created      time.Time       `json:"created"`
	Handle       json.RawMessage `json:"handle,omitempty"` // once allocated: what the backend needs to find it again
	Resources    []Resource      `json:"resources,omitempty"`
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
	Path string       `json:"path"`
}

// IntentRecord is an intent on disk.
type IntentRecord struct {
	Intent
}

// Begin puts an intent on disk, with fsync, and fills in Schema, Host and Created. Nothing may be made before it returns.
func (s *Store) Begin(i Intent) (*IntentRecord, error) { return nil, errNotImplemented }

// SetHandle puts the sandbox's handle on disk.
func (r *IntentRecord) SetHandle(h json.RawMessage) error { return errNotImplemented }

// AddResources puts further resources on disk, before they are made.
func (r *IntentRecord) AddResources(res ...Resource) error { return errNotImplemented }

// SetKeep notes that the sandbox shall outlive this process, or no longer.
func (r *IntentRecord) SetKeep(keep bool) error { return errNotImplemented }

// Done removes the record after everything is destroyed, the sandbox's directory ([Paths.Sandbox]) included.
func (r *IntentRecord) Done() error { return errNotImplemented }

// Intents returns every intent on disk, oldest first. A file that cannot be read is reported in the error while the
// others are returned.
func (s *Store) Intents() ([]*IntentRecord, error) { return nil, errNotImplemented }

// Orphans returns the intents whose host process is gone and whose sandbox was not to be kept.
func (s *Store) Orphans() ([]*IntentRecord, error) { return nil, errNotImplemented }
