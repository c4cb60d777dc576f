package bundle

import (
	"context"
	"io"
	"strings"

	"github.com/hutch-run/hutch/host/git"
)

// Write writes a bundle that holds commit with its whole history as branch. The pack is made as `git bundle create` has it
// made, and comes as it is made: nothing is written on this host.
//
// The header is written here and not by git, because a commit that no ref names has no name for `git bundle`, and giving it
// one would show in the user's repository.
func Write(ctx context.Context, r *git.Repo, commit, branch string, w io.Writer) error {
	h := Header{Format: r.Format, Refs: []Ref{{commit, "refs/heads/" + branch}}}
	if _, err := io.WriteString(w, h.String()); err != nil {
		return err
	}
	_, err := r.Do(ctx, git.Call{Stdin: strings.NewReader(commit + "\n"), Stdout: w}, "pack-objects", "--quiet", "--stdout", "--revs", "--delta-base-offset")
	return err
}
