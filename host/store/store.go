package store

import (
	"errors"
	"time"
)

// Options say where the store lies. The zero value is right for the hutch command.
type Options struct {
	// Home holds everything in one directory. Empty means $HUTCH_HOME, and when that is empty too the XDG
	// directories of the user.
	Home string
	// Now is the clock; nil means [time.Now].
	Now func() time.Time
}

// Store is an open store. It holds no lock and few descriptors, so any number of processes may have one open.
type Store struct {
	paths Paths
	now   func() time.Time
}

// Errors that callers tell apart with [errors.Is].
var (
	// ErrNotFound says that there is no such run.
	ErrNotFound = errors.New("no such run")
	// ErrAmbiguous says that a prefix fits several runs; the error's text lists some of them.
	ErrAmbiguous = errors.New("ambiguous run id")
	// ErrFull says that the disk, the quota or the file size limit left no room. What was there before is intact.
	ErrFull = errors.New("the store is full")
	// ErrUnsafe says that others may write where hutch keeps its records.
	ErrUnsafe = errors.New("unsafe directory")
	// ErrRunning says that the run's host process is still alive.
	ErrRunning = errors.New("the run is still running")
)

// Open finds the store, makes what is missing of it (directories 0700) and refuses one that others may write.
func Open(o Options) (*Store, error) { return nil, errNotImplemented }

// Close releases what the store holds. Runs and logs that are open stay usable.
func (s *Store) Close() error { return nil }

// Paths tells where everything lies.
func (s *Store) Paths() Paths { return s.paths }

var errNotImplemented = errors.New("not implemented")
