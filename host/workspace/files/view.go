package files

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/keep"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/safefile"
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

// fetched reads an area through the backend, which sends files and trees. What it sends is hostile.
type fetched struct {
	sb   Sandbox
	name string // workspace, input, output
	root string
	skip func(rel string) bool // nil skips nothing
}

// layer is what results call the origin of such an entry; nothing is known about that of the workspace's.
func (v *fetched) layer() overlay.Layer {
	if v.name == "workspace" {
		return ""
	}
	return overlay.Layer(v.name)
}

// errEnough ends a transfer of which enough has been seen.
var errEnough = errors.New("enough")

// tar fetches the tree at rel and calls each for every entry, parents first, with paths relative to the area. The
// reader gives the content of a regular file.
func (v *fetched) tar(ctx context.Context, rel string, each func(n overlay.Node, r io.Reader) error) error {
	ctx, cancel := context.WithCancel(ctx)
	pr, pw := io.Pipe()
	sent := make(chan struct{})
	go func() {
		err := v.sb.Get(ctx, path.Join(v.root, rel), sdk.FormatTar, pw)
		pw.CloseWithError(err)
		close(sent)
	}()
	err := v.entries(tar.NewReader(pr), rel, each)
	if err == nil {
		_, err = io.Copy(io.Discard, pr) // the sender may still have an error to tell
	}
	pr.CloseWithError(errEnough)
	cancel()
	<-sent
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func (v *fetched) entries(r *tar.Reader, rel string, each func(overlay.Node, io.Reader) error) error {
	for left := overlay.DefaultMaxEntries; ; left-- {
		h, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case left == 0:
			return fmt.Errorf("%w: the backend sent more than %d entries", overlay.ErrTooMany, overlay.DefaultMaxEntries)
		}
		name := path.Clean(h.Name)
		if name == "." || path.IsAbs(name) || name == ".." || strings.HasPrefix(name, "../") ||
			strings.IndexByte(name, 0) >= 0 {
			continue // the tree itself, or an invalid name
		}
		fi := h.FileInfo()
		n := overlay.Node{Path: path.Join(rel, name), Layer: v.layer(), Mode: fi.Mode(), ModTime: h.ModTime, Links: 1}
		switch {
		case fi.Mode().IsRegular():
			n.Size = h.Size
		case fi.Mode().Type() == fs.ModeSymlink:
			n.Target = h.Linkname
		}
		if v.hides(n.Path) {
			continue
		}
		if err := each(n, r); err != nil {
			return err
		}
	}
}

// hides reports whether a path is at or below one that is skipped.
func (v *fetched) hides(rel string) bool {
	if v.skip == nil {
		return false
	}
	for ; rel != "."; rel = path.Dir(rel) {
		if v.skip(rel) {
			return true
		}
	}
	return false
}

// tree is a fetched area without contents.
type tree map[string]overlay.Node

func (v *fetched) tree(ctx context.Context) (tree, error) {
	t := tree{".": {Path: ".", Layer: v.layer(), Mode: fs.ModeDir | 0o755}}
	return t, v.tar(ctx, ".", func(n overlay.Node, _ io.Reader) error {
		t[n.Path] = n
		return nil
	})
}

// follow resolves a path in a tree as [overlay.Union] does.
func (v *fetched) follow(t tree, rel string, last bool) (string, error) {
	left, done := strings.Split(rel, "/"), "."
	for links := 0; len(left) > 0; {
		part := left[0]
		left = left[1:]
		if part == "" || part == "." {
			continue
		}
		if part == ".." {
			if done == "." {
				return "", overlay.ErrOutside
			}
			done = path.Dir(done)
			continue
		}
		if d := t[done]; !d.Mode.IsDir() {
			return "", unix.ENOTDIR
		}
		at := path.Join(done, part)
		n, ok := t[at]
		if !ok && len(left) > 0 {
			return "", fs.ErrNotExist
		}
		if n.Mode.Type() != fs.ModeSymlink || len(left) == 0 && !last {
			done = at
			continue
		}
		if links++; links > 40 {
			return "", unix.ELOOP
		}
		target := n.Target
		if path.IsAbs(target) {
			below, ok := below(v.root, path.Clean(target))
			if !ok {
				return "", overlay.ErrOutside
			}
			target, done = below, "."
		}
		left = append(strings.Split(target, "/"), left...)
	}
	return done, nil
}

func (v *fetched) resolve(ctx context.Context, rel string) (string, error) {
	t, err := v.tree(ctx)
	if err != nil {
		return "", err
	}
	return v.follow(t, rel, true)
}

func (v *fetched) lstat(ctx context.Context, rel string) (overlay.Node, error) {
	t, err := v.tree(ctx)
	if err != nil {
		return overlay.Node{}, err
	}
	if rel, err = v.follow(t, rel, false); err != nil {
		return overlay.Node{}, err
	}
	n, ok := t[rel]
	if !ok {
		return n, fs.ErrNotExist
	}
	return n, nil
}

// open fetches the file itself, and looks at the whole tree only when that is refused, as for a symbolic link.
func (v *fetched) open(ctx context.Context, rel string, max int64) (io.ReadCloser, overlay.Node, error) {
	n := overlay.Node{Path: rel, Layer: v.layer(), Links: 1}
	b, err := v.file(ctx, rel, max)
	var refused *sdk.Error
	if errors.As(err, &refused) && (refused.Reason == sdk.ReasonConfig || refused.Reason == sdk.ReasonNotFound) {
		t, terr := v.tree(ctx)
		if terr != nil {
			return nil, n, err
		}
		to, ferr := v.follow(t, rel, true)
		if ferr != nil {
			return nil, n, ferr
		}
		found, ok := t[to]
		if !ok {
			return nil, n, fs.ErrNotExist
		}
		if bad := safefile.Refuse(rel, found.Mode, 1, found.Size, max); bad != nil {
			return nil, found, bad
		}
		if n = found; to != rel {
			b, err = v.file(ctx, to, max)
		}
	}
	if err != nil {
		return nil, n, err
	}
	n.Size = int64(len(b))
	return io.NopCloser(bytes.NewReader(b)), n, nil
}

// file fetches one file of at most max bytes.
func (v *fetched) file(ctx context.Context, rel string, max int64) ([]byte, error) {
	var b bytes.Buffer
	w := &keep.Limit{W: &b, Max: max}
	err := v.sb.Get(ctx, path.Join(v.root, rel), sdk.FormatFile, w)
	if w.Over {
		return nil, &safefile.Error{Path: rel, Reason: safefile.ReasonTooBig,
			Detail: fmt.Sprintf("it has more than the %d bytes that are allowed", max)}
	}
	return b.Bytes(), err
}

// scan visits the entries one at a time, as they come.
func (v *fetched) scan(ctx context.Context, rel string, o overlay.ScanOptions, visit func(folder) error) error {
	each := func(n overlay.Node, r io.Reader) error {
		below := strings.TrimPrefix(strings.TrimPrefix(n.Path, rel), "/")
		if rel == "." {
			below = n.Path
		}
		if o.Depth > 0 && strings.Count(below, "/") >= o.Depth {
			return nil
		}
		if o.Skip != nil {
			for p := n.Path; p != "." && p != rel; p = path.Dir(p) {
				if o.Skip(p, p != n.Path || n.Mode.IsDir()) {
					return nil
				}
			}
		}
		if o.MaxEntries--; o.MaxEntries < 0 {
			return overlay.ErrTooMany
		}
		name := overlay.Name{Name: path.Base(n.Path), Layer: n.Layer, Type: n.Mode.Type()}
		return visit(folder{path: path.Dir(n.Path), names: []overlay.Name{name}, dir: sent{n, r}})
	}
	if o.MaxEntries <= 0 {
		o.MaxEntries = overlay.DefaultMaxEntries
	}
	began := false
	err := v.tar(ctx, rel, func(n overlay.Node, r io.Reader) error {
		began = true
		return each(n, r)
	})
	if err == nil || began || ctx.Err() != nil || errors.Is(err, overlay.ErrTooMany) {
		return err
	}
	// It may be a link to a directory, or no directory at all.
	t, terr := v.tree(ctx)
	if terr != nil {
		return err
	}
	to, ferr := v.follow(t, rel, true)
	switch n, ok := t[to]; {
	case ferr != nil:
		return ferr
	case !ok:
		return fs.ErrNotExist
	case !n.Mode.IsDir():
		return unix.ENOTDIR
	case to == rel:
		return err
	}
	rel = to
	return v.tar(ctx, to, each)
}

// sent is one entry of a tree while it is being received.
type sent struct {
	n overlay.Node
	r io.Reader
}

// Lstat implements folder.dir.
func (s sent) Lstat(overlay.Name) (overlay.Node, error) { return s.n, nil }

// ReadFile implements folder.dir.
func (s sent) ReadFile(_ overlay.Name, max int64, buf []byte) ([]byte, error) {
	if bad := safefile.Refuse(s.n.Path, s.n.Mode, s.n.Links, s.n.Size, max); bad != nil {
		return nil, bad
	}
	b := bytes.NewBuffer(buf[:0])
	_, err := io.Copy(b, s.r)
	return b.Bytes(), err
}
