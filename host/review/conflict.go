package review

import (
	"context"
	"fmt"
	"path"
	"time"
)

// Side is one version of a path that both sides changed. The zero Side is nothing there.
type Side struct {
	Node
	Modified time.Time // when it was written; the zero time where that is not known
}

// Sides are the three versions of a path in conflict. Of Base its content is known only where git has it.
type Sides struct {
	Base, Project, Sandbox Side
	BaseKnown              bool
	Unmerged               string // with Options.Merge: why they were not merged

	blob string // git's name of the base's content, in bytes; empty where it is not known
}

// Settle picks the sandbox's version of every change in conflict at and below the given paths, whole, in the place of
// the project's. It is an error when there is no conflict at one of them.
func (r *Review) Settle(picks []Pick, paths []string) ([]Pick, error) {
	only, err := r.Subject.paths(paths)
	if err != nil {
		return nil, err
	}
	out := append([]Pick(nil), picks...)
	for i, at := range only {
		found := false
		for n, pick := range out {
			if pick.Change.Conflict != "" && chosen(pick.Change.Path, []string{at}) {
				out[n].Settled, found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("%s is not in conflict", Quote(paths[i]))
		}
	}
	return out, nil
}

// setSides notes the three versions of a change in conflict.
func (c *Change) setSides(was Entry, known bool, mine ident) {
	s := &Sides{BaseKnown: known}
	if known {
		s.blob = was.Blob
		s.Base = Side{Node{Type: typeOf(was.Mode), Mode: bitsOf(was.Mode), Size: was.Size, Link: was.Link}, modified(was.Mtime)}
	}
	if c.Old.Type != Nothing {
		s.Project = Side{c.Old, modified(c.id.Mtime)}
	}
	if c.New.Type != Nothing {
		s.Sandbox = Side{c.New, modified(mine.Mtime)}
	}
	c.Sides = s
}

func modified(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}

// Explain says in lines for a person what both sides made of a change in conflict, and where each version can be seen.
func (r *Review) Explain(ctx context.Context, c *Change) ([]string, error) {
	s := c.Sides
	if s == nil {
		return nil, nil
	}
	name := Quote(c.Path)
	see := func(side Side, where string) string {
		if side.Type == File {
			return ": " + where
		}
		return ""
	}
	lines := []string{
		"project: " + s.Project.text() + see(s.Project, Quote(path.Join(r.Subject.Project, c.Path))),
		"sandbox: " + s.Sandbox.text() + see(s.Sandbox, "hutch fs read "+r.Subject.Name+" "+name),
	}
	if s.BaseKnown {
		lines = append(lines, "when the sandbox was made: "+s.Base.text())
	}
	if s.Project.Type == File && s.Sandbox.Type == File {
		t, err := r.content(ctx, c, r.project)
		if err != nil {
			return nil, err
		}
		text := cmpOr(t.note, "nothing but the mode")
		if t.text != nil && len(t.text.spans) > 0 {
			added, removed := t.text.counts()
			text = fmt.Sprintf("%s, +%d -%d from the project's to the sandbox's", plural(len(t.text.hunks()), "hunk"), added, removed)
		}
		lines = append(lines, fmt.Sprintf("between the two: %s: hutch diff %s %s", text, r.Subject.Name, name))
	}
	if s.Base.Type == File && s.Project.Type == File && s.Sandbox.Type == File {
		why := s.Unmerged
		if why == "" {
			j, _, err := r.join(ctx, c)
			if err != nil {
				return nil, err
			}
			why = j.why
		}
		merge := "they cannot be merged: " + why
		if why == "" {
			merge = fmt.Sprintf("they changed different places: hutch diff --merge %s %s shows them as one, hutch apply --merge %s applies that", r.Subject.Name, name, r.Subject.Name)
		}
		lines = append(lines, merge)
	}
	return lines, nil
}

// text says what a side is.
func (s Side) text() string {
	what := "nothing"
	switch s.Type {
	case Nothing:
		return what
	case File:
		what = fmt.Sprintf("%s, mode %04o", plural64(s.Size, "byte"), s.Mode)
	case Symlink:
		what = "a symbolic link to " + Quote(s.Link)
	default:
		what = fmt.Sprintf("%s, mode %04o", describe(s.Node), s.Mode)
	}
	if !s.Modified.IsZero() {
		what += ", written " + s.Modified.Local().Format("2006-01-02 15:04:05")
	}
	return what
}

func plural64(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
