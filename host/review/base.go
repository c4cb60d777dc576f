package review

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sort"
	"time"

	"github.com/hutch-run/hutch/sdk/overlay"
)

// Base is what a project looked like at one time: a line for every path, and no contents. A path whose entry still
// looks the same was not touched since; the change time in it is one that no program can set. It does not change and
// is safe for concurrent use.
type Base struct {
	taken    time.Time
	complete bool
	entries  []Entry     // by path, byte by byte
	packed   *packedBase // the same, of a base that was read from a file
}

// Entry is what stood at one path of a project.
type Entry struct {
	overlay.Entry
	// Blob is git's name of the file's content, in bytes, where git's index vouched for it; else empty.
	Blob string
}

// list are the entries by path.
func (b *Base) list() []Entry {
	if b.packed != nil {
		return b.packed.entries()
	}
	return b.entries
}

// TakeBase looks at every path below dir, without following symbolic links and without reading a file but git's index. It
// takes some 3 ms for 1,000 files. A directory that cannot be read, and what is beyond a million entries or 128 levels, is left
// out: see [Base.Complete].
func TakeBase(ctx context.Context, dir string) (*Base, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("look at the project: %w", err)
	}
	defer root.Close()
	b := &Base{taken: time.Now()}
	s, err := overlay.Take(ctx, root, overlay.Options{})
	if s == nil {
		return nil, fmt.Errorf("look at the project %s: %w", dir, err)
	}
	if err != nil && !errors.Is(err, overlay.ErrTooMany) && !errors.Is(err, overlay.ErrUnreadable) {
		return nil, fmt.Errorf("look at the project %s: %w", dir, err)
	}
	b.complete = err == nil
	b.entries = make([]Entry, 0, s.Len())
	for e := range s.Entries() {
		b.entries = append(b.entries, Entry{Entry: e})
	}
	b.sort()
	vouch(dir, b.entries)
	return b, nil
}

func (b *Base) sort() {
	slices.SortFunc(b.entries, func(x, y Entry) int { return cmp.Compare(x.Path, y.Path) })
}

// Taken is when the base was taken.
func (b *Base) Taken() time.Time { return b.taken }

// Complete reports whether every path of the project is in the base. Where it is not, a path that is missing from the
// base counts as unknown, and what a sandbox did to it as a conflict unless the project lacks it too.
func (b *Base) Complete() bool { return b.complete }

// Len is the number of paths in the base.
func (b *Base) Len() int {
	if b.packed != nil {
		return b.packed.count
	}
	return len(b.entries)
}

// Lookup finds the entry of a path.
func (b *Base) Lookup(path string) (Entry, bool) {
	list := b.list()
	i := sort.Search(len(list), func(i int) bool { return list[i].Path >= path })
	if i < len(list) && list[i].Path == path {
		return list[i], true
	}
	return Entry{}, false
}

// lookups finds the entries of paths that are asked for in their order, byte by byte, without unpacking all. One that is asked
// for out of order is found as well, and costs that.
func (b *Base) lookups() func(path string) (Entry, bool) {
	if b == nil {
		return func(string) (Entry, bool) { return Entry{}, false }
	}
	if b.packed == nil {
		return b.Lookup
	}
	lines := b.packed.read()
	more, last := lines.next(), ""
	return func(path string) (Entry, bool) {
		if path < last {
			return b.Lookup(path)
		}
		last = path
		for more && string(lines.path) < path {
			more = lines.next()
		}
		if more && string(lines.path) == path {
			return lines.named(), true
		}
		return Entry{}, false
	}
}

// Refresh is the base with the given paths as they are in the project now: after an apply, what was brought back is
// what the sandbox and the project have in common.
func (b *Base) Refresh(project string, paths []string) (*Base, error) {
	d, err := openDir(project)
	if err != nil {
		return nil, err
	}
	defer d.close()
	fresh := make(map[string]overlay.Entry, len(paths))
	for _, p := range paths {
		n, id, err := d.look(p)
		if err != nil {
			return nil, fmt.Errorf("look at %s in the project: %w", Quote(p), err)
		}
		fresh[p] = entryOf(p, n, id)
	}
	out := &Base{taken: b.taken, complete: b.complete}
	for _, e := range b.list() {
		if _, ok := fresh[e.Path]; !ok {
			out.entries = append(out.entries, e)
		}
	}
	for _, e := range fresh {
		if e.Path != "" {
			out.entries = append(out.entries, Entry{Entry: e})
		}
	}
	out.sort()
	return out, nil
}

// Without is the base without the given paths: what stands there counts as changed in the project.
func (b *Base) Without(paths []string) *Base {
	gone := make(map[string]bool, len(paths))
	for _, p := range paths {
		gone[p] = true
	}
	out := &Base{taken: b.taken, complete: b.complete}
	for _, e := range b.list() {
		if !gone[e.Path] {
			out.entries = append(out.entries, e)
		}
	}
	return out
}

// entryOf is the entry for what stands at a path; the zero Entry for nothing.
func entryOf(path string, n Node, id ident) overlay.Entry {
	e := overlay.Entry{Path: path, Mode: modeOf(n.Mode), Size: n.Size, Mtime: id.Mtime, Ctime: id.Ctime, Ino: id.Ino, Link: n.Link}
	switch n.Type {
	case Nothing:
		return overlay.Entry{}
	case Directory:
		e.Mode |= fs.ModeDir
	case Symlink:
		e.Mode |= fs.ModeSymlink
	case Special:
		e.Mode |= fs.ModeIrregular
	}
	return e
}

// Undone is the base after an undo: as it was before the apply, so that what was a conflict is the same one again, and what
// was not can be merged as before.
func (b *Base) Undone(a *Applied) (*Base, error) {
	out, err := b.Refresh(a.Project, a.Common)
	if err != nil || len(a.before) == 0 {
		return out, err
	}
	entries := make([]Entry, 0, len(out.entries))
	for _, e := range out.entries {
		was, told := a.before[e.Path]
		switch {
		case told && slices.Contains(a.Common, e.Path):
			if e.Mode.IsRegular() && e.Size == was.Size {
				e.Blob = was.Blob // the content is the same one again
			}
		case told:
			continue // it follows as it was
		}
		entries = append(entries, e)
	}
	for at, was := range a.before {
		if was.Path != "" && !slices.Contains(a.Common, at) {
			entries = append(entries, was)
		}
	}
	out.entries = entries
	out.sort()
	return out, nil
}

// RefreshFile is Refresh for a base on disk. It is written beside its place, as FILE.new, and place then puts it there. A
// file that is not there is no error: there was no base.
func RefreshFile(file, project string, paths []string, place func() error) error {
	return rewrite(file, func(b *Base) (*Base, error) { return b.Refresh(project, paths) }, place)
}

// UndoneFile is Undone for a base on disk, as RefreshFile is Refresh.
func UndoneFile(file string, a *Applied, place func() error) error {
	return rewrite(file, func(b *Base) (*Base, error) { return b.Undone(a) }, place)
}

func rewrite(file string, change func(*Base) (*Base, error), place func() error) error {
	b, err := ReadBase(file)
	if err != nil || b == nil {
		return err
	}
	if b, err = change(b); err != nil {
		return err
	}
	tmp := file + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(b.Save(f), f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return place()
}

// ReadBase reads a base from a file; nil for one that is not there.
func ReadBase(file string) (*Base, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return LoadBase(f)
}

// WriteBase takes the base of a directory and writes it: what run.Options.TakeBase wants.
func WriteBase(ctx context.Context, dir string, w io.Writer) error {
	b, err := TakeBase(ctx, dir)
	if err != nil {
		return err
	}
	return b.Save(w)
}
