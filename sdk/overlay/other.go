//go:build !linux

package overlay

import (
	"context"
	"errors"
	"iter"
	"os"
)

// Changes is for Linux, which alone has overlay file systems.
func Changes(ctx context.Context, lower, upper *os.Root, o Options) ([]Change, error) {
	return nil, errors.ErrUnsupported
}

// Snapshot is what a directory looked like at one time.
type Snapshot struct{}

// Take is for Linux.
func Take(ctx context.Context, root *os.Root, o Options) (*Snapshot, error) {
	return nil, errors.ErrUnsupported
}

// Len is 0.
func (s *Snapshot) Len() int { return 0 }

// Entries yields nothing.
func (s *Snapshot) Entries() iter.Seq[Entry] { return func(func(Entry) bool) {} }

// Changes is for Linux.
func (s *Snapshot) Changes(ctx context.Context, root *os.Root, o Options) ([]Change, error) {
	return nil, errors.ErrUnsupported
}
