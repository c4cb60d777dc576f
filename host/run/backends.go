package run

import (
	"context"
	"errors"
)

var errNotImplemented = errors.New("not implemented")

// Backends gives backends by name. The one of package backend starts each plugin once, at its first use.
type Backends interface {
	Backend(ctx context.Context, name string) (*Backend, error)
}

// Backend is one running backend.
type Backend struct {
	Name   string
	Path   string // of its binary
	SHA256 string // of it, in hex; may be empty
}
