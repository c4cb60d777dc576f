//go:build !linux

package limits

import (
	"context"
	"errors"
)

// Probe says that nothing can be held: rlimits of other systems differ too much to promise anything.
func Probe() *Support {
	how := How{Reason: "limits are held on Linux only"}
	return &Support{Mechanism: Rlimit, Limits: map[Limit]How{Memory: how, CPUs: how, PIDs: how, Files: how, FileSize: how}}
}

// Try says ErrNoCgroup.
func (s *Support) Try(ctx context.Context) error { return ErrNoCgroup }

// Open says ErrNoCgroup.
func Open(h Handle) (*Group, error) { return nil, ErrNoCgroup }

// List finds nothing.
func List(prefix string) ([]Handle, error) { return nil, nil }

// Sweep finds nothing.
func Sweep(ctx context.Context, prefix string) ([]string, error) { return nil, nil }

// Apply is not supported.
func (r Rlimits) Apply() error { return errors.ErrUnsupported }
