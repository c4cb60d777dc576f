package remote

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/contract"
	"github.com/hutch-run/hutch/sdk/overlay"
)

// Reply ends a request that is not a command, as the last line of its stream.
type Reply struct {
	Err     *contract.Error `json:"err,omitempty"`
	Changes []Change        `json:"changes,omitempty"`
	State   string          `json:"state,omitempty"`
}

// Change is an [overlay.Change] whose path may be no UTF-8.
type Change struct {
	Path   []byte `json:"path"`
	Change overlay.Change
}

// AsError is err as it crosses the wire; one without a reason is internal. Nil stays nil.
func AsError(err error) *contract.Error {
	var e *contract.Error
	if err != nil && !errors.As(err, &e) {
		e = contract.Errorf(contract.ReasonInternal, "%w", err)
	}
	return e
}

// NotStarted is the end of a command that could not be executed. An error that lies in the machine and not in the
// command is in Err.
func NotStarted(err error) *Exit {
	switch {
	case errors.Is(err, unix.ENOENT):
		return &Exit{NotStarted: true, Code: 127, Why: err.Error()}
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOEXEC), errors.Is(err, unix.E2BIG),
		errors.Is(err, unix.ETXTBSY),
		errors.Is(err, unix.ELOOP), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EPERM):
		return &Exit{NotStarted: true, Code: 126, Why: err.Error()}
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM):
		return &Exit{Err: contract.Errorf(contract.ReasonQuota, "the sandbox has no room for another command: %w", err)}
	}
	return &Exit{Err: contract.Errorf(contract.ReasonInternal, "start the command: %w", err)}
}
