package review

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/hutch-run/hutch/host/git"
	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/safefile"
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
func (c *Change) setSides(was overlay.Entry, known bool, mine Node) {
	s := &Sides{BaseKnown: known}
	if known {
		s.blob = was.Content
		s.Base = Side{nodeOf(was.Stat), modified(was.Mtime)}
	}
	if c.Old.Type != Nothing {
		s.Project = Side{c.Old, modified(c.Old.Mtime)}
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
		text := cmp.Or(t.note, "nothing but the mode")
		if t.text != nil && len(t.text.spans) > 0 {
			added, removed := t.text.counts()
			text = fmt.Sprintf("%s, +%d -%d from the project's to the sandbox's",
				english.Plural(len(t.text.hunks()), "hunk", ""), added, removed)
		}
		lines = append(lines, fmt.Sprintf("between the two: %s: hutch diff %s %s", text, r.Subject.Name, name))
	}
	if s.Base.Type == File && s.Project.Type == File && s.Sandbox.Type == File && s.Unmerged == "" {
		j, _, err := r.join(ctx, c)
		if err != nil {
			return nil, err
		}
		merge := "they cannot be merged: " + j.why
		if j.pieces != nil {
			merge += fmt.Sprintf(": hutch apply --merge --resolve %s:CHOICE,CHOICE %s", name, r.Subject.Name) +
				" chooses project, sandbox or both for each place"
		}
		if j.why == "" {
			merge = fmt.Sprintf("they changed different places: hutch diff --merge %s %s shows them as one, hutch apply "+
				"--merge %s applies that", r.Subject.Name, name, r.Subject.Name)
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
		what = fmt.Sprintf("%s, mode %04o", english.Plural(int(s.Size), "byte", ""), safefile.Bits(s.Mode))
	case Symlink:
		what = "a symbolic link to " + Quote(s.Link)
	default:
		what = fmt.Sprintf("%s, mode %04o", describe(s.Node), safefile.Bits(s.Mode))
	}
	if !s.Modified.IsZero() {
		what += ", written " + s.Modified.Local().Format("2006-01-02 15:04:05")
	}
	return what
}

// Choice is what becomes of a place that both sides changed.
type Choice string

// The choices.
const (
	ChooseProject Choice = "project" // the project's lines
	ChooseSandbox Choice = "sandbox" // the sandbox's lines
	ChooseBoth    Choice = "both"    // the project's lines, followed by the sandbox's
)

// Resolution is a person's answer to the places of one file that both sides changed.
type Resolution struct {
	Path    string   // as in Options.Paths
	Choices []Choice // one for each place, in order
}

// String writes it as [ParseResolution] reads it.
func (r Resolution) String() string {
	var words []string
	for _, c := range r.Choices {
		words = append(words, string(c))
	}
	return r.Path + ":" + strings.Join(words, ",")
}

// ParseResolution reads "FILE:CHOICE,CHOICE".
func ParseResolution(s string) (Resolution, error) {
	i := strings.LastIndexByte(s, ':')
	if i <= 0 {
		return Resolution{},
			fmt.Errorf("%q: want FILE:CHOICE,CHOICE: project, sandbox or both for each place that both sides changed", s)
	}
	r := Resolution{Path: s[:i]}
	for word := range strings.SplitSeq(s[i+1:], ",") {
		c := Choice(word)
		if c != ChooseProject && c != ChooseSandbox && c != ChooseBoth {
			return Resolution{}, fmt.Errorf("%q: unknown choice %q: want project, sandbox or both", s, word)
		}
		r.Choices = append(r.Choices, c)
	}
	return r, nil
}

// resolve composes the text of pieces by the choices.
func (r Resolution) resolve(pieces []git.Piece) ([]byte, error) {
	var out strings.Builder
	n := 0
	for _, p := range pieces {
		out.WriteString(p.Text)
		if !p.Overlap {
			continue
		}
		if n++; n > len(r.Choices) {
			continue
		}
		choice := r.Choices[n-1]
		if choice != ChooseSandbox {
			out.WriteString(p.Ours)
			if choice == ChooseBoth && p.Ours != "" && !strings.HasSuffix(p.Ours, "\n") {
				out.WriteByte('\n')
			}
		}
		if choice != ChooseProject {
			out.WriteString(p.Theirs)
		}
	}
	if n != len(r.Choices) {
		return nil, fmt.Errorf("%s has %s that both sides changed, not %d", Quote(r.Path), english.Plural(n, "place", ""),
			len(r.Choices))
	}
	return []byte(out.String()), nil
}

// joined is what becomes of a file that both sides changed.
type joined struct {
	content []byte
	mode    fs.FileMode
	why     string // why they cannot be joined; empty when they can
	pieces  []git.Piece
}

// merge takes those changes out of conflict in which the two sides changed different places of a text, or a person
// resolved the same places: the sandbox's version becomes one that has both.
func (r *Review) merge(ctx context.Context, resolve []Resolution) error {
	answers := map[string]Resolution{}
	for _, a := range resolve {
		rel, err := r.Subject.paths([]string{a.Path})
		if err != nil {
			return err
		}
		answers[rel[0]] = a
	}
	for _, c := range r.Changes {
		if c.Conflict == "" {
			continue
		}
		j, project, err := r.join(ctx, c)
		if err != nil {
			return err
		}
		c.Pieces = j.pieces
		if a, ok := answers[c.Path]; ok && j.pieces != nil {
			if j.content, err = a.resolve(j.pieces); err != nil {
				return err
			}
			j.why = ""
			delete(answers, c.Path)
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
	for _, a := range answers {
		return fmt.Errorf("%s has no place that both sides changed", Quote(a.Path))
	}
	return nil
}

// join makes one version of the two of a change in conflict. project is the text that the project has.
func (r *Review) join(ctx context.Context, c *Change) (j joined, project []byte, err error) {
	s := c.Sides
	if s == nil || s.Base.Type != File || s.Project.Type != File || s.Sandbox.Type != File || c.Kind != Modified {
		return joined{why: "only texts that both sides changed can be merged"}, nil, nil
	}
	if s.blob == "" {
		return joined{why: "git does not have it as it was when the sandbox was made; what is to be merged must be " +
			"committed, or added with git add, before a sandbox is made"}, nil, nil
	}
	t, err := r.content(ctx, c, r.project)
	switch {
	case err != nil:
		return joined{}, nil, err
	case t.text == nil:
		return joined{why: cmp.Or(t.note, "its content is the same")}, nil, nil
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
	project, sandbox := []byte(strings.Join(t.text.old, "")), []byte(strings.Join(t.text.new, ""))
	j.content, err = git.MergeText(ctx, project, base, sandbox)
	switch {
	case errors.Is(err, git.ErrOverlap):
		j.why = err.Error()
		j.pieces, err = git.MergePieces(ctx, project, base, sandbox)
		return j, project, err
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
