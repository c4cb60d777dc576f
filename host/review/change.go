package review

import (
	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/sdk/overlay"
)

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
	Refused  []judge.Finding // why it is not applied unless that is allowed
	Marks    []string        // what a reviewer should know of what lands without a flag
	Left     string          // why an apply leaves it out without asking; empty for what it takes

	id      ident // of Old
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

// kindOf turns the overlay's kind into ours.
func kindOf(k overlay.Kind) Kind { return Kind(k) }
