package bundle

import (
	"context"
	"io"
	"strings"

	"github.com/hutch-run/hutch/host/git"
)

// Part says how much of the history a bundle leaves out. The zero value is all of it.
type Part struct {
	// Have are commits that the receiver has with the history behind them. They become prerequisites, and the pack is made
	// of what they do not reach, with deltas on what they do.
	Have []string
	// Ends are commits whose parents are left out, as [git.Repo.Ends] finds them. A bundle cannot say so itself: the
	// receiver has to have them in its file .git/shallow before it fetches.
	Ends []string
}

// Write writes a bundle that holds commit with its history as branch. The pack is made as `git bundle create` has it
// made, and comes as it is made: nothing is written on this host.
//
// The header is written here and not by git, because a commit that no ref names has no name for `git bundle`, and
// giving it one would show in the user's repository.
func Write(ctx context.Context, r *git.Repo, commit, branch string, p Part, w io.Writer) error {
	h := Header{Format: r.Format, Prerequisites: p.Have, Refs: []Ref{{commit, "refs/heads/" + branch}}}
	if _, err := io.WriteString(w, h.String()); err != nil {
		return err
	}
	var revs strings.Builder
	for _, end := range p.Ends {
		revs.WriteString("--shallow " + end + "\n") // as git upload-pack says it
	}
	revs.WriteString(commit + "\n")
	for _, have := range p.Have {
		revs.WriteString("^" + have + "\n")
	}
	args := []string{"pack-objects", "--quiet", "--stdout", "--revs", "--delta-base-offset"}
	if len(p.Have) > 0 {
		args = append(args, "--thin")
	}
	_, err := r.Do(ctx, git.Call{Stdin: strings.NewReader(revs.String()), Stdout: w}, args...)
	return err
}
