package git

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Ends are the commits at which the history of commit ends although they have parents: where this repository is a
// shallow clone, and, with a depth that is not 0, where depth commits follow one another, commit itself being the
// first. The list is empty when the history is whole.
func (r *Repo) Ends(ctx context.Context, commit string, depth int) ([]string, error) {
	cut, err := r.cut()
	if err != nil || depth == 0 && len(cut) == 0 {
		return nil, err
	}
	if depth == 0 {
		roots, err := r.Run(ctx, "rev-list", "--max-parents=0", commit)
		if err != nil {
			return nil, err
		}
		var ends []string
		for _, root := range strings.Fields(roots) {
			if cut[root] {
				ends = append(ends, root)
			}
		}
		return ends, nil
	}
	var ends []string
	seen := map[string]bool{commit: true}
	for level := []string{commit}; len(level) > 0; depth-- {
		// In a shallow clone git shows no parents where its history ends.
		out, err := r.Do(ctx, Call{Stdin: strings.NewReader(strings.Join(level, "\n") + "\n")}, "rev-list", "--no-walk=unsorted", "--parents", "--stdin")
		if err != nil {
			return nil, err
		}
		level = nil
		for line := range strings.Lines(out) {
			c := strings.Fields(line)
			switch {
			case len(c) == 1 && !cut[c[0]]: // a root
			case len(c) == 1 || depth <= 1:
				ends = append(ends, c[0])
			default:
				for _, parent := range c[1:] {
					if !seen[parent] {
						seen[parent] = true
						level = append(level, parent)
					}
				}
			}
		}
	}
	return ends, nil
}

// cut are the commits whose parents were left out when this repository was cloned.
func (r *Repo) cut() (map[string]bool, error) {
	b, err := os.ReadFile(filepath.Join(r.Common, "shallow"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	cut := map[string]bool{}
	for _, c := range strings.Fields(string(b)) {
		cut[c] = true
	}
	return cut, nil
}
