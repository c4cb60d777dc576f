package git

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hutch-run/hutch/host/keep"
	"github.com/hutch-run/hutch/host/store"
)

// Errors about a repository that callers tell apart with errors.Is.
var (
	ErrNoRepository = errors.New("there is no git repository here")
	ErrDetached     = errors.New("no branch is checked out (detached HEAD)")
	ErrUnborn       = errors.New("the branch has no commit yet")
)

// Repo is a repository of the user with a work tree. It is safe for concurrent use; git's own locks hold.
type Repo struct {
	Tool
	Common string // directory of objects and refs, absolute
	Format string // of object names: "sha1" or "sha256"
}

// Open finds the repository whose work tree dir lies in. The error is [ErrNoRepository] without one, also in a
// bare one.
func Open(ctx context.Context, dir string) (*Repo, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	out, err := Tool{Dir: abs}.Run(ctx, "rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir",
		"--show-object-format")
	var failed *Error
	switch {
	case errors.As(err, &failed) && strings.Contains(failed.Stderr, "dubious ownership"):
		return nil, fmt.Errorf("%s belongs to somebody else, so git does not look into it: %w", abs, err)
	case errors.As(err, &failed):
		return nil, fmt.Errorf("%w: %s", ErrNoRepository, abs)
	case err != nil:
		return nil, err
	}
	lines := strings.Split(out, "\n")
	if len(lines) != 3 || !filepath.IsAbs(lines[0]) || !filepath.IsAbs(lines[1]) {
		return nil,
			fmt.Errorf("git does not say where the repository of %s is; a name with a line break in it is not supported", abs)
	}
	return &Repo{Tool: Tool{Dir: lines[0]}, Common: lines[1], Format: lines[2]}, nil
}

// Branch returns the branch that is checked out, without refs/heads/, and its commit. The error is [ErrDetached] or
// [ErrUnborn] without one.
func (r *Repo) Branch(ctx context.Context) (branch, commit string, err error) {
	ref, err := r.Run(ctx, "symbolic-ref", "--quiet", "HEAD")
	if code(err) == 1 {
		return "", "", ErrDetached
	}
	if err != nil {
		return "", "", err
	}
	branch, ok := strings.CutPrefix(ref, "refs/heads/")
	if !ok {
		return "", "", ErrDetached
	}
	commit, err = r.Commit(ctx, ref)
	if code(err) == 1 {
		err = ErrUnborn
	}
	return branch, commit, err
}

// Commit is the full name of the commit that a ref or an object name means. Without one the error is an
// [*Error] with code 1.
func (r *Repo) Commit(ctx context.Context, rev string) (string, error) {
	return r.Run(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", rev+"^{commit}")
}

// Has reports whether the commit has a file at path, which is relative to the work tree.
func (r *Repo) Has(ctx context.Context, commit, path string) (bool, error) {
	_, err := r.Run(ctx, "cat-file", "-e", commit+":"+path)
	var failed *Error
	if errors.As(err, &failed) {
		return false, nil
	}
	return err == nil, err
}

// Dirty is one path that differs from the commit that is checked out.
type Dirty struct {
	Path  string // relative to the work tree
	State string // git's two letters: "??" is not tracked, " M" changed, "A " added to the index, "UU" in conflict
}

// Conflicted reports whether the path waits for a merge to be resolved.
func (d Dirty) Conflicted() bool {
	return strings.Contains(d.State, "U") || d.State == "AA" || d.State == "DD"
}

// Status lists what differs in the index and the work tree, files that are not tracked included, ignored ones not.
func (r *Repo) Status(ctx context.Context) ([]Dirty, error) {
	out, err := r.Run(ctx, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--ignore-submodules=dirty",
		"--no-renames")
	if err != nil {
		return nil, err
	}
	var list []Dirty
	for _, line := range strings.Split(out, "\x00") {
		if len(line) > 3 {
			list = append(list, Dirty{Path: line[3:], State: line[:2]})
		}
	}
	return list, nil
}

// Identity is the user's name and address for commits; empty where they are not configured.
func (r *Repo) Identity(ctx context.Context) (name, email string, err error) {
	out, err := r.Run(ctx, "config", "-z", "--get-regexp", `^user\.(name|email)$`)
	if code(err) == 1 {
		return "", "", nil
	}
	for _, line := range strings.Split(out, "\x00") {
		switch key, value, _ := strings.Cut(line, "\n"); key { // the last one of a name counts
		case "user.name":
			name = value
		case "user.email":
			email = value
		}
	}
	return name, email, err
}

// Snapshot makes a commit on top of parent that holds the work tree as it is, files that are not tracked included. No
// ref, no index and no file of the user changes.
func (r *Repo) Snapshot(ctx context.Context, parent, message string) (string, error) {
	dir, err := store.MkdirTemp("index")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	index := filepath.Join(dir, "index")
	own, err := r.Run(ctx, "rev-parse", "--path-format=absolute", "--git-path", "index")
	if err != nil {
		return "", err
	}
	if old, err := os.ReadFile(own); err == nil { // what git knows of unchanged files spares it reading them
		if err := os.WriteFile(index, old, 0o600); err != nil {
			return "", err
		}
	}
	env := []string{"GIT_INDEX_FILE=" + index}
	if _, err := r.Do(ctx, Call{Env: env}, "add", "--all", "--", "."); err != nil {
		return "", err
	}
	tree, err := r.Do(ctx, Call{Env: env}, "write-tree")
	if err != nil {
		return "", err
	}
	name, email, err := r.Identity(ctx)
	if err != nil {
		return "", err
	}
	// The work is the user's. What is missing of their name must not keep the commit from being made.
	env = append(env, "GIT_AUTHOR_NAME="+cmp.Or(name, "hutch"), "GIT_AUTHOR_EMAIL="+cmp.Or(email, "hutch@localhost"),
		"GIT_COMMITTER_NAME=hutch", "GIT_COMMITTER_EMAIL=hutch@localhost")
	return r.Do(ctx, Call{Env: env}, "commit-tree", "-p", parent, "-m", message, tree)
}

// Ancestor reports whether a is b or an ancestor of it.
func (r *Repo) Ancestor(ctx context.Context, a, b string) (bool, error) {
	_, err := r.Run(ctx, "merge-base", "--is-ancestor", a, b)
	if code(err) == 1 {
		return false, nil
	}
	return err == nil, err
}

// Fetch takes ref, and nothing else, from the repository at dir, which is one that hutch made and checked. The error
// names what git leaves where a disk is full; it may be another git's that works meanwhile, so it is not removed.
func (r *Repo) Fetch(ctx context.Context, dir, ref string) error {
	packs, err := r.Run(ctx, "rev-parse", "--path-format=absolute", "--git-path", "objects/pack")
	if err != nil {
		return err
	}
	halves := filepath.Join(packs, "tmp_pack_*")
	before, _ := filepath.Glob(halves)
	_, err = r.Run(ctx, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance",
		"--no-recurse-submodules", "--no-show-forced-updates",
		"--end-of-options", dir, "+"+ref+":"+ref)
	if err == nil {
		return nil
	}
	after, _ := filepath.Glob(halves)
	for _, f := range after {
		if !slices.Contains(before, f) {
			err = fmt.Errorf("%w; git left %s, which git prune --expire=now removes, and git gc after two weeks", err, f)
		}
	}
	return err
}

// FastForward moves the branch that is checked out, index and work tree to commit, which must descend from it. Git
// refuses when that would touch what is not committed. No hook is run.
func (r *Repo) FastForward(ctx context.Context, commit string) error {
	_, err := r.Run(ctx, "merge", "--quiet", "--ff-only", "--no-stat", commit)
	return err
}

// Summary counts what lies between two commits.
type Summary struct {
	Commits    int `json:"commits"`
	Files      int `json:"files"`
	Insertions int `json:"insertions"` // lines; binary files have none
	Deletions  int `json:"deletions"`
}

// Summarize counts what is in to and not in from.
func (r *Repo) Summarize(ctx context.Context, from, to string) (s Summary, err error) {
	out, err := r.Run(ctx, "rev-list", "--count", from+".."+to)
	if err != nil {
		return s, err
	}
	if s.Commits, err = strconv.Atoi(out); err != nil {
		return s, err
	}
	out, err = r.Run(ctx, "diff-tree", "-r", "-z", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv", from, to)
	if err != nil {
		return s, err
	}
	for _, line := range strings.Split(out, "\x00") {
		if f := strings.SplitN(line, "\t", 3); len(f) == 3 {
			add, _ := strconv.Atoi(f[0]) // "-" for a binary file
			del, _ := strconv.Atoi(f[1])
			s.Files, s.Insertions, s.Deletions = s.Files+1, s.Insertions+add, s.Deletions+del
		}
	}
	return s, nil
}

// Ends are the commits at which the history of commit ends although they have parents: where this repository is a
// shallow clone, and, with a depth that is not 0, where depth commits follow one another, commit itself being the
// first. The list is empty when the history is whole.
func (r *Repo) Ends(ctx context.Context, commit string, depth int) ([]string, error) {
	cut, err := r.cut()
	if err != nil || depth == 0 && len(cut) == 0 {
		return nil, err
	}
	if depth == 0 {
		roots, err := r.Run(ctx, "rev-list", "--max-parents=0", commit)
		if err != nil {
			return nil, err
		}
		var ends []string
		for _, root := range strings.Fields(roots) {
			if cut[root] {
				ends = append(ends, root)
			}
		}
		return ends, nil
	}
	var ends []string
	seen := map[string]bool{commit: true}
	for level := []string{commit}; len(level) > 0; depth-- {
		// In a shallow clone git shows no parents where its history ends.
		out, err := r.Do(ctx, Call{Stdin: strings.NewReader(strings.Join(level, "\n") + "\n")}, "rev-list",
			"--no-walk=unsorted", "--parents", "--stdin")
		if err != nil {
			return nil, err
		}
		level = nil
		for line := range strings.Lines(out) {
			c := strings.Fields(line)
			switch {
			case len(c) == 1 && !cut[c[0]]: // a root
			case len(c) == 1 || depth <= 1:
				ends = append(ends, c[0])
			default:
				for _, parent := range c[1:] {
					if !seen[parent] {
						seen[parent] = true
						level = append(level, parent)
					}
				}
			}
		}
	}
	return ends, nil
}

// cut are the commits whose parents were left out when this repository was cloned.
func (r *Repo) cut() (map[string]bool, error) {
	b, err := os.ReadFile(filepath.Join(r.Common, "shallow"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	cut := map[string]bool{}
	for _, c := range strings.Fields(string(b)) {
		cut[c] = true
	}
	return cut, nil
}

// ErrOverlap says that two versions of a text changed the same place of it.
var ErrOverlap = errors.New("both sides changed the same lines")

// MergeText joins two versions of a text that have base in common, as git does. It knows no repository and no
// attributes. The error is [ErrOverlap] where there is no answer but a person's.
func MergeText(ctx context.Context, ours, base, theirs []byte) ([]byte, error) {
	return mergeFile(ctx, ours, base, theirs)
}

// Piece is a part of a merged text: Text, or the versions of a place that both sides changed.
type Piece struct {
	Text               string
	Overlap            bool
	Ours, Base, Theirs string
}

// MergePieces is MergeText for a text with places that both sides changed.
func MergePieces(ctx context.Context, ours, base, theirs []byte) ([]Piece, error) {
	size := 7 // longer than what the texts have at the beginning of a line, so that only git's are markers
	for _, text := range [][]byte{ours, base, theirs} {
		for line := range bytes.Lines(text) {
			size = max(size, 1+len(line)-len(bytes.TrimLeft(line, "<|=>")))
		}
	}
	out, err := mergeFile(ctx, ours, base, theirs, "--diff3", "--marker-size", strconv.Itoa(size))
	if err != nil && !errors.Is(err, ErrOverlap) {
		return nil, err
	}
	pieces, at := []Piece{{}}, byte(0) // the last marker
	for line := range strings.Lines(string(out)) {
		last := &pieces[len(pieces)-1]
		if len(line) > size && strings.TrimLeft(line[:size], line[:1]) == "" && strings.ContainsAny(line[:1], "<|=>") {
			switch at = line[0]; at {
			case '<':
				pieces = append(pieces, Piece{Overlap: true})
			case '>':
				pieces = append(pieces, Piece{})
			}
			continue
		}
		switch at {
		case '<':
			last.Ours += line
		case '|':
			last.Base += line
		case '=':
			last.Theirs += line
		default:
			last.Text += line
		}
	}
	// git ends every line before a marker; the last ones of the texts may have no end.
	if n := len(pieces) - 2; n >= 0 && pieces[n+1].Text == "" {
		p := &pieces[n]
		p.Ours, p.Base, p.Theirs = ended(p.Ours, ours), ended(p.Base, base), ended(p.Theirs, theirs)
	}
	return slices.DeleteFunc(pieces, func(p Piece) bool { return p == Piece{} }), nil
}

// ended cuts the end of a text to what that of whole is.
func ended(text string, whole []byte) string {
	if len(whole) == 0 || whole[len(whole)-1] == '\n' {
		return text
	}
	return strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
}

// mergeFile returns the outcome, with markers and ErrOverlap where both sides changed a place.
func mergeFile(ctx context.Context, ours, base, theirs []byte, args ...string) ([]byte, error) {
	dir, err := store.MkdirTemp("merge")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	for name, text := range map[string][]byte{"ours": ours, "base": base, "theirs": theirs} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	args = append(append([]string{"merge-file", "-p", "-q"}, args...), "ours", "base", "theirs")
	_, err = Tool{Dir: dir, Private: true}.Do(ctx, Call{Stdout: &keep.Limit{W: &out, Max: maxOutput}}, args...)
	if n := code(err); n > 0 && n < 128 { // the number of places
		err = ErrOverlap
	}
	return out.Bytes(), err
}

// Blob reads the content that git has under a name, as it is stored. It must have exactly size bytes.
func (r *Repo) Blob(ctx context.Context, name string, size int64) ([]byte, error) {
	var out bytes.Buffer
	if _, err := r.Do(ctx, Call{Stdout: &keep.Limit{W: &out, Max: size}}, "cat-file", "blob", name); err != nil {
		return nil, err
	}
	if int64(out.Len()) != size {
		return nil, fmt.Errorf("git has %d bytes under %s, not %d", out.Len(), name, size)
	}
	return out.Bytes(), nil
}

// SameTree reports whether the work tree, files that are not tracked included, is what commit holds.
func (r *Repo) SameTree(ctx context.Context, commit string) (bool, error) {
	now, err := r.Snapshot(ctx, commit, "compare")
	if err != nil {
		return false, err
	}
	out, err := r.Run(ctx, "rev-parse", now+"^{tree}", commit+"^{tree}")
	if err != nil {
		return false, err
	}
	a, b, _ := strings.Cut(out, "\n")
	return a == b, nil
}

// Advance moves the branch that is checked out, and whose commit is head, to commit, when the work tree is that of
// base, a commit on top of head and below commit. A fast-forward refuses that, because what base holds is not committed
// on the branch. Files that changed since are never overwritten: git refuses then.
func (r *Repo) Advance(ctx context.Context, branch, head, base, commit string) error {
	if _, err := r.Run(ctx, "read-tree", base); err != nil { // the index only
		return err
	}
	// What git knows of the files is gone with the old index, so it looks again.
	_, err := r.Run(ctx, "update-index", "-q", "--really-refresh")
	if err == nil || code(err) == 1 {
		_, err = r.Run(ctx, "read-tree", "-m", "-u", base, commit)
	}
	if err == nil {
		_, err = r.Run(ctx, "update-ref", "-m", "hutch pull: fast-forward", "refs/heads/"+branch, commit, head)
	}
	if err != nil {
		_, back := r.Run(ctx, "read-tree", head)
		return errors.Join(err, back)
	}
	return nil
}

// Filtered lists those of the paths that a filter of the user's configuration would be run on when they are checked
// out.
func (r *Repo) Filtered(ctx context.Context, paths []string) ([]string, error) {
	out, err := r.Run(ctx, "config", "-z", "--name-only", "--get-regexp", `^filter\..*\.(smudge|process)$`)
	if code(err) == 1 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var drivers []string
	for _, key := range strings.Split(out, "\x00") {
		key = strings.TrimPrefix(key, "filter.")
		if i := strings.LastIndexByte(key, '.'); i > 0 {
			drivers = append(drivers, key[:i])
		}
	}
	out, err = r.Do(ctx, Call{Stdin: strings.NewReader(strings.Join(paths, "\x00") + "\x00")}, "check-attr", "-z",
		"--stdin", "filter")
	if err != nil {
		return nil, err
	}
	var list []string
	for f := strings.Split(out, "\x00"); len(f) >= 3; f = f[3:] { // path, attribute, value
		if slices.Contains(drivers, f[2]) {
			list = append(list, f[0])
		}
	}
	return list, nil
}

// Changed lists the paths that differ between two commits.
func (r *Repo) Changed(ctx context.Context, from, to string) ([]string, error) {
	out, err := r.Run(ctx, "diff-tree", "-r", "-z", "--name-only", "--no-renames", from, to)
	if err != nil || out == "" {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(out, "\x00"), "\x00"), nil
}
