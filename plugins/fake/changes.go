package main

import (
	"context"
	"os"
	"slices"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/overlay"
)

// Changes implements [sdk.ChangeLister]: the workspace beside its source, as both
// are now. A shared workspace is its own source, and has no changes.
func (s *sandbox) Changes(ctx context.Context) ([]sdk.Change, error) {
	cfg := &s.st.Config
	cfg.fault("changes")
	from, err := os.OpenRoot(s.origin())
	if err != nil {
		return nil, err
	}
	defer from.Close()
	to, err := os.OpenRoot(s.st.Workspace)
	if err != nil {
		return nil, err
	}
	defer to.Close()
	o := overlay.Options{Contents: true}
	before, err := overlay.Take(ctx, from, o)
	if err != nil {
		return nil, err
	}
	out, err := before.Changes(ctx, to, o)
	if cfg.lies("changes_deleted") {
		out = slices.DeleteFunc(out, func(c sdk.Change) bool { return c.Kind == sdk.ChangeDeleted })
	}
	if cfg.lies("changes_order") {
		slices.Reverse(out)
	}
	return out, err
}

// origin is what the workspace was made from; an empty directory without a source.
func (s *sandbox) origin() string {
	if s.st.Source != "" {
		return s.st.Source
	}
	return s.path("nothing")
}
