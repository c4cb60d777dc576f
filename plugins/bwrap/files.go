package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/inside"
	"github.com/hutch-run/hutch/sdk/overlay"
)

// openDir returns the directory behind a descriptor.
func openDir(f *os.File) (*os.Root, error) {
	defer runtime.KeepAlive(f)
	return os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

// withFiles calls fn with the files of the sandbox, through its root directory as the holder sees it.
func (s *sandbox) withFiles(fn func(inside.Files) error) error {
	release, err := s.use()
	if err != nil {
		return err
	}
	defer release()
	root, err := openDir(s.root)
	if err != nil {
		return err
	}
	defer root.Close()
	f := inside.Files{Root: root, Own: []string{s.ready.Workspace, s.ready.Input, s.ready.Output}}
	if s.ident.Privileged {
		f.As = func(change func() error) error {
			return inside.AsUser(int(s.ident.hostUID), int(s.ident.hostGID), change)
		}
	}
	return fn(f)
}

// Get implements [sdk.Getter].
func (s *sandbox) Get(ctx context.Context, p string, format sdk.Format, w io.Writer) error {
	return s.withFiles(func(f inside.Files) error { return f.Get(ctx, p, format, w) })
}

// Put implements [sdk.Putter]. It writes with the rights of the sandbox's user.
func (s *sandbox) Put(ctx context.Context, p string, format sdk.Format, r io.Reader) error {
	return s.withFiles(func(f inside.Files) error { return f.Put(ctx, p, format, r) })
}

// Remove implements [sdk.Remover]. It removes with the rights of the sandbox's user.
func (s *sandbox) Remove(_ context.Context, p string, recursive bool) error {
	return s.withFiles(func(f inside.Files) error { return f.Remove(p, recursive) })
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
	switch {
	case ws.Mode == sdk.WorkspaceReadOnly || ws.Source == "":
		return nil, nil
	case ws.Mode == sdk.WorkspaceShared && s.snapshot != nil:
		return inside.ChangesSince(ctx, s.snapshot, ws.Source)
	case ws.Mode == sdk.WorkspaceShared && s.keep:
		return nil,
			sdk.Errorf(sdk.ReasonUnsupported,
				"only the process that made the sandbox could tell what changed in its shared workspace")
	case ws.Mode == sdk.WorkspaceShared:
		return nil, nil
	}
	upper, err := openDir(s.upper)
	if err != nil {
		return nil, err
	}
	defer upper.Close()
	return inside.Changes(ctx, ws.Source, upper, overlay.Options{}) // of no fork, which is kept
}

// layerChanges compares the layer on disk, which needs no holder.
func (s *sandbox) layerChanges(ctx context.Context) ([]sdk.Change, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone", s.id)
	}
	upper, err := os.OpenRoot(filepath.Join(s.dir, "layer", "upper"))
	if err != nil {
		return nil, fmt.Errorf("open the sandbox's layer: %w", err)
	}
	defer upper.Close()
	frozen, err := frozenLayers(s.dir)
	if err != nil {
		return nil, err
	}
	var o overlay.Options
	for _, dir := range frozen {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, fmt.Errorf("open the sandbox's frozen layer: %w", err)
		}
		defer root.Close()
		o.Frozen = append(o.Frozen, root)
	}
	return inside.Changes(ctx, s.spec.Workspace.Source, upper, o)
}
