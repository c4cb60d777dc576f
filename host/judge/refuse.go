package judge

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Copied are the rules for what a user copies to a place of their choice, where files keep their permissions.
var Copied = []Rule{Git, Tools}

// RefusedError says why nothing of a landing is admitted.
type RefusedError struct {
	Lines []string // a path and what is wrong with it each; at most 20, and one with how many more there are
	Flags []string // allow all of it; empty where something cannot be allowed
}

// Error implements error.
func (e *RefusedError) Error() string {
	return "it contains changes that must be allowed:\n" + strings.Join(e.Lines, "\n")
}

// Landed is what is wrong with one path of a landing.
type Landed struct {
	Path string
	Finding
}

// Refuse judges a landing of all changes or none by some of the rules. The error is a *[RefusedError], which names the
// paths without prefix.
func Refuse(changes []Change, to Place, prefix string, allow map[Rule]bool, rules ...Rule) error {
	var found []Landed
	for i, v := range Judge(changes, to) {
		for _, f := range v.Refused {
			if slices.Contains(rules, f.Rule) {
				found = append(found, Landed{strings.TrimPrefix(strings.TrimPrefix(changes[i].Path, prefix), "/"), f})
			}
		}
	}
	return RefuseFound(found, allow)
}

// RefuseFound returns a *[RefusedError] for what is found and not allowed, nil for none.
func RefuseFound(found []Landed, allow map[Rule]bool) error {
	const most = 20
	e, against, n := &RefusedError{}, map[Rule]bool{}, 0
	for _, f := range found {
		if allow[f.Rule] {
			continue
		}
		against[f.Rule] = true
		if n++; n <= most {
			e.Lines = append(e.Lines, fmt.Sprintf("  %.200q: %s", f.Path, f.Detail))
		}
	}
	if n == 0 {
		return nil
	}
	if n > most {
		e.Lines = append(e.Lines, fmt.Sprintf("  and %d more", n-most))
	}
	for _, r := range Allowable {
		if against[r] {
			e.Flags = append(e.Flags, r.Flag())
		}
	}
	return e
}

// RefuseCopy judges by [Copied] what is copied to the path at of this machine: the tree from, or one file when from is
// nil. It knows the names of all directories above at, so that a file that lands in .git/hooks is known for a hook.
func RefuseCopy(from *os.Root, at string, allow map[Rule]bool) error {
	at, err := filepath.Abs(at)
	if err != nil {
		return err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(at))
	if err != nil {
		return err
	}
	if from != nil { // at is a directory, and may be reached through a link
		if dir, err = filepath.EvalSymlinks(at); err != nil {
			return err
		}
	}
	top, err := os.OpenRoot("/")
	if err != nil {
		return err
	}
	defer top.Close()
	to, prefix := Dir{top}, strings.TrimPrefix(dir, "/")
	var changes []Change
	add := func(name string, mode fs.FileMode) {
		p := path.Join(prefix, name)
		changes = append(changes, Change{Path: p, Old: to.Look(p), New: Node{There: true, Mode: mode}})
	}
	if from == nil {
		add(filepath.Base(at), 0o644)
		return Refuse(changes, to, prefix, allow, Copied...)
	}
	err = fs.WalkDir(from.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil && p != "." {
			add(p, d.Type())
		}
		return err
	})
	return errors.Join(err, Refuse(changes, to, prefix, allow, Copied...))
}
