package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/safefile"
	"github.com/hutch-run/hutch/sdk/tree"
)

// Files are reached through the root directory of the container's first process, as the container sees it. Nothing a
// command may do leads out of that root: [os.Root] follows no link beyond it.

// below returns the part of p below the container's root.
func below(p string) (string, error) {
	if !path.IsAbs(p) {
		return "", sdk.Errorf(sdk.ReasonConfig, "the path %q inside the sandbox is not absolute", p)
	}
	if rel := strings.TrimPrefix(path.Clean(p), "/"); rel != "" {
		return rel, nil
	}
	return ".", nil
}

// useFor is use for a path inside the sandbox.
func (s *sandbox) useFor(p string, format sdk.Format) (rel string, release func(), err error) {
	if rel, err = below(p); err != nil {
		return "", nil, err
	}
	if format != sdk.FormatFile && format != sdk.FormatTar {
		return "", nil, sdk.Errorf(sdk.ReasonUnsupported, "podman does not speak %q", format)
	}
	release, err = s.use()
	return rel, release, err
}

// Get implements [sdk.Getter].
func (s *sandbox) Get(ctx context.Context, p string, format sdk.Format, w io.Writer) error {
	rel, release, err := s.useFor(p, format)
	if err != nil {
		return err
	}
	defer release()
	if in, ok := s.inUnion(p); ok {
		return s.unionGet(ctx, in, p, format, w)
	}
	if format == sdk.FormatFile {
		f, _, err := safefile.Open(s.root, rel, -1)
		if err != nil {
			return missing(p, err)
		}
		defer f.Close()
		_, err = io.Copy(w, f)
		return err
	}
	dir, err := s.root.OpenRoot(rel)
	if err != nil {
		return missing(p, err)
	}
	defer dir.Close()
	_, err = tree.Pack(ctx, dir, w, tree.PackOptions{Special: true})
	return err
}

// Put implements [sdk.Putter]. It writes with the rights of the sandbox's user.
func (s *sandbox) Put(ctx context.Context, p string, format sdk.Format, r io.Reader) error {
	rel, release, err := s.useFor(p, format)
	if err != nil {
		return err
	}
	defer release()
	if in, ok := s.inUnion(p); ok {
		return s.unionPut(ctx, in, p, format, r)
	}
	return s.asUser(func() error {
		if format == sdk.FormatFile {
			return putFile(s.root, rel, r)
		}
		if err := s.root.MkdirAll(rel, 0o755); err != nil {
			return noDir(p, err)
		}
		dir, err := s.root.OpenRoot(rel)
		if err != nil {
			return missing(p, err)
		}
		defer dir.Close()
		_, err = tree.Unpack(ctx, r, dir, tree.Caps{})
		return refused(ctx, p, err)
	})
}

// putFile replaces the file rel in one step, so that a command never sees half of it, and so that a hard link to it keeps
// its content.
func putFile(root *os.Root, rel string, r io.Reader) error {
	mode := fs.FileMode(0o644)
	if st, err := root.Lstat(rel); err == nil {
		if !st.Mode().IsRegular() {
			return sdk.Errorf(sdk.ReasonConfig, "%s is not a regular file", rel)
		}
		mode = st.Mode().Perm()
	}
	temp := path.Join(path.Dir(rel), fmt.Sprintf(".hutch-put-%d", os.Getpid()))
	_ = root.Remove(temp)
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return missing("/"+rel, err)
	}
	_, err = io.Copy(f, r)
	if err == nil {
		err = f.Chmod(mode) // whatever this process's umask took from it
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(temp, rel)
	}
	if err != nil {
		_ = root.Remove(temp)
	}
	return err
}

// Remove implements [sdk.Remover]. It removes with the rights of the sandbox's user.
func (s *sandbox) Remove(_ context.Context, p string, recursive bool) error {
	rel, release, err := s.useFor(p, sdk.FormatFile)
	if err != nil {
		return err
	}
	defer release()
	for _, own := range []string{s.ready.Workspace, s.ready.Input, s.ready.Output} {
		if own != "" && (rel == "." || own == "/"+rel || strings.HasPrefix(own, "/"+rel+"/")) {
			return sdk.Errorf(sdk.ReasonConfig, "%s is part of the sandbox and cannot be removed", p).WithFix("remove what is in it")
		}
	}
	if in, ok := s.inUnion(p); ok {
		return s.unionRemove(in, p, recursive)
	}
	return s.asUser(func() error {
		st, err := s.root.Lstat(rel)
		if err != nil {
			return missing(p, err)
		}
		if st.IsDir() && !recursive {
			return sdk.Errorf(sdk.ReasonConfig, "%s is a directory", p).WithFix("remove it with all that is in it")
		}
		err = s.root.RemoveAll(rel)
		if errors.Is(err, fs.ErrPermission) { // of directories that their owner closed to itself
			openBelow(s.root, rel)
			err = s.root.RemoveAll(rel)
		}
		return missing(p, err)
	})
}

// missing says that p is not there, or cannot be reached, when that is what err means.
func missing(p string, err error) error {
	var notOurs *safefile.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return sdk.Errorf(sdk.ReasonNotFound, "there is no %s in the sandbox: %w", p, err)
	case errors.As(err, &notOurs):
		return sdk.Errorf(sdk.ReasonConfig, "%s: %w", p, err)
	}
	return fmt.Errorf("%s: %w", p, err)
}

// noDir says why no directory can be made at p.
func noDir(p string, err error) error {
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, fs.ErrExist) {
		return sdk.Errorf(sdk.ReasonConfig, "a tree cannot be written to %s, which is no directory: %w", p, err)
	}
	return missing(p, err)
}

// refused says why a tree could not be written at p: for want of room or rights, or because of what the tree holds.
func refused(ctx context.Context, p string, err error) error {
	reason := sdk.ReasonConfig
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		reason = sdk.ReasonQuota
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		reason = sdk.ReasonDenied
	}
	return sdk.Errorf(reason, "the tree cannot be written to %s: %w", p, err)
}

// openBelow lets this user into directories below name that a command closed. Links are not followed.
func openBelow(root *os.Root, name string) {
	if st, err := root.Lstat(name); err != nil || !st.IsDir() || root.Chmod(name, 0o700) != nil {
		return
	}
	d, err := root.Open(name)
	if err != nil {
		return
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	for _, n := range names {
		openBelow(root, filepath.Join(name, n))
	}
}

// Changes implements [sdk.ChangeLister].
func (s *sandbox) Changes(ctx context.Context) ([]sdk.Change, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.gone {
		return nil, sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone", s.id)
	}
	ws := s.spec.Workspace
	if ws.Mode == sdk.WorkspaceReadOnly || ws.Source == "" {
		return nil, nil
	}
	lower, err := os.OpenRoot(ws.Source)
	if err != nil {
		return nil, fmt.Errorf("open the workspace's source: %w", err)
	}
	defer lower.Close()
	if ws.Mode == sdk.WorkspaceShared {
		if s.snapshot == nil {
			return nil, nil
		}
		return changes(s.snapshot.Changes(ctx, lower, overlay.Options{}))
	}
	upper, err := os.OpenRoot(s.dirs.upper())
	if err != nil {
		return nil, err
	}
	defer upper.Close()
	o := overlay.Options{Trusted: s.ready.Layers != nil && s.ready.Layers.Trusted}
	if s.over != overlayInside {
		o.Ignore = []string{"input", "output"}
	}
	return changes(overlay.Changes(ctx, lower, upper, o))
}

// changes converts the list; what was found before a bound was reached is lost, as a list that is not whole would be taken
// for one that is.
func changes(list []overlay.Change, err error) ([]sdk.Change, error) {
	if err != nil {
		return nil, fmt.Errorf("compare the workspace: %w", err)
	}
	out := make([]sdk.Change, len(list))
	for i, c := range list {
		out[i] = sdk.Change{Path: c.Path, Kind: sdk.ChangeKind(c.Kind), OldMode: c.OldMode, NewMode: c.NewMode, Size: c.Size}
	}
	return out, nil
}
