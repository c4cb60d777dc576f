package sandbox

import (
	"errors"
	"strings"

	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
)

// StoppedError says that a sandbox exists and must be started before anything can happen in it.
type StoppedError struct {
	Name      string
	Startable bool // its backend can start it; else a reset does
}

// Error implements error.
func (e *StoppedError) Error() string {
	if e.Startable {
		return "the sandbox " + e.Name + " is stopped; `hutch start " + e.Name + "` starts it and keeps its files"
	}
	return "the sandbox " + e.Name + " is stopped; `hutch reset " + e.Name + "` starts it again and keeps its files"
}

// GoneError says that there is a record of a sandbox and its backend knows nothing of it.
type GoneError struct {
	Name string
	Err  error // what the backend says
}

// Error implements error.
func (e *GoneError) Error() string {
	return "the sandbox " + e.Name + " is gone, only its record is left (`hutch rm " + e.Name + "` removes it): " + e.Err.Error()
}

// Unwrap returns what the backend says.
func (e *GoneError) Unwrap() error { return e.Err }

// BusyError says that the lock of a sandbox cannot be had: commands run in it, or somebody resets, applies or removes
// it. It is [store.ErrInUse].
type BusyError struct{ Name string }

// Error implements error.
func (e *BusyError) Error() string {
	return "the sandbox " + e.Name + " is in use: another hutch works in it (wait for it, or say -f to end what runs there)"
}

// Unwrap returns [store.ErrInUse].
func (e *BusyError) Unwrap() error { return store.ErrInUse }

// AboutPath is err for somebody who has named the path p already: what the backend says about the path alone, without
// naming it once more. Any other error stays as it is.
func AboutPath(err error, p string) error {
	var no *sdk.Error
	if !errors.As(err, &no) || no.Reason != sdk.ReasonNotFound && no.Reason != sdk.ReasonConfig {
		return err
	}
	short := *no
	short.Summary = strings.TrimPrefix(no.Summary, p+": ")
	return &short
}
