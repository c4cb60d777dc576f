package tree

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"sort"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/hutch-run/hutch/host/diag"
)

// MaxEntries is how many files and directories one walk looks at.
const MaxEntries = 50_000

// Match is one file that a walk found.
type Match struct {
	Path string // relative to the directory that was walked, with slashes
	Info fs.FileInfo
}

// Found is what a walk found.
type Found struct {
	Files []Match // regular files, and links to regular files inside the root, sorted by path
	// Skipped are links to directories, which a walk does not enter, and links that lead nowhere or out of the root.
	Skipped []string
}

// CheckPattern reports what is wrong with a glob pattern, in the words of a diagnostic.
func CheckPattern(p string) error {
	switch {
	case p == "":
		return fmt.Errorf("the pattern is empty; ** matches everything")
	case len(p) > 1024:
		return fmt.Errorf("the pattern is %d bytes long; at most 1024 are allowed", len(p))
	case strings.ContainsRune(p, 0):
		return fmt.Errorf("the pattern %s holds a NUL byte", diag.Quote(p))
	case strings.HasPrefix(p, "/"):
		return fmt.Errorf("the pattern %s is absolute; patterns are relative to the directory they search", diag.Quote(p))
	case p == ".." || strings.HasPrefix(p, "../") || strings.Contains(p, "/../") || strings.HasSuffix(p, "/.."):
		return fmt.Errorf("the pattern %s leads out of the directory it searches", diag.Quote(p))
	case strings.Count(p, "**") > 8 || strings.Count(p, "{") > 8:
		return fmt.Errorf("the pattern %s has more than 8 ** or { }", diag.Quote(p))
	case !doublestar.ValidatePattern(p):
		return fmt.Errorf("the pattern %s is malformed; a bracket or brace is not closed", diag.Quote(p))
	}
	return nil
}

// Glob finds the files below dir that match one of include and none of exclude. Patterns are doublestar's: **, *, ?,
// [a-z], {a,b}; a pattern of exclude that matches a directory leaves out all of it. Directories named .git are left out
// unless a pattern of include names them.
func (r *Root) Glob(dir string, include, exclude []string) (*Found, error) {
	rel, err := r.Resolve(dir)
	if err != nil {
		return nil, err
	}
	info, err := r.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &Error{Path: dir, Reason: fmt.Sprintf("%s is %s, not a directory", diag.Quote(dir), Kind(info.Mode()))}
	}
	root, err := r.open()
	if err != nil {
		return nil, r.explain(dir, rel, err)
	}
	sub, err := root.OpenRoot(filepath.FromSlash(rel))
	if err != nil {
		return nil, r.explain(dir, rel, err)
	}
	defer sub.Close()
	git := strings.Contains(strings.Join(include, "\n"), ".git")
	found, seen := &Found{}, 0
	err = fs.WalkDir(sub.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if seen++; seen > MaxEntries {
			return &Error{Path: dir, Reason: fmt.Sprintf("%s holds more than %d files and directories", diag.Quote(dir), MaxEntries),
				Fix: "name a smaller directory, or mount it with a workspace block"}
		}
		if err != nil {
			return r.explain(path.Join(rel, p), path.Join(rel, p), err)
		}
		if p == "." {
			return nil
		}
		if d.IsDir() {
			if d.Name() == ".git" && !git || matches(exclude, p, true) {
				return fs.SkipDir
			}
			return nil
		}
		if !matches(include, p, false) || matches(exclude, p, true) {
			return nil
		}
		info, err := d.Info()
		if d.Type()&fs.ModeSymlink != 0 {
			// Through the outer root: a link may lead to anywhere below the run file's directory.
			if info, err = root.Stat(filepath.FromSlash(path.Join(rel, p))); err != nil || info.IsDir() {
				found.Skipped = append(found.Skipped, p)
				return nil
			}
		}
		if err != nil {
			return r.explain(path.Join(rel, p), path.Join(rel, p), err)
		}
		if !info.Mode().IsRegular() {
			return &Error{Path: p, Reason: fmt.Sprintf("%s is %s, not a regular file", diag.Quote(path.Join(rel, p)), Kind(info.Mode())),
				Fix: fmt.Sprintf("leave it out: exclude = [%s]", diag.Quote(p))}
		}
		found.Files = append(found.Files, Match{Path: p, Info: info})
		return nil
	})
	if err != nil {
		return nil, err
	}
	sort.Slice(found.Files, func(i, j int) bool { return found.Files[i].Path < found.Files[j].Path })
	return found, nil
}

// matches reports whether a pattern matches p or, with parents, a directory that p lies in.
func matches(patterns []string, p string, parents bool) bool {
	for _, pattern := range patterns {
		pattern = strings.TrimSuffix(strings.TrimPrefix(pattern, "./"), "/")
		for q := p; q != "."; q = path.Dir(q) {
			if doublestar.MatchUnvalidated(pattern, q) {
				return true
			}
			if !parents {
				break
			}
		}
	}
	return false
}
