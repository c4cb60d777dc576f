package inside

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/hutch-run/hutch/sdk/contract"
	"github.com/hutch-run/hutch/sdk/overlay"
)

// Snapshot remembers what a shared workspace looks like, to find out later what changed in it. note is for the user.
// There is no snapshot when the directory has too many entries, and it leaves out directories that this user cannot
// read.
func Snapshot(ctx context.Context, dir string) (s *overlay.Snapshot, note string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, "", contract.Errorf(contract.ReasonConfig, "open the workspace: %w", err)
	}
	defer root.Close()
	s, err = overlay.Take(ctx, root, overlay.Options{})
	switch {
	case errors.Is(err, overlay.ErrTooMany):
		return nil, "the shared workspace has too many entries to say afterwards what changed in it", nil
	case errors.Is(err, overlay.ErrUnreadable): // commands have no more rights there than this user
		return s, fmt.Sprintf("changes are not looked for where this user cannot read the shared workspace %s: %v", dir,
			err), nil
	}
	return s, "", err
}

// Changes compares the upper layer of a private workspace with its source.
func Changes(ctx context.Context, source string, upper *os.Root, o overlay.Options) ([]overlay.Change, error) {
	lower, err := os.OpenRoot(source)
	if err != nil {
		return nil, fmt.Errorf("open the workspace's source: %w", err)
	}
	defer lower.Close()
	return whole(overlay.Changes(ctx, lower, upper, o))
}

// ChangesSince compares a shared workspace with what it was.
func ChangesSince(ctx context.Context, s *overlay.Snapshot, dir string) ([]overlay.Change, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the workspace's source: %w", err)
	}
	defer root.Close()
	return whole(s.Changes(ctx, root, overlay.Options{}))
}

// whole drops a list that is not: what was found before a bound was reached would be taken for all.
func whole(list []overlay.Change, err error) ([]overlay.Change, error) {
	if err != nil {
		return nil, fmt.Errorf("compare the workspace: %w", err)
	}
	return list, nil
}
