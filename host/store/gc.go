package store

import (
	"context"
	"time"
)

// GCOptions say what may go. Running runs always stay, and so do entries in use.
type GCOptions struct {
	RunsOlderThan time.Duration // finished and interrupted runs that began longer ago; 0 keeps all ages
	KeepRuns      int           // of those, the newest so many stay; 0 keeps none of them
	DepsUnused    time.Duration // dependency entries unused for so long; 0 keeps all
	DryRun        bool          // say what would go, remove nothing

	// Destroy removes what an orphaned intent made, through its backend. The store removes the intent's own resources
	// and its record afterwards. Nil leaves intents that have a handle alone.
	Destroy func(ctx context.Context, i Intent) error
}

// GCItem is one thing that gc looked at and removed, or failed to.
type GCItem struct {
	Kind  string `json:"kind"` // sandbox, run, dependencies, runtime_dir, temp
	Name  string `json:"name"`
	Path  string `json:"path,omitempty"`
	Bytes int64  `json:"bytes,omitempty"`
	Error string `json:"error,omitempty"`
}

// GC finishes what dead processes left and removes what is old. It goes on after a failure: each is told in its item.
// The error is for what kept it from looking at all.
func (s *Store) GC(ctx context.Context, o GCOptions) ([]GCItem, error) { return nil, errNotImplemented }
