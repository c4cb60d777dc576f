package run

import (
	"context"

	"github.com/hutch-run/hutch/host/backend"
)

// Backends gives running backends; [backend.Pool] is one. It is safe for concurrent use.
type Backends interface {
	// Get returns the backend of a name, started at its first use.
	Get(ctx context.Context, name string) (*backend.Backend, error)
	// GetMaker returns the very binary that made something while it is what it was, else what has the name now.
	GetMaker(ctx context.Context, name, path, sha256 string) (*backend.Backend, error)
	// Open starts the binary at path as its own process: for cleaning up after the first one died. The caller
	// stops it.
	Open(ctx context.Context, path string) (*backend.Backend, error)
}
