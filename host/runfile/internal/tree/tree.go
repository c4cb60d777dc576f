// Package tree reads the files that belong to a run file: those below its directory, and no others.
//
// Paths come from the run file. They are resolved as strings first, and then opened through an os.Root, so that
// neither ".." nor a symbolic link leads out; a link that stays inside is followed. Only regular files are opened,
// without blocking, and they are read up to a size.
package tree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/units"
)

// Root is the directory of a run file. It is opened when it is first needed. Safe for concurrent use.
type Root struct {
	Dir  string // absolute
	open func() (*os.Root, error)
}

// New returns the root at an absolute directory, without looking at it.
func New(dir string) *Root {
	return &Root{Dir: dir, open: sync.OnceValues(func() (*os.Root, error) { return os.OpenRoot(dir) })}
}

// Error says which path was refused and why, and what would help.
type Error struct {
	Path   string // as given
	Reason string // a whole sentence's worth, lower case, the path included
	Fix    string
	Err    error // the error underneath, if there is one
}

func (e *Error) Error() string {
	if e.Fix != "" {
		return e.Reason + " (" + e.Fix + ")"
	}
	return e.Reason
}

// Unwrap returns the error underneath.
func (e *Error) Unwrap() error { return e.Err }

const confined = "a run file reads only what lies in its own directory or below; put a copy there, or mount the " +
	"place with a workspace block"

// Resolve turns a path as written into one that is clean, slash-separated and relative to the root; "." is the root.
// An absolute path is accepted when it lies inside.
func (r *Root) Resolve(p string) (string, error) {
	q := diag.Quote(p)
	switch {
	case p == "":
		return "", &Error{Path: p, Reason: "the path is empty"}
	case len(p) > 4096:
		return "", &Error{Path: p, Reason: fmt.Sprintf("the path %s is %d bytes long; at most 4096 are allowed", q, len(p))}
	case strings.ContainsRune(p, 0):
		return "", &Error{Path: p, Reason: fmt.Sprintf("the path %s holds a NUL byte", q)}
	}
	rel := p
	if filepath.IsAbs(p) {
		var err error
		if rel, err = filepath.Rel(r.Dir, p); err != nil || !filepath.IsLocal(rel) {
			return "", &Error{Path: p, Reason: q + " lies outside the directory of the run file", Fix: confined}
		}
	}
	rel = path.Clean(filepath.ToSlash(rel))
	if !filepath.IsLocal(rel) {
		return "", &Error{Path: p, Reason: q + " leads out of the directory of the run file", Fix: confined}
	}
	return rel, nil
}

// Open opens a regular file of at most max bytes.
func (r *Root) Open(p string, max int64) (*os.File, fs.FileInfo, error) {
	rel, err := r.Resolve(p)
	if err != nil {
		return nil, nil, err
	}
	root, err := r.open()
	if err != nil {
		return nil, nil, r.explain(p, rel, err)
	}
	// Without O_NONBLOCK opening a FIFO would wait for its writer.
	f, err := root.OpenFile(filepath.FromSlash(rel), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, r.explain(p, rel, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &Error{Path: p, Reason: fmt.Sprintf("%s is %s, not a regular file", diag.Quote(p), Kind(info.Mode()))}
	} else if err == nil && info.Size() > max {
		err = tooLarge(p, info.Size(), max)
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, nil, r.explain(p, rel, err)
	}
	return f, info, nil
}

// Find checks that a path is a regular file of at most max bytes that can be read, and returns it relative to the root.
func (r *Root) Find(p string, max int64) (rel string, info fs.FileInfo, err error) {
	f, info, err := r.Open(p, max)
	if err != nil {
		return "", nil, err
	}
	_ = f.Close() // nothing was written
	rel, err = r.Resolve(p)
	return rel, info, err
}

func tooLarge(p string, size, max int64) error {
	return &Error{Path: p, Reason: fmt.Sprintf("%s is %d bytes large; at most %s are read", diag.Quote(p), size,
		units.FormatSize(max)),
		Fix: "mount large data with a workspace block"}
}

// ReadFile reads a regular file of at most max bytes.
func (r *Root) ReadFile(p string, max int64) ([]byte, error) {
	f, _, err := r.Open(p, max)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, max+1))
	switch {
	case err != nil:
		return nil, r.explain(p, p, err)
	case int64(len(data)) > max:
		return nil, tooLarge(p, int64(len(data)), max)
	}
	return data, nil
}

// Stat follows links that stay inside.
func (r *Root) Stat(p string) (fs.FileInfo, error) {
	rel, err := r.Resolve(p)
	if err != nil {
		return nil, err
	}
	root, err := r.open()
	if err != nil {
		return nil, r.explain(p, rel, err)
	}
	info, err := root.Stat(filepath.FromSlash(rel))
	if err != nil {
		return nil, r.explain(p, rel, err)
	}
	return info, nil
}

// explain turns an error of the system into one for a reader.
func (r *Root) explain(p, rel string, err error) error {
	q := diag.Quote(p)
	var own *Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, fs.ErrNotExist):
		return &Error{Path: p, Reason: "there is no " + q, Fix: r.neighbour(rel), Err: err}
	case errors.Is(err, fs.ErrPermission):
		return &Error{Path: p, Reason: q + " may not be read by this user", Err: err}
	case errors.Is(err, syscall.ENOTDIR):
		return &Error{Path: p, Reason: q + " goes through a file as if it were a directory", Err: err}
	case errors.Is(err, syscall.ELOOP):
		return &Error{Path: p, Reason: q + " goes round in a loop of symbolic links", Err: err}
	case errors.Is(err, syscall.ENXIO):
		return &Error{Path: p, Reason: q + " is a socket, not a regular file", Err: err}
	case errors.Is(err, syscall.ENAMETOOLONG):
		return &Error{Path: p, Reason: q + " has a name that is too long for the file system", Err: err}
	}
	var pe *fs.PathError
	if errors.As(err, &pe) && strings.Contains(pe.Err.Error(), "escapes") { // os.Root has no error value for this
		return &Error{Path: p, Reason: q + " is a symbolic link that leads out of the directory of the run file",
			Fix: confined, Err: err}
	}
	if pe != nil {
		err = pe.Err
	}
	return &Error{Path: p, Reason: fmt.Sprintf("%s cannot be read: %v", q, err), Err: err}
}

// neighbour looks for a name beside the missing one that may have been meant, or for the first directory on the way
// that is missing.
func (r *Root) neighbour(rel string) string {
	root, err := r.open()
	if err != nil {
		return ""
	}
	dir, name := path.Split(rel)
	dir = path.Clean(dir)
	for dir != "." {
		if info, err := root.Stat(filepath.FromSlash(dir)); err == nil && info.IsDir() {
			break
		}
		dir, name = path.Dir(dir), path.Base(dir)
	}
	d, err := root.Open(filepath.FromSlash(dir))
	if err != nil {
		return ""
	}
	defer d.Close()
	names, _ := d.Readdirnames(1000) // what could be read is enough for a hint
	s := diag.Suggest(name, names)
	if s == "" {
		return ""
	}
	return "did you mean " + diag.Quote(path.Join(dir, s)) + "?"
}

// Kind names what a mode says, with its article.
func Kind(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "a regular file"
	case m.IsDir():
		return "a directory"
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "a special file"
}

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
			return &Error{Path: dir, Reason: fmt.Sprintf("%s holds more than %d files and directories", diag.Quote(dir),
				MaxEntries),
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
			return &Error{Path: p, Reason: fmt.Sprintf("%s is %s, not a regular file", diag.Quote(path.Join(rel, p)),
				Kind(info.Mode())),
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
