//go:build !linux

package overlay

import (
	"context"
	"errors"
	"os"
)

// Changes is for Linux, which alone has overlay file systems.
func Changes(ctx context.Context, lower, upper *os.Root, o Options) ([]Change, error) {
	return nil, errors.ErrUnsupported
}

// Take is for Linux.
func Take(ctx context.Context, root *os.Root, o Options) (*Snapshot, error) {
	return nil, errors.ErrUnsupported
}

// Changes is for Linux.
func (s *Snapshot) Changes(ctx context.Context, root *os.Root, o Options) ([]Change, error) {
	return nil, errors.ErrUnsupported
}

// Copy is for Linux.
func Copy(ctx context.Context, from, to string, o CopyOptions) error { return errors.ErrUnsupported }
