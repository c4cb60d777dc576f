// Package files lists, reads, searches and changes the files of a sandbox, for a person or a coding agent.
//
// Paths are relative to the workspace, or absolute as a command in the sandbox sees them, below the workspace, the
// input or the output; all others are refused. Symbolic links are followed where they stay inside the workspace, an
// absolute one too when it leads below the place where commands see the workspace; one that leads out is refused and
// never followed.
//
// Where the backend says in which directories of this host the workspace lies ([sdk.Layers]), files are read there
// without asking it: as the overlay would show them, below descriptors, never through a link, never waiting for a FIFO,
// and only regular files with one link and a bounded size. Otherwise they are fetched, which is slower and gives the
// same answers. Nothing is ever written to the layers: writes, edits and removals go through the backend.
//
// Input and output are mounted into the workspace by the backend and no part of its layers. They are listed and
// searched when they are named, and not with the whole workspace.
package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// DefaultMaxSize is the size in bytes up to which files are read, unless Options say otherwise.
const DefaultMaxSize = 64 << 20

// Sandbox is what this package needs of one; *[client.Sandbox] is one. Methods of capabilities that the backend does
// not have return its refusal.
type Sandbox interface {
	Ready() sdk.Ready
	Get(ctx context.Context, path string, format sdk.Format, w io.Writer) error
	Put(ctx context.Context, path string, format sdk.Format, r io.Reader) error
	Remove(ctx context.Context, path string, recursive bool) error
}

// Options of a [Files]. The zero value is usable.
type Options struct {
	// MaxSize bounds the files that are read, in bytes; a larger one is refused, or skipped by a search. 0 means
	// DefaultMaxSize.
	MaxSize int64
	// Lock, when set, is taken around every change, so that changes by several processes never undo each other.
	Lock func(ctx context.Context) (release func(), err error)
	// Changed, when set, is notified of every change once it is made, and before another one is. An error of it is that of
	// the change, which stands all the same.
	Changed func(Change) error
	// Name is what hints call the sandbox; "" means SANDBOX.
	Name string
}

// Op says what kind a [Change] is.
type Op string

// The kinds of changes.
const (
	OpWrite  Op = "write"
	OpEdit   Op = "edit"
	OpRemove Op = "remove"
)

// Change is one thing that was done to the files of a sandbox.
type Change struct {
	Op     Op     `json:"op"`
	Path   string `json:"path"`             // as in Entry, with links resolved
	Type   string `json:"type,omitempty"`   // of what was removed, as in Entry
	Size   int64  `json:"size,omitempty"`   // bytes of the whole file as it was written
	SHA256 string `json:"sha256,omitempty"` // hex, of the same
}

// changed reports a change that was made.
func (f *Files) changed(c Change) error {
	if f.o.Changed == nil {
		return nil
	}
	if err := f.o.Changed(c); err != nil {
		e := refuse(c.Path, ReasonIO, "the change was made, and cannot be recorded: %v", err)
		e.Err = err
		return e
	}
	return nil
}

// Files are the files of one sandbox. It is safe for concurrent use.
type Files struct {
	sb    Sandbox
	o     Options
	ready sdk.Ready
	areas []area         // the most specific first
	union *overlay.Union // nil when the workspace cannot be read on this host
	turn  sync.Mutex     // held by changes
}

// area is a directory of the sandbox that the tools work in.
type area struct {
	name string // workspace, input, output
	root string // as commands see it
	view view
}

// Open begins to work with the files of a sandbox.
func Open(sb Sandbox, o Options) (*Files, error) {
	f := &Files{sb: sb, o: o, ready: sb.Ready()}
	if f.o.MaxSize <= 0 {
		f.o.MaxSize = DefaultMaxSize
	}
	ws := path.Clean(f.ready.Workspace)
	if !path.IsAbs(ws) {
		return nil, fmt.Errorf("the backend reports the workspace %q, which is no absolute path", f.ready.Workspace)
	}
	for name, root := range map[string]string{"output": f.ready.Output, "input": f.ready.Input} {
		if path.IsAbs(root) && path.Clean(root) != ws {
			f.areas = append(f.areas, area{name, path.Clean(root), &fetched{sb: sb, name: name, root: path.Clean(root)}})
		}
	}
	remote := &fetched{sb: sb, name: "workspace", root: ws, skip: f.mounted}
	work := area{"workspace", ws, remote}
	if l := f.ready.Layers; l != nil {
		for _, dir := range append(l.Written(), l.Lower) {
			if dir != "" && !filepath.IsAbs(dir) {
				return nil, fmt.Errorf("the backend reports the layer %q, which is no absolute path", dir)
			}
		}
		u, err := overlay.OpenUnion(l.Lower, l.Upper, overlay.UnionOptions{Trusted: l.Trusted, At: ws,
			Frozen: l.Frozen})
		if err != nil {
			return nil, fmt.Errorf("open the workspace's layers: %w", err)
		}
		f.union = u
		work.view = &layered{u: u, remote: remote, skip: f.mounted}
	}
	f.areas = append(f.areas, work)
	return f, nil
}

// Close ends the work. Nothing of it may be in use.
func (f *Files) Close() error {
	if f.union == nil {
		return nil
	}
	return f.union.Close()
}

// mounted reports whether a path of the workspace is that of input or output, which hide what the workspace has there.
func (f *Files) mounted(rel string) bool {
	abs := path.Join(f.ready.Workspace, rel)
	for _, a := range f.areas {
		if a.name != "workspace" && a.root == abs {
			return true
		}
	}
	return false
}

// spot is a path that a caller named.
type spot struct {
	area
	rel  string // below the area's root; "." for the root
	name string // as results call it
}

// abs is the spot as a command sees it.
func (s spot) abs() string { return path.Join(s.root, s.rel) }

// at is the spot for another path of the same area.
func (s spot) at(rel string) spot {
	s.rel, s.name = rel, rel
	if s.area.name != "workspace" {
		s.name = path.Join(s.root, rel)
	}
	return s
}

const maxPath = 4096 // bytes, as the kernel's

// find turns what a caller wrote into a spot. It looks at nothing.
func (f *Files) find(name string) (spot, error) {
	switch {
	case name == "":
		return spot{}, refuse(name, ReasonName, "the path is empty")
	case len(name) >= maxPath:
		return spot{}, refuse(name[:64]+"...", ReasonName, "the path has %d bytes, at most %d are allowed", len(name),
			maxPath-1)
	case strings.IndexByte(name, 0) >= 0:
		return spot{}, refuse(name, ReasonName, "the path holds a zero byte")
	}
	abs := path.Clean(name)
	if !path.IsAbs(name) {
		abs = path.Join(f.ready.Workspace, name)
	}
	for _, a := range f.areas {
		rel, ok := below(a.root, abs)
		if !ok {
			continue
		}
		return spot{area: a}.at(rel), nil
	}
	e := refuse(name, ReasonOutside, "it is outside of the workspace")
	e.Hint = "paths are relative to " + f.ready.Workspace + ", or absolute below it"
	if !path.IsAbs(f.ready.Output) {
		return spot{}, e
	}
	if _, in := below(path.Clean(f.ready.Workspace), path.Clean(f.ready.Output)); !in {
		e.Hint += " or " + f.ready.Output
	}
	return spot{}, e
}

// below cuts root off p.
func below(root, p string) (rel string, ok bool) {
	if p == root {
		return ".", true
	}
	return strings.CutPrefix(p, strings.TrimSuffix(root, "/")+"/")
}

// alone runs a change while no other one runs.
func (f *Files) alone(ctx context.Context, fn func() error) error {
	f.turn.Lock()
	defer f.turn.Unlock()
	if f.o.Lock != nil {
		release, err := f.o.Lock(ctx)
		if err != nil {
			return fmt.Errorf("wait for other changes: %w", err)
		}
		defer release()
	}
	return fn()
}

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
