package limits

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/supervise/microinit"
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

// List returns the limits for supervise.Options. A limit above this process's hard limit becomes that, as with Apply.
func (r Rlimits) List() (out []microinit.Rlimit, err error) {
	err = r.each(func(_ string, resource int, value uint64) error {
		var old syscall.Rlimit
		if err := syscall.Getrlimit(resource, &old); err != nil {
			return err
		}
		out = append(out, microinit.Rlimit{Resource: resource, Value: min(value, old.Max)})
		return nil
	})
	return out, err
}
