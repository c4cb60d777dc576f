package review

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/git"
)

// joined is what becomes of a file that both sides changed.
type joined struct {
	content []byte
	mode    uint32
	why     string // why they cannot be joined; empty when they can
}

// merge takes those changes out of conflict in which the two sides changed different places of a text: the sandbox's
// version becomes one that has both.
func (r *Review) merge(ctx context.Context) error {
	for _, c := range r.Changes {
		if c.Conflict == "" {
			continue
		}
		j, project, err := r.join(ctx, c)
		if err != nil {
			return err
		}
		if j.why != "" {
			c.Sides.Unmerged = j.why
			continue
		}
		sandbox, err := r.newBytes(ctx, c)
		if err != nil {
			return err
		}
		// With nothing of the project's that the sandbox lacks, it is the sandbox's version, which both have from now on.
		c.Merged = !bytes.Equal(j.content, sandbox) || j.mode != c.New.Mode
		c.Conflict, c.Sides = "", nil
		c.blob = newBlob(j.content)
		c.New.Size, c.New.SHA256, c.New.Mode = c.blob.size, c.blob.sha256, j.mode
		if bytes.Equal(j.content, project) {
			c.Kind, c.blob = Mode, nil
		}
	}
	r.Changes = slices.DeleteFunc(r.Changes, func(c *Change) bool {
		return c.Merged && c.Kind == Mode && c.New.Mode == c.Old.Mode // the project has it already
	})
	return nil
}

// join makes one version of the two of a change in conflict. project is the text that the project has.
func (r *Review) join(ctx context.Context, c *Change) (j joined, project []byte, err error) {
	s := c.Sides
	if s == nil || s.Base.Type != File || s.Project.Type != File || s.Sandbox.Type != File || c.Kind != Modified {
		return joined{why: "only texts that both sides changed can be merged"}, nil, nil
	}
	if s.blob == "" {
		return joined{why: "git does not have it as it was when the sandbox was made; what is to be merged must be committed, or added with git add, before a sandbox is made"}, nil, nil
	}
	t, err := r.content(ctx, c, r.project)
	switch {
	case err != nil:
		return joined{}, nil, err
	case t.text == nil:
		return joined{why: cmpOr(t.note, "its content is the same")}, nil, nil
	}
	switch s.Base.Mode {
	case s.Project.Mode:
		j.mode = s.Sandbox.Mode
	case s.Sandbox.Mode:
		j.mode = s.Project.Mode
	default:
		if j.mode = s.Project.Mode; s.Sandbox.Mode != j.mode {
			return joined{why: "both sides changed its mode"}, nil, nil
		}
	}
	base, err := r.blobOf(ctx, s)
	if err != nil {
		return joined{why: "what it was when the sandbox was made cannot be read: " + err.Error()}, nil, context.Cause(ctx)
	}
	if isBinary(base) {
		return joined{why: "it was binary when the sandbox was made"}, nil, nil
	}
	project = []byte(strings.Join(t.text.old, ""))
	j.content, err = git.MergeText(ctx, project, base, []byte(strings.Join(t.text.new, "")))
	switch {
	case errors.Is(err, git.ErrOverlap):
		return joined{why: err.Error()}, nil, nil
	case err != nil:
		return joined{}, nil, fmt.Errorf("merge %s: %w", Quote(c.Path), err)
	}
	return j, project, nil
}

// blobOf reads from the project's repository what stood at a path when the sandbox was made. A filter between work tree
// and repository shows in its size.
func (r *Review) blobOf(ctx context.Context, s *Sides) ([]byte, error) {
	if r.repo == nil {
		repo, err := git.Open(ctx, r.Subject.Project)
		if err != nil {
			return nil, err
		}
		r.repo = repo
	}
	return r.repo.Blob(ctx, hex.EncodeToString([]byte(s.blob)), s.Base.Size)
}
