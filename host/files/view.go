package files

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/hutch-run/hutch/sdk/overlay"
)

// view is how an area is read. Paths are relative to its root and clean; "." is the root.
type view interface {
	// lstat looks at a path and does not follow a link at its end.
	lstat(ctx context.Context, rel string) (overlay.Node, error)
	// resolve follows all links. What it leads to need not exist, but the directory it would be in must.
	resolve(ctx context.Context, rel string) (string, error)
	// open opens a regular file of at most max bytes, following links.
	open(ctx context.Context, rel string, max int64) (io.ReadCloser, overlay.Node, error)
	// scan visits what is below a directory, in parts, perhaps concurrently.
	scan(ctx context.Context, rel string, o overlay.ScanOptions, visit func(folder) error) error
}

// folder is a part of the names in one directory.
type folder struct {
	path  string // "." for the root
	err   error  // why there are no names
	names []overlay.Name
	dir   interface {
		Lstat(overlay.Name) (overlay.Node, error)
		ReadFile(n overlay.Name, max int64, buf []byte) ([]byte, error)
	}
}

// layered reads the workspace in its layers.
type layered struct {
	u      *overlay.Union
	remote *fetched
	skip   func(rel string) bool
}

func (l *layered) lstat(_ context.Context, rel string) (overlay.Node, error) { return l.u.Lstat(rel) }

func (l *layered) resolve(_ context.Context, rel string) (string, error) { return l.u.Resolve(rel) }

// open asks the backend for a file that this user may not read: in the layer it may belong to one of the sandbox's own.
func (l *layered) open(ctx context.Context, rel string, max int64) (io.ReadCloser, overlay.Node, error) {
	f, n, err := l.u.Open(rel, max)
	if err == nil {
		return f, n, nil
	}
	if errors.Is(err, fs.ErrPermission) {
		if r, n, rerr := l.remote.open(ctx, rel, max); rerr == nil {
			return r, n, nil
		}
	}
	return nil, n, err
}

func (l *layered) scan(ctx context.Context, rel string, o overlay.ScanOptions, visit func(folder) error) error {
	more := o.Skip
	o.Skip = func(p string, isDir bool) bool { return l.skip(p) || more != nil && more(p, isDir) }
	return l.u.Scan(ctx, rel, o, func(d *overlay.Dir, names []overlay.Name) error {
		return visit(folder{path: d.Path, err: d.Err, names: names, dir: d})
	})
}
