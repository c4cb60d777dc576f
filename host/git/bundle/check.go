// Package bundle makes git bundles for sandboxes and takes apart those that come back.
//
// What goes in is all of a branch, what is new on top of a commit that the sandbox has, or the end of its history:
// [Part].
//
// A bundle from a sandbox is hostile. [Check] never lets git see more of it than the pack, and that only after this
// package has read the pack itself: header and refs, the number of objects, the size of each and of all together, what
// every delta grows to, and the checksum. What git then makes of it lies in a private repository that sees the user's
// objects and nothing else: no configuration, no hooks, no refs but the commit that was sent. There every object is
// checked while the pack is indexed (which needs no version of git that honours fetch.fsckObjects for bundles), the one
// expected ref is taken, its commits are counted, and every path that any of them adds or changes is judged. Only what
// passed all of it can be fetched from there, and what is fetched is that one commit and what it needs.
package bundle

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hutch-run/hutch/host/git"
	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/workspace/review"
	"github.com/hutch-run/hutch/sdk/safepath"
)

// RefusedError says what is wrong with a bundle. Nothing of it is in the user's repository.
type RefusedError struct{ Err error }

// Error implements error.
func (e *RefusedError) Error() string { return "the bundle is refused: " + e.Err.Error() }

// Unwrap returns what is wrong.
func (e *RefusedError) Unwrap() error { return e.Err }

// Errors inside a [RefusedError] that callers tell apart with errors.Is.
var (
	ErrNothingNew = errors.New("it has no commit that this repository lacks")
	ErrLargeFile  = errors.New("more than ") // before the size that an object may have
	ErrRewritten  = errors.New("its commits do not build on the one that was sent: history was rewritten, or is that " +
		"of another repository")
)

// Wanted says what is expected of a bundle.
type Wanted struct {
	Base string   // the commit that was sent: what comes back must descend from it
	Refs []string // names under which it may come, the first one that is there counts
	Caps Caps
}

// Checked is a bundle that passed. Its commits lie in a private repository until Close.
type Checked struct {
	Commit string // the new one
	// Findings are what does not come into the work tree unless it is allowed, in path order.
	Findings []judge.Landed
	// Marks are what a reviewer should know of the rest, a line each.
	Marks []string

	quarantine git.Tool
	dir        string
	worktree   string
}

// Ref is where a private repository has what it took out of a bundle.
const quarantineRef = "refs/hutch/taken"

// Check takes the bundle in f apart, from its beginning. What is wrong with it is a [*RefusedError]; other errors are
// about this host. f must be a private copy that nobody can change any more.
func Check(ctx context.Context, r *git.Repo, f *os.File, w Wanted) (_ *Checked, err error) {
	w.Caps = w.Caps.filled()
	refuse := func(err error) error {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return &RefusedError{err}
	}
	if fi, err := f.Stat(); err != nil {
		return nil, err
	} else if fi.Size() > w.Caps.Bytes {
		return nil, refuse(fmt.Errorf("it has %s, more than %s", amount(fi.Size()), amount(w.Caps.Bytes)))
	}
	h, at, err := ReadHeader(bufio.NewReader(io.NewSectionReader(f, 0, w.Caps.Bytes)))
	if err != nil {
		return nil, refuse(err)
	}
	if h.Format != r.Format {
		return nil, refuse(fmt.Errorf("its objects have names of %s, those of the repository of %s", h.Format, r.Format))
	}
	commit, ok := h.Find(w.Refs...)
	if !ok {
		return nil, refuse(fmt.Errorf("it has no %s", strings.Join(w.Refs, " and no ")))
	}
	pack := func() io.Reader { return io.NewSectionReader(f, at, w.Caps.Bytes) }
	if _, err := ScanPack(ctx, pack(), h.Format, w.Caps); err != nil {
		return nil, refuse(err)
	}
	c := &Checked{Commit: commit, worktree: r.Dir}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	if err := c.isolate(r, w.Base); err != nil {
		return nil, err
	}
	if err := c.has(ctx, h.Prerequisites); err != nil {
		return nil, refuse(err)
	}
	if err := c.index(ctx, pack()); err != nil {
		return nil, refuse(err)
	}
	if err := c.follow(ctx, w); err != nil {
		return nil, refuse(err)
	}
	if err := c.look(ctx, w); err != nil {
		return nil, refuse(err)
	}
	return c, nil
}

// isolate makes the private repository: bare, with the user's objects as alternates, and one ref. Nothing of the user's
// configuration is in it.
func (c *Checked) isolate(r *git.Repo, base string) (err error) {
	if c.dir, err = store.MkdirTemp("bundle"); err != nil {
		return err
	}
	c.quarantine = git.Tool{Dir: c.dir, Private: true}
	objects := filepath.Join(r.Common, "objects")
	if strings.ContainsAny(objects, "\n\"") || strings.HasPrefix(objects, "#") {
		return fmt.Errorf("the repository's directory has a name that git cannot take as an alternate: %q", objects)
	}
	config := "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
	if r.Format == "sha256" {
		config = "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectformat = sha256\n"
	}
	files := map[string]string{
		"HEAD": "ref: refs/heads/none\n", "config": config, "packed-refs": base + " refs/hutch/base\n",
		"objects/info/alternates": objects + "\n", "objects/pack/.keep": "", "refs/heads/.keep": "",
	}
	if cut, err := os.ReadFile(filepath.Join(r.Common, "shallow")); err == nil {
		files["shallow"] = string(cut) // where the user's own history ends
	}
	for name, content := range files {
		name = filepath.Join(c.dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		if path := filepath.Base(name); path == ".keep" {
			continue
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// has proves that every prerequisite is a commit of the user's.
func (c *Checked) has(ctx context.Context, prerequisites []string) error {
	if len(prerequisites) == 0 {
		return nil
	}
	out, err := c.quarantine.Do(ctx, git.Call{Stdin: strings.NewReader(strings.Join(prerequisites, "\n") + "\n")},
		"cat-file", "--batch-check=%(objecttype)")
	if err != nil {
		return err
	}
	for i, kind := range strings.Split(out, "\n") {
		if kind != "commit" && i < len(prerequisites) {
			return fmt.Errorf("it builds on the commit %.12s, which this repository does not have", prerequisites[i])
		}
	}
	return nil
}

// strict are problems that git itself only warns of.
const strict = "--strict=nullSha1=error,hasDot=error,hasDotdot=error,hasDotgit=error,fullPathname=error,emptyName=error,zeroPaddedFilemode=error,badFilemode=error"

// index has git take the pack, and check every object in it and that all they name is there.
func (c *Checked) index(ctx context.Context, pack io.Reader) error {
	_, err := c.quarantine.Do(ctx, git.Call{Stdin: pack}, "index-pack", "--stdin", "--fix-thin", strict)
	return broken(err)
}

// broken leaves of a git that refused objects what it said of them.
func broken(err error) error {
	var e *git.Error
	if !errors.As(err, &e) {
		return err
	}
	for line := range strings.Lines(e.Stderr) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "error: "); ok {
			return fmt.Errorf("git found a broken object: %s", rest)
		}
	}
	return fmt.Errorf("git found a broken object: %w", err)
}

// follow takes the one ref, and counts what is new.
func (c *Checked) follow(ctx context.Context, w Wanted) error {
	q := c.quarantine
	if kind, err := q.Run(ctx, "cat-file", "-t", c.Commit); err != nil || kind != "commit" {
		return errors.Join(errors.New("what it offers is no commit"), err)
	}
	if _, err := q.Run(ctx, "update-ref", quarantineRef, c.Commit); err != nil {
		return err
	}
	if c.Commit == w.Base {
		return ErrNothingNew
	}
	switch _, err := q.Run(ctx, "merge-base", "--is-ancestor", w.Base, c.Commit); {
	case err != nil:
		var e *git.Error
		if errors.As(err, &e) && e.Code == 1 {
			return ErrRewritten
		}
		return err
	}
	out, err := q.Run(ctx, "rev-list", "--count", "--max-count="+strconv.FormatInt(w.Caps.Commits+1, 10), c.Commit,
		"^"+w.Base)
	if err != nil {
		return err
	}
	if n, err := strconv.ParseInt(out, 10, 64); err != nil || n > w.Caps.Commits {
		return errors.Join(fmt.Errorf("it has more than %d new commits", w.Caps.Commits), err)
	}
	return nil
}

// look judges every path that a new commit adds or changes, against each of its parents: also what a later commit takes
// away again can be checked out one day.
func (c *Checked) look(ctx context.Context, w Wanted) error {
	commits, err := c.quarantine.Run(ctx, "rev-list", c.Commit, "^"+w.Base)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	var tip, past []entry
	err = c.changes(ctx, w.Caps.Paths, func(e entry) error {
		if seen[e.mode+e.path] {
			return nil
		}
		seen[e.mode+e.path] = true
		past = append(past, e)
		return e.check()
	}, git.Call{Stdin: strings.NewReader(commits + "\n")}, "diff-tree", "--stdin", "-r", "-m", "--root", "-z", "--raw",
		"--no-renames", "--no-commit-id", "--full-index")
	if err != nil {
		return err
	}
	err = c.changes(ctx, w.Caps.Paths, func(e entry) error {
		tip = append(tip, e)
		return nil
	}, git.Call{}, "diff-tree", "-r", "-z", "--raw", "--no-renames", "--full-index", w.Base, c.Commit)
	if err != nil {
		return err
	}
	return c.judge(ctx, w.Base, tip, past)
}

// changes calls fn for every path that a call of diff-tree says was added, changed or removed.
func (c *Checked) changes(ctx context.Context, most int64, fn func(entry) error, call git.Call, args ...string) error {
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		call.Stdout = w
		_, err := c.quarantine.Do(ctx, call, args...)
		w.CloseWithError(err)
		ended <- err
	}()
	err := readRaw(r, most, fn)
	r.CloseWithError(io.ErrClosedPipe)
	if gerr := <-ended; err == nil {
		err = gerr
	}
	return err
}

func readRaw(r io.Reader, most int64, fn func(entry) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	next := func() (string, error) {
		s, err := in.ReadString(0)
		return strings.TrimSuffix(s, "\x00"), err
	}
	for n := int64(1); ; n++ {
		head, err := next()
		if errors.Is(err, io.EOF) && head == "" {
			return nil
		}
		name, err2 := next()
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if n > most {
			return fmt.Errorf("its commits change more than %d paths", most)
		}
		e, err := parseRaw(head)
		if err != nil {
			return err
		}
		e.path = name
		if err := fn(e); err != nil {
			return err
		}
	}
}

// Take fetches what was checked into the user's repository as ref, which is overwritten.
func (c *Checked) Take(ctx context.Context, r *git.Repo, ref string) error {
	if _, err := c.quarantine.Run(ctx, "update-ref", ref, c.Commit); err != nil {
		return err
	}
	if err := r.Fetch(ctx, c.dir, ref); err != nil {
		return err
	}
	got, err := r.Commit(ctx, ref)
	if err == nil && got != c.Commit {
		err = fmt.Errorf("%s is %.12s and not %.12s after the fetch", ref, got, c.Commit)
	}
	return err
}

// Close removes the private repository. It may be called twice.
func (c *Checked) Close() {
	if c.dir != "" {
		_ = os.RemoveAll(c.dir)
	}
}

// maxLink is how long the target of a symbolic link may be.
const maxLink = 4096

// judge looks at what is different in the end, and, for repositories that hide in the tree, at what was in any new
// commit.
func (c *Checked) judge(ctx context.Context, base string, tip, past []entry) error {
	if len(past) == 0 {
		return nil
	}
	changes := make([]judge.Change, 0, len(tip)+len(past))
	for _, e := range slices.Concat(tip, past) {
		x := judge.Change{Path: e.path, Old: node(e.was), New: node(e.mode)}
		if e.mode == modeLink && len(changes) < len(tip) {
			var err error
			if x.New.Link, err = c.link(ctx, e); err != nil {
				return err
			}
		}
		changes = append(changes, x)
	}
	to, err := c.landing(ctx, base)
	if err != nil {
		return err
	}
	defer to.dir.Close()
	seen := map[judge.Landed]bool{}
	for i, v := range judge.Judge(changes, to) {
		for _, f := range v.Refused {
			if f.Rule == judge.Exec { // a mode is what git keeps of a file, and in every diff of it
				v.Marks = append(v.Marks, f.Detail)
				continue
			}
			// A link in a directory's place is git's to see: it writes through none.
			if x := (judge.Landed{Path: changes[i].Path, Finding: f}); f.Rule != judge.Escapes &&
				(i < len(tip) || f.Rule == judge.Git) && !seen[x] {
				seen[x] = true
				c.Findings = append(c.Findings, x)
			}
		}
		for _, m := range v.Marks {
			if i < len(tip) {
				c.Marks = append(c.Marks, review.Quote(changes[i].Path)+": "+m)
			}
		}
	}
	slices.SortStableFunc(c.Findings, func(a, b judge.Landed) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

// landing is where commits land: the tree of the base, and what lies in the work tree besides.
type landing struct {
	dir   judge.Dir
	nodes map[string]judge.Node
	names map[string][]string
}

func (c *Checked) landing(ctx context.Context, base string) (*landing, error) {
	list, err := c.quarantine.Run(ctx, "ls-tree", "-r", "-t", "-z", "--full-tree", base)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(c.worktree)
	if err != nil {
		return nil, err
	}
	l := &landing{dir: judge.Dir{Root: root}, nodes: map[string]judge.Node{}, names: map[string][]string{}}
	for line := range strings.SplitSeq(list, "\x00") {
		head, p, ok := strings.Cut(line, "\t") // mode, type and object
		if mode, _, _ := strings.Cut(head, " "); ok {
			l.nodes[p] = node(mode)
			dir := strings.TrimPrefix(path.Dir("/"+p), "/")
			l.names[dir] = append(l.names[dir], path.Base(p))
		}
	}
	return l, nil
}

// Look implements [judge.Place].
func (l *landing) Look(p string) judge.Node {
	if n, ok := l.nodes[p]; ok {
		return n
	}
	return l.dir.Look(p)
}

// Names implements [judge.Place].
func (l *landing) Names(in string) []string { return append(l.dir.Names(in), l.names[in]...) }

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

// The modes of a tree's entries, as git writes them.
const (
	modeFile = "100644"
	modeExec = "100755"
	modeLink = "120000"
	modeGit  = "160000"
	modeTree = "040000"
	modeNone = "000000"
)

// rules are those of a path: git carries any bytes but NUL, and so does hutch.
var pathRules = safepath.Rules{MaxLen: 4096, AnyBytes: true}

// entry is one path that a commit adds, changes or removes.
type entry struct {
	path   string
	was    string // mode before
	mode   string
	object string
}

// check refuses what must not become part of the user's repository under any circumstances. Whether a good path is one
// that the user wants is another question, which [Checked.Findings] answers.
func (e entry) check() error {
	if e.mode == modeNone {
		return nil
	}
	if err := pathRules.Check(e.path); err != nil {
		var bad *safepath.Error
		if errors.As(err, &bad) {
			return fmt.Errorf("the path %s %s", review.Quote(e.path), bad.Reason)
		}
		return err
	}
	if judge.GitPath(e.path) {
		return fmt.Errorf("the path %s would lie in a git repository's own files", review.Quote(e.path))
	}
	switch e.mode {
	case modeFile, modeExec:
		if safepath.Fold(path.Base(e.path)) == ".gitmodules" {
			return errors.New("it changes .gitmodules: submodules are not taken from a sandbox")
		}
		return nil
	case modeLink:
		switch safepath.Fold(path.Base(e.path)) {
		case ".gitmodules", ".gitattributes", ".gitignore", ".mailmap":
			return fmt.Errorf("%s is a symbolic link, and git reads it", review.Quote(e.path))
		}
		return nil
	case modeGit:
		return fmt.Errorf("%s is a submodule: submodules are not taken from a sandbox", review.Quote(e.path))
	}
	return fmt.Errorf("%s has the mode %q, which no file has", review.Quote(e.path), e.mode)
}

// node is what a mode of a tree's entry stands for.
func node(mode string) judge.Node {
	switch mode {
	case modeFile:
		return judge.Node{There: true, Mode: 0o644}
	case modeExec:
		return judge.Node{There: true, Mode: 0o755}
	case modeLink:
		return judge.Node{There: true, Mode: fs.ModeSymlink | 0o777}
	case modeTree, modeGit:
		return judge.Node{There: true, Mode: fs.ModeDir | 0o755}
	}
	return judge.Node{}
}

// parseRaw takes one entry of `git diff-tree -r -z --raw` apart: ":OLDMODE MODE OLD NEW STATUS".
func parseRaw(s string) (e entry, err error) {
	f := strings.Split(strings.TrimPrefix(s, ":"), " ")
	if len(f) != 5 || !strings.HasPrefix(s, ":") || !isHex(f[3]) {
		return e, fmt.Errorf("git lists a change as %q", s)
	}
	return entry{was: f[0], mode: f[1], object: f[3]}, nil
}
