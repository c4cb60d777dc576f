package review

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// DiffSchema is the schema of [Document].
const DiffSchema = "hutch.diff/v1"

// Item is a change as a list has it. Text that is not UTF-8 has U+FFFD in it.
type Item struct {
	Path     string   `json:"path"`
	From     string   `json:"from,omitempty" jsonschema:"of a renamed file, where it was"`
	Kind     Kind     `json:"kind" jsonschema:"added, modified, deleted, mode, symlink, type or renamed"`
	Merged   bool     `json:"merged,omitempty" jsonschema:"it has what the project's side changed, too"`
	Conflict string   `json:"conflict,omitempty" jsonschema:"why it cannot be applied"`
	Unmerged string   `json:"unmerged,omitempty" jsonschema:"of a conflict, when merging: why the sides cannot be joined"`
	Refused  []string `json:"refused,omitempty" jsonschema:"why it is not applied unless the user allows it"`
	Marks    []string `json:"marks,omitempty" jsonschema:"what a reviewer should know of it"`
}

// Item is the change, with what stands against it where some is allowed.
func (c *Change) Item(allow map[judge.Rule]bool) Item {
	i := Item{Path: strings.ToValidUTF8(c.Path, "\uFFFD"), From: strings.ToValidUTF8(c.From, "\uFFFD"), Kind: c.Kind,
		Merged: c.Merged, Conflict: c.Conflict, Marks: c.Marks}
	if c.Sides != nil {
		i.Unmerged = c.Sides.Unmerged
	}
	for _, r := range c.Against(allow) {
		i.Refused = append(i.Refused, r.Detail)
	}
	return i
}

// Document is a review as `hutch diff -o json` prints it.
type Document struct {
	Schema  string         `json:"schema"` // hutch.diff/v1
	Sandbox string         `json:"sandbox"`
	Project string         `json:"project"`
	Gaps    string         `json:"gaps,omitempty"` // why there may be more changes than these
	Changes []DocumentItem `json:"changes"`
	Added   int            `json:"added"`   // lines of all files
	Removed int            `json:"removed"` // lines of all files
}

// DocumentItem is one change. Text that is not UTF-8 has U+FFFD in it.
type DocumentItem struct {
	Path     string         `json:"path"`
	From     string         `json:"from,omitempty"` // of a renamed file
	Kind     Kind           `json:"kind"`
	Old      *DocumentNode  `json:"old,omitempty"` // absent for nothing
	New      *DocumentNode  `json:"new,omitempty"`
	Binary   bool           `json:"binary,omitempty"`
	Note     string         `json:"note,omitempty"` // why there are no hunks
	Added    int            `json:"added"`          // lines
	Removed  int            `json:"removed"`        // lines
	Hunks    []*Hunk        `json:"hunks,omitempty"`
	Merged   bool           `json:"merged,omitempty"`   // new is no version of the sandbox, but has what both sides changed
	Conflict string         `json:"conflict,omitempty"` // why it is applied only where somebody decides: what the project's side did
	Sides    *DocumentSides `json:"sides,omitempty"`    // of a conflict
	Refused  []DocumentRule `json:"refused,omitempty"`  // why it is not applied unless that is allowed
	Marks    []string       `json:"marks,omitempty"`    // what a reviewer should know of what is applied without a flag
}

// DocumentSides are the versions of a path in conflict; one that is absent is nothing.
type DocumentSides struct {
	BaseKnown bool          `json:"base_known"`         // whether it is known what stood there when the sandbox was made
	Unmerged  string        `json:"unmerged,omitempty"` // with --merge: why the sides were not merged
	Base      *DocumentSide `json:"base,omitempty"`
	Project   *DocumentSide `json:"project,omitempty"`
	Sandbox   *DocumentSide `json:"sandbox,omitempty"`
}

// DocumentSide is one version of a path.
type DocumentSide struct {
	DocumentNode
	Modified *time.Time `json:"modified,omitempty"` // when it was written; absent where that is not known
}

// Document renders the sides; nil stays nil.
func (s *Sides) Document() *DocumentSides {
	if s == nil {
		return nil
	}
	side := func(s Side) *DocumentSide {
		n := documentNode(s.Node)
		if n == nil {
			return nil
		}
		d := &DocumentSide{DocumentNode: *n}
		if at := s.Modified.UTC(); !at.IsZero() {
			d.Modified = &at
		}
		return d
	}
	return &DocumentSides{BaseKnown: s.BaseKnown, Unmerged: s.Unmerged, Base: side(s.Base), Project: side(s.Project),
		Sandbox: side(s.Sandbox)}
}

// DocumentNode is one side of a change.
type DocumentNode struct {
	Type Type   `json:"type"`
	Mode string `json:"mode,omitempty"` // in octal
	Size int64  `json:"size,omitempty"` // bytes
	Link string `json:"link,omitempty"`
}

// DocumentRule is a refusal with the flag that allows it, where there is one.
type DocumentRule struct {
	judge.Finding
	Flag string `json:"flag,omitempty"`
}

// Document renders the review.
func (r *Review) Document(ctx context.Context) (*Document, error) {
	stats, err := r.stats(ctx, r.Changes)
	if err != nil {
		return nil, err
	}
	d := &Document{Schema: DiffSchema, Sandbox: r.Subject.Name, Project: r.Subject.Project, Changes: []DocumentItem{}}
	if r.Gaps != nil {
		d.Gaps = r.Gaps.Error()
	}
	for n, c := range r.Changes {
		t := stats[n]
		old := c.Old
		if c.from != nil {
			old = c.from.Old
		}
		i := DocumentItem{
			Path: c.Path, From: c.From, Kind: c.Kind, Old: documentNode(old), New: documentNode(c.New), Binary: t.binary,
			Hunks: t.hunks,
			Added: t.added, Removed: t.removed, Merged: c.Merged, Conflict: c.Conflict, Sides: c.Sides.Document(),
			Marks: c.Marks,
		}
		if !t.binary {
			i.Note = t.note
		}
		for _, f := range c.Refused {
			i.Refused = append(i.Refused, DocumentRule{f, f.Rule.Flag()})
		}
		d.Changes = append(d.Changes, i)
		d.Added += t.added
		d.Removed += t.removed
	}
	return d, nil
}

func documentNode(n Node) *DocumentNode {
	if n.Type == Nothing {
		return nil
	}
	d := &DocumentNode{Type: n.Type, Size: n.Size, Link: n.Link}
	if n.Type != Symlink {
		d.Mode = fmt.Sprintf("%04o", safefile.Bits(n.Mode))
	}
	return d
}
