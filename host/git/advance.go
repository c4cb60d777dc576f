package git

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// SameTree reports whether the work tree, files that are not tracked included, is what commit holds.
func (r *Repo) SameTree(ctx context.Context, commit string) (bool, error) {
	now, err := r.Snapshot(ctx, commit, "compare")
	if err != nil {
		return false, err
	}
	out, err := r.Run(ctx, "rev-parse", now+"^{tree}", commit+"^{tree}")
	if err != nil {
		return false, err
	}
	a, b, _ := strings.Cut(out, "\n")
	return a == b, nil
}

// Advance moves the branch that is checked out, and whose commit is head, to commit, when the work tree is that of
// base, a commit on top of head and below commit. A fast-forward refuses that, because what base holds is not committed
// on the branch. Files that changed since are never overwritten: git refuses then.
func (r *Repo) Advance(ctx context.Context, branch, head, base, commit string) error {
	if _, err := r.Run(ctx, "read-tree", base); err != nil { // the index only
		return err
	}
	// What git knows of the files is gone with the old index, so it looks again.
	_, err := r.Run(ctx, "update-index", "-q", "--really-refresh")
	if err == nil || code(err) == 1 {
		_, err = r.Run(ctx, "read-tree", "-m", "-u", base, commit)
	}
	if err == nil {
		_, err = r.Run(ctx, "update-ref", "-m", "hutch pull: fast-forward", "refs/heads/"+branch, commit, head)
	}
	if err != nil {
		_, back := r.Run(ctx, "read-tree", head)
		return errors.Join(err, back)
	}
	return nil
}

// Filtered lists those of the paths that a filter of the user's configuration would be run on when they are checked
// out.
func (r *Repo) Filtered(ctx context.Context, paths []string) ([]string, error) {
	out, err := r.Run(ctx, "config", "-z", "--name-only", "--get-regexp", `^filter\..*\.(smudge|process)$`)
	if code(err) == 1 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var drivers []string
	for _, key := range strings.Split(out, "\x00") {
		key = strings.TrimPrefix(key, "filter.")
		if i := strings.LastIndexByte(key, '.'); i > 0 {
			drivers = append(drivers, key[:i])
		}
	}
	out, err = r.Do(ctx, Call{Stdin: strings.NewReader(strings.Join(paths, "\x00") + "\x00")}, "check-attr", "-z", "--stdin", "filter")
	if err != nil {
		return nil, err
	}
	var list []string
	for f := strings.Split(out, "\x00"); len(f) >= 3; f = f[3:] { // path, attribute, value
		if slices.Contains(drivers, f[2]) {
			list = append(list, f[0])
		}
	}
	return list, nil
}

// Changed lists the paths that differ between two commits.
func (r *Repo) Changed(ctx context.Context, from, to string) ([]string, error) {
	out, err := r.Run(ctx, "diff-tree", "-r", "-z", "--name-only", "--no-renames", from, to)
	if err != nil || out == "" {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(out, "\x00"), "\x00"), nil
}
