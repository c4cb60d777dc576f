package bundle

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/git"
	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/host/review"
)

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
			if x := (judge.Landed{Path: changes[i].Path, Finding: f}); f.Rule != judge.Escapes && (i < len(tip) || f.Rule == judge.Git) && !seen[x] {
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
