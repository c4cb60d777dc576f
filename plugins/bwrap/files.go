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
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/safefile"
	"github.com/hutch-run/hutch/sdk/tree"
)

// at returns the sandbox's root directory, as the holder sees it, and the part
// of p below it. Nothing a command may do leads out of that root: [os.Root]
// follows no link beyond it.
func (s *sandbox) at(p string) (*os.Root, string, error) {
	if !path.IsAbs(p) {
		return nil, "", sdk.Errorf(sdk.ReasonConfig, "the path %q inside the sandbox is not absolute", p)
	}
	root, err := openDir(s.root)
	if err != nil {
		return nil, "", err
	}
	rel := strings.TrimPrefix(path.Clean(p), "/")
	if rel == "" {
		rel = "."
	}
	return root, rel, nil
}

// openDir returns the directory behind a descriptor.
func openDir(f *os.File) (*os.Root, error) {
	defer runtime.KeepAlive(f)
	return os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

// Get implements [sdk.Getter].
func (s *sandbox) Get(ctx context.Context, p string, format sdk.Format, w io.Writer) error {
	release, err := s.use()
	if err != nil {
		return err
	}
	defer release()
	root, rel, err := s.at(p)
	if err != nil {
		return err
	}
	defer root.Close()
	switch format {
	case sdk.FormatFile:
		f, _, err := safefile.Open(root, rel, -1)
		if err != nil {
			return missing(p, err)
		}
		defer f.Close()
		_, err = io.Copy(w, f)
		return err
	case sdk.FormatTar:
		dir, err := root.OpenRoot(rel)
		if err != nil {
			return missing(p, err)
		}
		defer dir.Close()
		_, err = tree.Pack(ctx, dir, w, tree.PackOptions{Special: true})
		return err
	}
	return sdk.Errorf(sdk.ReasonUnsupported, "bwrap does not speak %q", format)
}

// Put implements [sdk.Putter]. It writes with the rights of the sandbox's user.
func (s *sandbox) Put(ctx context.Context, p string, format sdk.Format, r io.Reader) error {
	if format != sdk.FormatFile && format != sdk.FormatTar {
		return sdk.Errorf(sdk.ReasonUnsupported, "bwrap does not speak %q", format)
	}
	release, err := s.use()
	if err != nil {
		return err
	}
	defer release()
	root, rel, err := s.at(p)
	if err != nil {
		return err
	}
	defer root.Close()
	return s.asUser(func() error {
		if format == sdk.FormatFile {
			return putFile(root, rel, r)
		}
		if err := root.MkdirAll(rel, 0o755); err != nil {
			return missing(p, err)
		}
		dir, err := root.OpenRoot(rel)
		if err != nil {
			return missing(p, err)
		}
		defer dir.Close()
		_, err = tree.Unpack(ctx, r, dir, tree.Caps{})
		return refused(ctx, p, err)
	})
}

// putFile replaces the file rel in one step, so that a command never sees half of
// it, and so that a hard link to it keeps its content.
func putFile(root *os.Root, rel string, r io.Reader) error {
	if st, err := root.Lstat(rel); err == nil && !st.Mode().IsRegular() {
		return sdk.Errorf(sdk.ReasonConfig, "%s is not a regular file", rel)
	}
	temp := path.Join(path.Dir(rel), fmt.Sprintf(".hutch-put-%d", os.Getpid()))
	_ = root.Remove(temp)
	mode := fs.FileMode(0o644)
	if st, err := root.Lstat(rel); err == nil {
		mode = st.Mode().Perm()
	}
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return missing("/"+rel, err)
	}
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err == nil {
		err = root.Rename(temp, rel)
	}
	if err != nil {
		_ = root.Remove(temp)
	}
	return err
}

// Remove implements [sdk.Remover]. It removes with the rights of the sandbox's user.
func (s *sandbox) Remove(_ context.Context, p string, recursive bool) error {
	release, err := s.use()
	if err != nil {
		return err
	}
	defer release()
	root, rel, err := s.at(p)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, own := range []string{s.ready.Workspace, s.ready.Input, s.ready.Output} {
		if own != "" && (rel == "." || own == "/"+rel || strings.HasPrefix(own, "/"+rel+"/")) {
			return sdk.Errorf(sdk.ReasonConfig, "%s is part of the sandbox and cannot be removed", p).WithFix("remove what is in it")
		}
	}
	return s.asUser(func() error {
		st, err := root.Lstat(rel)
		if err != nil {
			return missing(p, err)
		}
		if st.IsDir() && !recursive {
			return sdk.Errorf(sdk.ReasonConfig, "%s is a directory", p).WithFix("remove it with all that is in it")
		}
		return missing(p, removeAll(root, rel))
	})
}

// asUser runs fn with the file system rights of the sandbox's user, on a thread of
// its own. For an ordinary user those are one's own already.
func (s *sandbox) asUser(fn func() error) error {
	if !s.ident.Privileged {
		return fn()
	}
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine, and its ids with it.
		runtime.LockOSThread()
		done <- func() error {
			if err := unix.Setfsgid(int(s.ident.hostGID)); err != nil {
				return err
			}
			if err := unix.Setfsuid(int(s.ident.hostUID)); err != nil {
				return err
			}
			return fn()
		}()
	}()
	return <-done
}

// missing says that p is not there when that is what err means.
func missing(p string, err error) error {
	var refused *safefile.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return sdk.Errorf(sdk.ReasonNotFound, "there is no %s in the sandbox: %w", p, err)
	case errors.As(err, &refused):
		return sdk.Errorf(sdk.ReasonConfig, "%s: %w", p, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return sdk.Errorf(sdk.ReasonDenied, "%s: %w", p, err)
	}
	return fmt.Errorf("%s: %w", p, err)
}

// refused says why a tree could not be written at p: for want of room or rights,
// or because of what the tree holds.
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

// Changes implements [sdk.ChangeLister].
func (s *sandbox) Changes(ctx context.Context) ([]sdk.Change, error) {
	ws := s.spec.Workspace
	if s.keep && ws.Source != "" && ws.Mode == sdk.WorkspacePrivate {
		return s.layerChanges(ctx)
	}
	release, err := s.use()
	if err != nil {
		return nil, err
	}
	defer release()
	if ws.Mode == sdk.WorkspaceReadOnly || ws.Source == "" {
		return nil, nil
	}
	lower, err := os.OpenRoot(ws.Source)
	if err != nil {
		return nil, fmt.Errorf("open the workspace's source: %w", err)
	}
	defer lower.Close()
	if ws.Mode == sdk.WorkspaceShared {
		switch {
		case s.snapshot != nil:
			return changes(s.snapshot.Changes(ctx, lower, overlay.Options{}))
		case s.keep:
			return nil, sdk.Errorf(sdk.ReasonUnsupported, "only the process that made the sandbox could tell what changed in its shared workspace")
		}
		return nil, nil
	}
	upper, err := openDir(s.upper)
	if err != nil {
		return nil, err
	}
	defer upper.Close()
	return changes(overlay.Changes(ctx, lower, upper, overlay.Options{Ignore: []string{"input", "output"}}))
}

// layerChanges compares the layer on disk, which needs no holder.
func (s *sandbox) layerChanges(ctx context.Context) ([]sdk.Change, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone", s.id)
	}
	lower, err := os.OpenRoot(s.spec.Workspace.Source)
	if err != nil {
		return nil, fmt.Errorf("open the workspace's source: %w", err)
	}
	defer lower.Close()
	upper, err := os.OpenRoot(filepath.Join(s.dir, "layer", "upper"))
	if err != nil {
		return nil, fmt.Errorf("open the sandbox's layer: %w", err)
	}
	defer upper.Close()
	return changes(overlay.Changes(ctx, lower, upper, overlay.Options{Ignore: []string{"input", "output"}}))
}

// changes converts the list; what was found before a bound was reached is lost, as
// a list that is not whole would be taken for one that is.
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
