package files

import (
	"context"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/overlay"
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
		for _, dir := range []string{l.Lower, l.Upper} {
			if dir != "" && !filepath.IsAbs(dir) {
				return nil, fmt.Errorf("the backend reports the layer %q, which is no absolute path", dir)
			}
		}
		u, err := overlay.OpenUnion(l.Lower, l.Upper, overlay.UnionOptions{Trusted: l.Trusted, At: ws})
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
		return spot{}, refuse(name[:64]+"...", ReasonName, "the path has %d bytes, at most %d are allowed", len(name), maxPath-1)
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
