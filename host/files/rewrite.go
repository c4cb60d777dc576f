package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/hutch-run/hutch/sdk/overlay"
)

// OpPatch is a change that came with others, all of them or none; see [Files.Rewrite].
const OpPatch Op = "patch"

// Replacement is what becomes of one path.
type Replacement struct {
	Path    string
	Deleted bool        // there is to be nothing; the rest does not count
	Data    []byte      // the whole of the file
	Mode    fs.FileMode // permissions, as in [WriteRequest]
}

// Rewrite changes several files in one step. work says what becomes of which paths; it reads what it needs with read,
// whose error is [fs.ErrNotExist] where nothing is. Then all of it is done, or nothing: when something cannot be, what
// was done before it is taken back. A process that dies in between leaves a part. Nothing else of these tools changes a
// file meanwhile, and what a program in the sandbox changes is noticed where that can be seen from here.
func (f *Files) Rewrite(ctx context.Context, work func(read func(name string) ([]byte, fs.FileMode, error)) ([]Replacement, error)) error {
	return f.alone(ctx, func() error {
		r := &rewrite{f: f, seen: map[string]*original{}}
		list, err := work(func(name string) ([]byte, fs.FileMode, error) { return r.read(ctx, name) })
		if err != nil {
			return err
		}
		// Deletions come first: something else may take the place of what they remove.
		for _, deleted := range []bool{true, false} {
			for _, x := range list {
				if x.Deleted != deleted {
					continue
				}
				if err := r.do(ctx, x); err != nil {
					return r.undo(ctx, err)
				}
			}
		}
		for _, c := range r.changes {
			if err := f.changed(c); err != nil {
				return err
			}
		}
		return nil
	})
}

// rewrite is one call of Rewrite.
type rewrite struct {
	f       *Files
	seen    map[string]*original // by the name that was asked for
	undoing []func(ctx context.Context) error
	changes []Change
}

// original is a path as it was.
type original struct {
	to   spot
	node *overlay.Node // nil for nothing
	data []byte
}

// look finds out what is at a path, once.
func (r *rewrite) look(ctx context.Context, name string) (*original, error) {
	if o := r.seen[name]; o != nil {
		return o, nil
	}
	s, err := r.f.find(name)
	if err != nil {
		return nil, err
	}
	o := &original{}
	if o.to, o.node, err = r.f.target(ctx, s); err != nil {
		var e *Error
		if errors.As(err, &e) && e.Reason == ReasonNotDir { // there can be nothing at it, until what is in the way is deleted
			o.to, err = s, nil
		}
	}
	if err == nil && o.node != nil {
		o.data, _, err = r.f.content(ctx, o.to)
	}
	if err != nil {
		return nil, err
	}
	r.seen[name] = o
	return o, nil
}

func (r *rewrite) read(ctx context.Context, name string) ([]byte, fs.FileMode, error) {
	o, err := r.look(ctx, name)
	switch {
	case err != nil:
		return nil, 0, err
	case o.node == nil:
		return nil, 0, fs.ErrNotExist
	}
	return o.data, o.node.Mode.Perm(), nil
}

// do makes one change, and remembers how it is taken back.
func (r *rewrite) do(ctx context.Context, x Replacement) error {
	o, err := r.look(ctx, x.Path)
	if err != nil {
		return err
	}
	f, to := r.f, o.to
	if o.node != nil {
		if err := f.unchanged(ctx, to, o.node); err != nil {
			return err
		}
	}
	if x.Deleted {
		if o.node == nil {
			return refuse(x.Path, ReasonMissing, "there is no such file or directory")
		}
		if to.name != path.Clean(x.Path) && to.abs() != path.Clean(x.Path) {
			return refuse(x.Path, ReasonSymlink, "a symbolic link leads to %s; that is deleted by its own name", to.name)
		}
		r.undoing = append(r.undoing, func(ctx context.Context) error { return f.send(ctx, to, nil, o.node.Mode.Perm(), o.data) })
		if err := f.sb.Remove(ctx, to.abs(), false); err != nil {
			return explain(to.name, err)
		}
		r.changes = append(r.changes, Change{Op: OpRemove, Path: to.name, Type: "file"})
		return nil
	}
	// Writing it again with its permissions puts back what was there; what was not there goes, with its new directories.
	if o.node != nil {
		r.undoing = append(r.undoing, func(ctx context.Context) error { return f.send(ctx, to, nil, o.node.Mode.Perm(), o.data) })
	} else {
		missing := f.missing(ctx, to)
		r.undoing = append(r.undoing, func(ctx context.Context) error { return f.removeAll(ctx, missing) })
	}
	if err := f.send(ctx, to, o.node, x.Mode&0o755, x.Data); err != nil {
		return explain(to.name, err)
	}
	sum := sha256.Sum256(x.Data)
	r.changes = append(r.changes, Change{Op: OpPatch, Path: to.name, Size: int64(len(x.Data)), SHA256: hex.EncodeToString(sum[:])})
	return nil
}

// missing is a path that is not there, and the directories above it that are not, from the inside out.
func (f *Files) missing(ctx context.Context, s spot) []spot {
	out := []spot{s}
	for up := path.Dir(s.rel); up != "."; up = path.Dir(up) {
		if _, err := s.view.lstat(ctx, up); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		out = append(out, s.at(up))
	}
	return out
}

// removeAll removes what is there of a list. A directory that something else was put into stays.
func (f *Files) removeAll(ctx context.Context, list []spot) error {
	for i, s := range list {
		if _, err := s.view.lstat(ctx, s.rel); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if i > 0 {
			if l, err := f.List(ctx, ListRequest{Path: s.abs(), Depth: 1, Max: 1}); err != nil || len(l.Entries) > 0 {
				return nil
			}
		}
		if err := f.sb.Remove(ctx, s.abs(), i > 0); err != nil {
			return err
		}
	}
	return nil
}

// undoTime bounds taking back, which goes on when ctx has ended.
const undoTime = time.Minute

// undo takes back what was done, the last one included, which may have been done in part.
func (r *rewrite) undo(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	var failed error
	for _, back := range slices.Backward(r.undoing) {
		failed = errors.Join(failed, back(ctx))
	}
	if failed != nil {
		return fmt.Errorf("%w; and what was done before could not be taken back: %w", cause, failed)
	}
	return cause
}
