package store

import "time"

// Filter chooses runs. Zero fields choose all.
type Filter struct {
	States        []State
	Name          string // the exact name
	Backend       string
	Since, Before time.Time // by the time of their start
	Limit         int       // at most so many, the newest
}

// List returns short records, newest first. It reads one small file for each run it looks at and stops at the limit.
// A run whose record cannot be read is listed as [StateDamaged].
func (s *Store) List(f Filter) ([]Info, error) { return nil, errNotImplemented }

// Resolve finds the one run that ref means: a full id, an unambiguous prefix of one, an unambiguous prefix of the tail
// after its last dash, or "latest" or "-" for the newest run. Case does not matter, nor do i, l and o for 1, 1 and 0.
// It returns [ErrNotFound] or [ErrAmbiguous].
func (s *Store) Resolve(ref string) (string, error) { return "", errNotImplemented }

// Remove deletes a run and says so in the audit chain. It refuses with [ErrRunning] while the run's host lives.
func (s *Store) Remove(id string) error { return errNotImplemented }
