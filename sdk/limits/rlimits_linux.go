package limits

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// each calls set for every limit in r.
func (r Rlimits) each(set func(name string, resource int, value uint64) error) error {
	for _, l := range []struct {
		name     string
		resource int
		value    *uint64
	}{
		{"CORE", unix.RLIMIT_CORE, r.Core}, {"NOFILE", unix.RLIMIT_NOFILE, r.NoFile}, {"FSIZE", unix.RLIMIT_FSIZE, r.FSize},
		{"NPROC", unix.RLIMIT_NPROC, r.NProc},
	} {
		if l.value == nil {
			continue
		}
		if err := set(l.name, l.resource, *l.value); err != nil {
			return fmt.Errorf("set rlimit %s to %d: %w", l.name, *l.value, err)
		}
	}
	return nil
}

// Apply sets the limits on this process, and what it starts inherits them. A limit above the present hard
// limit becomes that, which is the tighter one.
func (r Rlimits) Apply() error {
	return r.each(func(name string, resource int, value uint64) error {
		var old syscall.Rlimit
		if err := syscall.Getrlimit(resource, &old); err != nil {
			return err
		}
		value = min(value, old.Max)
		// The syscall package's own, because it then forgets the NOFILE value it would put back at exec.
		return syscall.Setrlimit(resource, &syscall.Rlimit{Cur: value, Max: value})
	})
}

// ApplyTo sets the limits on another process of the same user, as Apply does on this one.
func (r Rlimits) ApplyTo(pid int) error {
	return r.each(func(name string, resource int, value uint64) error {
		var old unix.Rlimit
		if err := unix.Prlimit(pid, resource, nil, &old); err != nil {
			return err
		}
		value = min(value, old.Max)
		return unix.Prlimit(pid, resource, &unix.Rlimit{Cur: value, Max: value}, nil)
	})
}
