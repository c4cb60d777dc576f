package bundle

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hutch-run/hutch/host/git"
	"github.com/hutch-run/hutch/host/review"
	"github.com/hutch-run/hutch/sdk/safepath"
)

// Finding is one thing that `hutch apply` would refuse too, unless it is allowed.
type Finding struct {
	Path   string
	Rule   review.Rule
	Detail string // one clause for a person, without the path
}

// maxLink is how long the target of a symbolic link may be.
const maxLink = 4096

// findings looks at what is different in the end.
func (c *Checked) findings(ctx context.Context, tip []entry) ([]Finding, error) {
	var out []Finding
	fresh := map[string]bool{}
	for _, e := range tip {
		fresh[e.path] = true
		if tool := review.ObeyedBy(e.path); tool != "" {
			out = append(out, Finding{e.path, review.RuleTools, tool + " runs or obeys it without being asked"})
		}
		if e.mode != modeLink {
			continue
		}
		target, err := c.link(ctx, e)
		if err != nil {
			return nil, err
		}
		if review.LeadsOut(e.path, target) {
			out = append(out, Finding{e.path, review.RuleLinks, fmt.Sprintf("it links to %s, outside the project", review.Quote(target))})
		}
	}
	if len(tip) > 0 {
		same, err := c.collisions(ctx, fresh)
		if err != nil {
			return nil, err
		}
		out = append(out, same...)
	}
	sortFindings(out)
	return out, nil
}

// link reads where a symbolic link points.
func (c *Checked) link(ctx context.Context, e entry) (string, error) {
	size, err := c.quarantine.Run(ctx, "cat-file", "-s", e.object)
	if err != nil {
		return "", err
	}
	if len(size) > 4 || len(size) == 4 && size > fmt.Sprint(maxLink) {
		return "", fmt.Errorf("%s is a symbolic link with a target of %s bytes", review.Quote(e.path), size)
	}
	var b strings.Builder
	_, err = c.quarantine.Do(ctx, git.Call{Stdout: &b}, "cat-file", "blob", e.object)
	return b.String(), err
}

// collisions finds new paths that are the same as another where case or Unicode form does not count.
func (c *Checked) collisions(ctx context.Context, fresh map[string]bool) ([]Finding, error) {
	list, err := c.quarantine.Run(ctx, "ls-tree", "-r", "-z", "--name-only", "--full-tree", c.Commit)
	if err != nil {
		return nil, err
	}
	paths := strings.Split(strings.TrimSuffix(list, "\x00"), "\x00")
	set := safepath.Set{Rules: pathRules}
	var out []Finding
	for _, isNew := range []bool{false, true} { // what is new collides with what was there, and not the other way round
		for _, p := range paths {
			if fresh[p] != isNew {
				continue
			}
			var bad *safepath.Error
			if err := set.AddFile(p); errors.As(err, &bad) && isNew && bad.Kind == safepath.Collision {
				out = append(out, Finding{p, review.RuleCollisions, fmt.Sprintf("where case or Unicode form does not count it is the same as %s", review.Quote(bad.Other))})
			}
		}
	}
	return out, nil
}
