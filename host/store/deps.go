package store

import "context"

// DepsEntry is one entry of the dependency cache, in use by this process.
type DepsEntry struct {
	Dir   string // absolute, read-only
	Built bool   // false when it was there already
}

// Deps returns the entry for a language and a key, building it when it is missing: build fills the empty directory it
// is given, which becomes the entry at once and as a whole when build returns nil. Of several processes that want the
// same entry one builds and the others wait, or end with ctx. lang and key are made of a-z, 0-9, '.', '_' and '-'.
// Release the entry when the run has ended; until then [Store.GC] leaves it alone.
func (s *Store) Deps(ctx context.Context, lang, key string, build func(ctx context.Context, dir string) error) (*DepsEntry, error) {
	return nil, errNotImplemented
}

// Release ends the use of the entry.
func (e *DepsEntry) Release() error { return errNotImplemented }
