package main

import (
	"context"
	"io"
	"os"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/inside"
	"github.com/hutch-run/hutch/sdk/overlay"
)

// files are those of the container, through the root directory of its first process.
func (s *sandbox) files() inside.Files {
	return inside.Files{Root: s.root, As: s.asUser, Own: []string{s.ready.Workspace, s.ready.Input, s.ready.Output}}
}

// Get implements [sdk.Getter].
func (s *sandbox) Get(ctx context.Context, p string, format sdk.Format, w io.Writer) error {
	release, err := s.use()
	if err != nil {
		return err
	}
	defer release()
	return s.files().Get(ctx, p, format, w)
}

// Put implements [sdk.Putter]. It writes with the rights of the sandbox's user.
func (s *sandbox) Put(ctx context.Context, p string, format sdk.Format, r io.Reader) error {
	release, err := s.use()
	if err != nil {
		return err
	}
	defer release()
	return s.files().Put(ctx, p, format, r)
}

// Remove implements [sdk.Remover]. It removes with the rights of the sandbox's user.
func (s *sandbox) Remove(_ context.Context, p string, recursive bool) error {
	release, err := s.use()
	if err != nil {
		return err
	}
	defer release()
	return s.files().Remove(p, recursive)
}

// asUser runs fn with the rights of the sandbox's user, which rootless are those of the user who runs hutch.
func (s *sandbox) asUser(fn func() error) error {
	if s.who.rootless || s.who.hostUID == 0 {
		return fn()
	}
	return inside.AsUser(s.who.hostUID, s.who.hostGID, fn)
}

// Changes implements [sdk.ChangeLister].
func (s *sandbox) Changes(ctx context.Context) ([]sdk.Change, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.gone {
		return nil, sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone", s.id)
	}
	ws := s.spec.Workspace
	switch {
	case ws.Mode == sdk.WorkspaceReadOnly || ws.Source == "":
		return nil, nil
	case ws.Mode == sdk.WorkspaceShared && s.snapshot == nil:
		return nil, nil
	case ws.Mode == sdk.WorkspaceShared:
		return inside.ChangesSince(ctx, s.snapshot, ws.Source)
	}
	upper, err := os.OpenRoot(s.dirs.upper())
	if err != nil {
		return nil, err
	}
	defer upper.Close()
	return inside.Changes(ctx, ws.Source, upper, overlay.Options{Trusted: s.ready.Layers != nil && s.ready.Layers.Trusted})
}
