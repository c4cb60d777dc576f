package files

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// Reason says in a word why something was not done. Reasons are stable; those of [safefile.Reason] are among them.
type Reason string

// The reasons besides those of package safefile.
const (
	ReasonName      Reason = Reason(safefile.ReasonName)
	ReasonMissing   Reason = Reason(safefile.ReasonMissing)
	ReasonDir       Reason = Reason(safefile.ReasonDir)
	ReasonTooBig    Reason = Reason(safefile.ReasonTooBig)
	ReasonChanged   Reason = Reason(safefile.ReasonChanged)
	ReasonSymlink   Reason = Reason(safefile.ReasonSymlink)
	ReasonIO        Reason = Reason(safefile.ReasonIO)
	ReasonLinked    Reason = Reason(safefile.ReasonHardlink)
	ReasonOutside   Reason = "outside"   // the path, or a link on it, leads out of the workspace
	ReasonNotDir    Reason = "not_dir"   // something on the path is no directory
	ReasonDenied    Reason = "denied"    // permissions, or a read-only workspace
	ReasonNoMatch   Reason = "no_match"  // the text to replace is not there
	ReasonAmbiguous Reason = "ambiguous" // the text to replace is there more than once
	ReasonRequest   Reason = "request"   // what was asked for makes no sense
	ReasonBackend   Reason = "backend"   // the backend failed or cannot do it
	ReasonMount     Reason = "mount"     // another file system is mounted there on the host
	ReasonLinkLoop  Reason = "link_loop" // symbolic links lead in a circle
)

// Error says about which path something was not done, and why.
type Error struct {
	Path   string `json:"path"`
	Reason Reason `json:"reason"`
	Detail string `json:"detail"`         // one line for a person, without the path
	Hint   string `json:"hint,omitempty"` // what to do about it
	Err    error  `json:"-"`
}

// Error shows the path with everything that could act on a terminal made visible.
func (e *Error) Error() string {
	if e.Path == "" {
		return e.Detail
	}
	return termsafe.Line(e.Path) + ": " + e.Detail
}

// Unwrap returns the error underneath.
func (e *Error) Unwrap() error { return e.Err }

func refuse(name string, reason Reason, format string, args ...any) *Error {
	return &Error{Path: name, Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// explain turns any error about a path into an *Error; nil stays nil.
func explain(name string, err error) error {
	var mine *Error
	var file *safefile.Error
	var remote *sdk.Error
	if err == nil {
		return nil
	}
	if errors.As(err, &mine) {
		return err
	}
	e := &Error{Path: name, Reason: ReasonIO, Detail: plain(err), Err: err}
	switch {
	case errors.As(err, &file):
		e.Reason, e.Detail = Reason(file.Reason), file.Detail
	case errors.Is(err, overlay.ErrOutside):
		e.Reason, e.Detail = ReasonOutside, "it leads out of the workspace"
	case errors.Is(err, overlay.ErrMountPoint):
		e.Reason, e.Detail = ReasonMount, "another file system is mounted there on the host, which the sandbox does not see"
	case errors.As(err, &remote):
		e.explainRemote(remote)
	case errors.Is(err, fs.ErrNotExist):
		e.Reason, e.Detail = ReasonMissing, "there is no such file or directory"
	case errors.Is(err, unix.ENOTDIR):
		e.Reason, e.Detail = ReasonNotDir, "it is not a directory, or something on the way to it is not"
	case errors.Is(err, unix.ELOOP):
		e.Reason, e.Detail = ReasonLinkLoop, "its symbolic links lead in a circle"
	case errors.Is(err, unix.ENAMETOOLONG):
		e.Reason, e.Detail = ReasonName, "a name in the path is too long"
	case errors.Is(err, fs.ErrPermission):
		e.Reason, e.Detail = ReasonDenied, "permission denied"
	}
	return e
}

// plain is an error without the path that the operating system adds.
func plain(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

func (e *Error) explainRemote(r *sdk.Error) {
	e.Detail, e.Hint = r.Summary, r.Fix
	switch r.Reason {
	case sdk.ReasonNotFound:
		e.Reason, e.Detail, e.Hint = ReasonMissing, "there is no such file or directory", ""
	case sdk.ReasonDenied:
		e.Reason = ReasonDenied
	case sdk.ReasonConfig:
		e.Reason = ReasonRequest
	default:
		e.Reason = ReasonBackend
	}
}
