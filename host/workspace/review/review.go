// Package review shows what a sandbox changed in a project, and brings it back: all of it, chosen files, or chosen
// hunks.
//
// It knows three sides: the base, what the project looked like when the sandbox was made; the project as it is; and the
// sandbox's workspace, every byte of which is hostile. A path that only the sandbox changed is applied, one that both
// changed differently is a conflict and never an overwrite.
//
// What is applied is what was read once, into our own stage; what was shown is what is applied. An apply is one
// transaction: a journal on disk says what will be done before the first path is touched, so that the next process
// after a crash puts the project back as it was. The versions that were replaced stay for an undo.
package review

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/git"
	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// Subject is what is reviewed: one sandbox's workspace against the project that it was made from.
type Subject struct {
	Name    string // of the sandbox, for messages and for undo
	ID      string // of the sandbox
	Project string // absolute
	// Omits reports whether a path is left out; nil leaves out none.
	Omits func(path string) bool
	// Base is what the project looked like when the sandbox was made. Without it every path that stands in the project
	// counts as changed there, so differences can be shown, and nothing but new paths applied.
	Base *Base
	// ReadBase reads the base, beside the rest of the work, when Base is nil; it may be nil, and so may what it returns.
	ReadBase func() (*Base, error)
	// Layers are where the workspace lies on this host; nil when it cannot be reached that way, and Remote is used.
	Layers *sdk.Layers
	Remote Remote
	// Ready are the paths as the sandbox sees them. Input and output are no part of the review.
	Ready sdk.Ready
}

// Options say what of a sandbox is reviewed.
type Options struct {
	// Paths limits the review to these files and directories: relative to the project, or absolute, in the project or in
	// the sandbox. None means all.
	Paths []string
	// Keep says that the contents of all changed files are read once, now, into a stage below this directory: what is
	// shown then is what is applied. Empty reads each when it is shown.
	Keep string
	// Merge joins the two versions of a text that both sides changed in different places, where git has the one that they
	// come from. Without it, and else, that is a conflict.
	Merge bool
	// Resolve, with Merge, has for a text what becomes of each place of it that both sides changed, in order; that text is
	// merged then.
	Resolve []Resolution
	// Unjudged leaves out what would be refused, for a caller that only lists. Such a review cannot be applied.
	Unjudged bool
}

// Review is what a sandbox changed in its project, as it was when it was opened. Its methods are not safe for
// concurrent use.
type Review struct {
	Subject Subject
	Changes []*Change // in path order, a renamed file at its new path
	// Gaps says why there may be more changes than these; nil when these are all.
	Gaps error

	unjudged bool
	above    []*Change // directories that were not chosen, and in which something was
	source   source
	project  *dir
	stage    *stage
	repo     *git.Repo // the project's, once it was needed
}

// Open compares the two sides, and with the base. It reads contents where it needs them to tell whether a file changed.
// The caller closes the Review.
func Open(ctx context.Context, s Subject, o Options) (_ *Review, err error) {
	r := &Review{Subject: s, unjudged: o.Unjudged}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	only, err := s.paths(o.Paths)
	if err != nil {
		return nil, err
	}
	if r.project, err = openDir(s.Project); err != nil {
		return nil, fmt.Errorf("open the project: %w", err)
	}
	switch {
	case s.Layers == nil && s.Remote == nil:
		return nil, fmt.Errorf("the backend of %s cannot tell what changed in the workspace", s.Name)
	case s.Layers == nil:
		r.source, err = openRemote(s.Remote, s.Ready.Workspace)
	case s.Layers.Lower == "" || s.Layers.Upper == "":
		return nil, fmt.Errorf("the workspace of %s has no writes of its own: there is nothing to review", s.Name)
	default:
		r.source, err = openLayers(s.Layers, r.project, overlay.Options{})
	}
	if err != nil {
		return nil, err
	}
	base := make(chan error, 1)
	go func() {
		var err error
		if s.Base == nil && s.ReadBase != nil {
			r.Subject.Base, err = s.ReadBase()
		}
		base <- err
	}()
	list, err := r.source.changes(ctx)
	if berr := <-base; berr != nil {
		return nil, fmt.Errorf("what the project looked like when %s was made: %w", s.Name, berr)
	}
	if errors.Is(err, overlay.ErrTooMany) || errors.Is(err, overlay.ErrUnreadable) {
		r.Gaps, err = err, nil
	}
	if err != nil {
		return nil, fmt.Errorf("compare %s with the project: %w", s.Name, err)
	}
	if s.Omits != nil {
		list = slices.DeleteFunc(list, func(d overlay.Difference) bool { return s.Omits(d.Path) })
	}
	if err := r.compare(ctx, list, only); err != nil {
		return nil, err
	}
	if o.Keep != "" {
		if err := r.read(ctx, o.Keep); err != nil {
			return nil, err
		}
	}
	if o.Merge {
		if err := r.merge(ctx, o.Resolve); err != nil {
			return nil, err
		}
	}
	if err := r.pairRenames(ctx); err != nil {
		return nil, err
	}
	if !o.Unjudged {
		r.judge()
	}
	for _, c := range r.Changes {
		if c.implied {
			r.above = append(r.above, c)
		}
	}
	r.Changes = slices.DeleteFunc(r.Changes, func(c *Change) bool { return c.implied })
	return r, nil
}

// Close ends the review and removes what it staged.
func (r *Review) Close() {
	if r.source != nil {
		r.source.close()
	}
	if r.project != nil {
		r.project.close()
	}
	if r.stage != nil {
		r.stage.close()
	}
}

// compare makes a Change of each difference: with the project as it is, and, where that was changed since the sandbox
// was made, with the base.
func (r *Review) compare(ctx context.Context, list []overlay.Difference, only []string) error {
	gone := map[string]bool{} // directories that the project lost and the sandbox only kept
	base := func(string) (overlay.Entry, bool) { return overlay.Entry{}, false }
	if r.Subject.Base != nil {
		base = r.Subject.Base.Lookup
	}
	all := make([]Change, len(list))
	for i, oc := range list {
		if i%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// A directory in which something is chosen may be new, and is then needed with it.
		implied := !chosen(oc.Path, only)
		if implied && (!oc.NewMode.IsDir() || !slices.ContainsFunc(only, func(o string) bool { return below(o, oc.Path) })) {
			continue
		}
		c := &all[i]
		c.Path, c.Kind, c.implied = oc.Path, Kind(oc.Kind), implied
		var err error
		if c.Old, err = r.seen(oc); err != nil {
			return fmt.Errorf("look at %q in the project: %w", oc.Path, err)
		}
		var mine Node
		if oc.Kind != overlay.Deleted {
			mine = Node{Type: typeOf(oc.NewMode), Stat: safefile.Stat{Mode: oc.NewMode, Size: oc.Size}}
			if mine.Type == Symlink {
				if mine, err = r.source.look(oc.Path); err != nil {
					return fmt.Errorf("look at %q in the sandbox: %w", oc.Path, err)
				}
			}
			c.New = mine.version()
		}
		if c.Old.Type == c.New.Type && c.Old.Type == Nothing {
			continue // gone on both sides by now
		}
		was, known := base(oc.Path)
		if !touched(was, known, c.Old) {
			r.Changes = append(r.Changes, c)
			continue
		}
		if c.New.Type != Nothing && c.New.Type != Symlink {
			if mine, err = r.source.look(oc.Path); err != nil {
				return fmt.Errorf("look at %q in the sandbox: %w", oc.Path, err)
			}
		}
		switch {
		case c.New.Type != Nothing && copied(was, known, mine):
			// Only the project changed it. A directory that it lost is needed again when something in it is applied.
			if c.New.Type == Directory && c.Old.Type == Nothing {
				gone[c.Path] = true
				r.Changes = append(r.Changes, c)
			}
			continue
		case c.Old.Type == Nothing:
			c.Conflict = "it was deleted in the project since the sandbox was made, and changed in the sandbox"
		case r.Subject.Base == nil:
			c.Conflict = "what it was when the sandbox was made is not known"
		case !known && !r.Subject.Base.Complete:
			c.Conflict = "the project has it and it was not seen when the sandbox was made"
		case !known && c.New.Type == Nothing:
			c.Conflict = "it was made in the project since the sandbox was made, and its directory is deleted in the sandbox"
		case !known:
			c.Conflict = "it was made in the project since the sandbox was made, and in the sandbox as well"
		case c.New.Type == Nothing:
			c.Conflict = "it was changed in the project since the sandbox was made, and deleted in the sandbox"
		default:
			c.Conflict = "it was changed in the project since the sandbox was made, and in the sandbox as well"
		}
		c.setSides(was, known, mine)
		r.Changes = append(r.Changes, c)
	}
	if len(gone) > 0 {
		r.dropEmpty(gone)
	}
	return nil
}

// seen is what stands in the project at the path of a difference: what was seen when that was found, where it was.
func (r *Review) seen(d overlay.Difference) (Node, error) {
	if !d.Seen || d.Lower.Mode.Type() == fs.ModeSymlink { // where it leads was not read
		return r.project.look(d.Path)
	}
	return nodeOf(d.Lower), nil
}

// dropEmpty leaves out those directories in which there is no change.
func (r *Review) dropEmpty(dirs map[string]bool) {
	needed := map[string]bool{}
	for _, c := range r.Changes {
		if dirs[c.Path] {
			continue
		}
		for p := parentOf(c.Path); p != "" && !needed[p]; p = parentOf(p) {
			needed[p] = true
		}
	}
	r.Changes = slices.DeleteFunc(r.Changes, func(c *Change) bool { return dirs[c.Path] && !needed[c.Path] })
}

// ErrOutside says that a path is not in the project.
var ErrOutside = errors.New("lies outside the project")

// paths makes the paths that a user gave relative to the project; "" in the list is the project itself.
func (s *Subject) paths(given []string) ([]string, error) {
	var list []string
	for _, p := range given {
		rel := path.Clean(filepath.ToSlash(p))
		if path.IsAbs(rel) {
			in := ""
			for _, top := range []string{s.Project, s.Ready.Workspace} {
				if top != "" && (rel == top || below(rel, top)) {
					in = top
					break
				}
			}
			if in == "" {
				return nil, fmt.Errorf("%q %w %s", p, ErrOutside, s.Project)
			}
			rel = strings.TrimPrefix(strings.TrimPrefix(rel, in), "/")
		}
		if rel == ".." || strings.HasPrefix(rel, "../") {
			return nil, fmt.Errorf("%q %w %s", p, ErrOutside, s.Project)
		}
		if rel == "." {
			rel = ""
		}
		list = append(list, rel)
	}
	return list, nil
}

// chosen reports whether a path is one of only or lies below one; of none, all are chosen.
func chosen(path string, only []string) bool {
	return len(only) == 0 || slices.ContainsFunc(only, func(o string) bool { return path == o || below(path, o) })
}

// Kind names a kind of [Change].
type Kind string

// The kinds.
const (
	Added    Kind = "added"
	Modified Kind = "modified" // content, and perhaps mode
	Deleted  Kind = "deleted"
	Mode     Kind = "mode"    // permissions only
	Relinked Kind = "symlink" // a symbolic link that points elsewhere
	Retyped  Kind = "type"    // something of another type stands there
	Renamed  Kind = "renamed" // a file is gone from one path, and one with the same content is new at another
)

// Letter is how git's status calls k.
func (k Kind) Letter() string {
	switch k {
	case Added:
		return "A"
	case Deleted:
		return "D"
	case Renamed:
		return "R"
	case Retyped:
		return "T"
	}
	return "M"
}

// Change is one difference between the project and a sandbox. A directory that is new or gone is one Change, and so is
// everything in it.
type Change struct {
	Path     string          // below the project, with slashes; any bytes but NUL
	From     string          // of a renamed file, where it was
	Kind     Kind            // what happened
	Old, New Node            // in the project, and in the sandbox
	Merged   bool            // New is no version of the sandbox, but one that has what both sides changed
	Conflict string          // why it cannot be applied: what the project's side did to the path; empty for no conflict
	Sides    *Sides          // of a conflict: the versions that there are; else nil
	Pieces   []git.Piece     // with Options.Merge, of a text with places that both sides changed; Ours is the project's
	Refused  []judge.Finding // why it is not applied unless that is allowed
	Marks    []string        // what a reviewer should know of what lands without a flag
	Left     string          // why an apply leaves it out without asking; empty for what it takes

	from    *Change
	blob    *blob // New's content, once it is staged
	implied bool  // not chosen, see Review.above
}

// hasContent reports whether the change brings the content of a file.
func (c *Change) hasContent() bool {
	return c.New.Type == File && c.Kind != Mode
}

// isDir reports whether the change is about nothing but a directory.
func (c *Change) isDir() bool {
	return (c.Old.Type == Directory || c.Old.Type == Nothing) && (c.New.Type == Directory || c.New.Type == Nothing)
}

// parts are the changes that a renamed file stands for, or the change itself.
func (c *Change) parts() []*Change {
	if c.from != nil {
		return []*Change{c.from, c}
	}
	return []*Change{c}
}

// maxRenameBytes bounds what is read, on each side, to find renamed files.
const maxRenameBytes = 256 << 20

// pairRenames makes one change of a file that is gone and a file that is new, where the contents are the same and
// neither is in conflict. Of several with the same content those of the same name go together first.
func (r *Review) pairRenames(ctx context.Context) error {
	bySize := map[int64][2][]*Change{} // gone, new
	for _, c := range r.Changes {
		switch {
		case c.Conflict != "":
		case c.Kind == Deleted && c.Old.Type == File && c.Old.Size > 0:
			p := bySize[c.Old.Size]
			p[0] = append(p[0], c)
			bySize[c.Old.Size] = p
		case c.Kind == Added && c.New.Type == File && c.New.Size > 0:
			p := bySize[c.New.Size]
			p[1] = append(p[1], c)
			bySize[c.New.Size] = p
		}
	}
	left := int64(maxRenameBytes)
	paired := map[*Change]bool{}
	for _, size := range slices.Sorted(maps.Keys(bySize)) {
		p := bySize[size]
		if len(p[0]) == 0 || len(p[1]) == 0 {
			continue
		}
		if left -= size * int64(len(p[0])+len(p[1])); left < 0 {
			break
		}
		gone := map[string][]*Change{}
		for _, c := range p[0] {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if sum, err := hashFile(r.project, c.Path); err == nil {
				gone[sum] = append(gone[sum], c)
			}
		}
		for _, sameName := range []bool{true, false} {
			for _, c := range p[1] {
				if c.from != nil {
					continue
				}
				sum := c.New.SHA256
				if sum == "" {
					copied, err := r.source.copy(ctx, io.Discard, c.Path, size)
					if err != nil {
						continue // the diff and apply say why
					}
					sum = copied.SHA256
				}
				i := slices.IndexFunc(gone[sum], func(g *Change) bool {
					return !sameName ||
						path.Base(g.Path) == path.Base(c.Path)
				})
				if i < 0 {
					continue
				}
				c.from, c.From, c.Kind = gone[sum][i], gone[sum][i].Path, Renamed
				c.New.SHA256 = sum
				paired[c.from] = true
				gone[sum] = slices.Delete(gone[sum], i, i+1)
			}
		}
	}
	r.Changes = slices.DeleteFunc(r.Changes, func(c *Change) bool { return paired[c] })
	slices.SortFunc(r.Changes, func(a, b *Change) int { return strings.Compare(a.Path, b.Path) })
	return nil
}
