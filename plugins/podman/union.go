package main

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/inside"
	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/tree"
)

// inUnion says whether p lies in a workspace that nothing merges but hutch's own file tools, and where in it.
func (s *sandbox) inUnion(p string) (rel string, ok bool) {
	if s.over != overlayUnion {
		return "", false
	}
	p = path.Clean(p)
	if p == workspacePath {
		return ".", true
	}
	return strings.CutPrefix(p, workspacePath+"/")
}

// union opens the two layers. A writer has the rights of the sandbox's user: see asUser.
func (s *sandbox) union() (*overlay.Union, error) {
	lower := s.spec.Workspace.Source
	if s.who.uids != nil { // the sandbox's user reads it as commands do
		tree, err := s.who.open(lower)
		if err != nil {
			return nil, err
		}
		defer tree.Close()
		lower = fmt.Sprintf("/proc/self/fd/%d", tree.Fd())
	}
	return overlay.OpenUnion(lower, s.dirs.upper(), overlay.UnionOptions{Trusted: s.ready.Layers.Trusted, At: workspacePath})
}

func (s *sandbox) unionGet(ctx context.Context, rel, p string, format sdk.Format, w io.Writer) error {
	u, err := s.union()
	if err != nil {
		return err
	}
	defer u.Close()
	switch format {
	case sdk.FormatFile:
		f, n, err := u.Open(rel, -1)
		if errors.Is(err, unix.ENOTDIR) { // a file where the path has a directory: there is nothing of that name
			return inside.Error(p, err)
		}
		if err != nil {
			return unionError(p, err)
		}
		defer f.Close()
		sdk.Progress(ctx)(sdk.FetchingFile, 0, n.Size)
		_, err = io.Copy(w, f)
		return err
	case sdk.FormatTar:
		return unionError(p, packUnion(ctx, u, rel, w))
	}
	return sdk.Errorf(sdk.ReasonUnsupported, "podman does not speak %q", format)
}

// packUnion writes the merged tree below dir as a tar stream, in the order of its paths.
func packUnion(ctx context.Context, u *overlay.Union, dir string, w io.Writer) error {
	var mu sync.Mutex
	var paths []string
	err := u.Scan(ctx, dir, overlay.ScanOptions{MaxEntries: tree.DefaultMaxEntries}, func(d *overlay.Dir, names []overlay.Name) error {
		if d.Err != nil {
			return d.Err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, n := range names {
			if p := path.Join(d.Path, n.Name); dir != "." || p != "input" && p != "output" { // these are mounted upon
				paths = append(paths, p)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(paths, func(a, b string) int { // a directory before what is in it
		return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
	})
	wide := bufio.NewWriterSize(w, 256<<10)
	out := tar.NewWriter(wide)
	top, err := u.Resolve(dir)
	if err != nil {
		return err
	}
	for _, p := range paths {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := packNode(u, out, p, strings.TrimPrefix(strings.TrimPrefix(p, top), "/")); err != nil {
			return fmt.Errorf("pack %q: %w", p, err)
		}
	}
	return errors.Join(out.Close(), wide.Flush())
}

// packNode writes one entry, called name in the stream.
func packNode(u *overlay.Union, out *tar.Writer, p, name string) error {
	n, err := u.Lstat(p)
	if err != nil {
		return err
	}
	h := &tar.Header{Name: name, Format: tar.FormatPAX, Mode: int64(n.Mode.Perm())}
	switch n.Mode.Type() {
	case fs.ModeDir:
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case fs.ModeSymlink:
		h.Typeflag, h.Mode, h.Linkname = tar.TypeSymlink, 0o777, n.Target
	case 0:
		f, n, err := u.Open(p, -1)
		if err != nil {
			return err
		}
		defer f.Close()
		h.Typeflag, h.Size = tar.TypeReg, n.Size
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		_, err = io.CopyN(out, f, n.Size)
		return err
	default:
		h.Typeflag = tar.TypeFifo // the receiver reports what it leaves out
	}
	return out.WriteHeader(h)
}

func (s *sandbox) unionPut(ctx context.Context, rel, p string, format sdk.Format, r io.Reader) error {
	if format != sdk.FormatFile && format != sdk.FormatTar {
		return sdk.Errorf(sdk.ReasonUnsupported, "podman does not speak %q", format)
	}
	u, err := s.union() // by the user who runs hutch: the way to the layers is closed to the sandbox's user
	if err != nil {
		return err
	}
	defer u.Close()
	if format == sdk.FormatTar {
		return s.unionPutTree(ctx, u, rel, p, r)
	}
	return s.asUser(func() error {
		switch parent, err := u.Lstat(path.Dir(rel)); {
		case err != nil:
			return inside.Error(p, err)
		case parent.Mode.Type() == 0:
			return inside.Error(p, unix.ENOTDIR)
		}
		mode := fs.FileMode(0o644)
		switch n, err := u.Lstat(rel); {
		case err == nil && n.Mode.Type() != 0:
			return sdk.Errorf(sdk.ReasonConfig, "%s is not a regular file", p)
		case err == nil:
			mode = n.Mode.Perm()
		}
		return unionError(p, u.WriteFile(rel, r, mode))
	})
}

// unionPutTree unpacks a tree aside, where whatever is wrong with it shows, and then merges it in.
func (s *sandbox) unionPutTree(ctx context.Context, u *overlay.Union, rel, p string, r io.Reader) error {
	aside, err := os.MkdirTemp(s.dirs.layer(), "put-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(aside)
	if err := s.who.own(aside); err != nil {
		return err
	}
	root, err := os.OpenRoot(aside)
	if err != nil {
		return err
	}
	defer root.Close()
	return s.asUser(func() error {
		if _, err := tree.Unpack(ctx, r, root, tree.Caps{}); err != nil {
			if ctx.Err() != nil {
				return err
			}
			return sdk.Errorf(sdk.ReasonConfig, "the tree cannot be written to %s: %w", p, err)
		}
		if err := u.MkdirAll(rel, 0o755); err != nil {
			return inside.NoDir(p, err)
		}
		return unionError(p, fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || name == "." {
				return err
			}
			return mergeNode(u, root, name, path.Join(rel, name))
		}))
	})
}

// mergeNode puts one entry of a tree into the union.
func mergeNode(u *overlay.Union, from *os.Root, name, to string) error {
	fi, err := from.Lstat(name)
	if err != nil {
		return err
	}
	switch fi.Mode().Type() {
	case fs.ModeDir:
		return mergeDir(u, to, fi.Mode().Perm())
	case fs.ModeSymlink:
		target, err := from.Readlink(name)
		if err != nil {
			return err
		}
		return u.Symlink(target, to)
	}
	f, err := from.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if n, err := u.Lstat(to); err == nil && n.Mode.Type() == fs.ModeSymlink { // replaced, and not followed
		if err := u.Remove(to, false); err != nil {
			return err
		}
	}
	return u.WriteFile(to, f, fi.Mode().Perm())
}

func mergeDir(u *overlay.Union, to string, mode fs.FileMode) error {
	if n, err := u.Lstat(to); err == nil && n.Mode.IsDir() {
		return u.Chmod(to, mode)
	}
	return u.MkdirAll(to, mode)
}

func (s *sandbox) unionRemove(rel, p string, recursive bool) error {
	u, err := s.union()
	if err != nil {
		return err
	}
	defer u.Close()
	return s.asUser(func() error {
		n, err := u.Lstat(rel)
		if err != nil {
			return inside.Error(p, err)
		}
		if n.Mode.IsDir() && !recursive {
			return sdk.Errorf(sdk.ReasonConfig, "%s is a directory", p).WithFix("remove it with all that is in it: recursive")
		}
		return unionError(p, u.Remove(rel, recursive))
	})
}

// asUser runs fn with the rights of the sandbox's user, which rootless are those of the user who runs hutch.
func (s *sandbox) asUser(fn func() error) error {
	if s.who.rootless || s.who.hostUID == 0 {
		return fn()
	}
	return inside.AsUser(s.who.hostUID, s.who.hostGID, fn)
}

// unionError gives an error of the union the reason that the contract has for it.
func unionError(p string, err error) error {
	if errors.Is(err, overlay.ErrOutside) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EEXIST) {
		return sdk.Errorf(sdk.ReasonConfig, "%s: %w", p, err)
	}
	return inside.Error(p, err)
}
