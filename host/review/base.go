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

// TakeBase looks at every path below dir, without following symbolic links and without reading a file but git's index.
// It takes some 3 ms for 1,000 files. A directory that cannot be read, and what is beyond a million entries or 128
// levels, is left out: see [Base.Complete].
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

// lookups finds the entries of paths that are asked for in their order, byte by byte, without unpacking all. One that
// is asked for out of order is found as well, and costs that.
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

// with is the base with other entries at some paths, the zero Entry for nothing.
func (b *Base) with(fresh map[string]Entry) *Base {
	out := &Base{taken: b.taken, complete: b.complete}
	for _, e := range b.list() {
		if _, ok := fresh[e.Path]; !ok {
			out.entries = append(out.entries, e)
		}
	}
	for _, e := range fresh {
		if e.Path != "" {
			out.entries = append(out.entries, e)
		}
	}
	out.sort()
	return out
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

// base is the base of a sandbox; nil without one.
func (l *Ledger) base(sandbox string) (*Base, error) {
	if l.bases == nil || sandbox == "" {
		return nil, nil
	}
	return ReadBase(l.bases.SandboxBase(sandbox))
}

// rebase writes into the sandbox's base what the steps of a journal did to the project, or, with back, what taking them
// back did. What an apply brought is what both sides have in common now. A file that was restored is another inode with
// another change time than the base has, although its content is what the base vouched for: it gets its new stat, so
// that it does not count as changed. What was in conflict before is in conflict again.
func (l *Ledger) rebase(j *journal, project *dir, back bool) error {
	if l.bases == nil {
		return nil
	}
	e := &engine{project: project}
	fresh := map[string]Entry{}
	type restored struct {
		ident ident // that it had
		entry Entry
	}
	files := map[string]restored{}
	for _, s := range j.Steps {
		at := string(s.Path)
		now, id, err := project.look(at)
		if err != nil {
			return fmt.Errorf("look at %s in the project: %w", Quote(at), err)
		}
		entry := Entry{Entry: entryOf(at, now, id)}
		want, was := s.New, s.Was
		if back {
			want, was = s.Old, s.Base
		}
		if !back && j.Undoes == "" {
			if !s.Settled || !s.part {
				fresh[at] = entry
			}
			continue
		}
		same := now.Mode == want.Mode && e.equal(&move{path: at}, want, now, id)
		if same && want.Type == File {
			files[at] = restored{want.Ident, entry}
		}
		switch {
		case was == nil:
		case same && was.vouches(at, want):
			entry.Blob = string(was.Blob)
			fresh[at] = entry
		default:
			fresh[at] = was.entry(at)
		}
	}
	err := l.rewrite(j.SandboxID, func(*Base) map[string]Entry { return fresh })
	if len(files) == 0 {
		return err
	}
	// The other sandboxes of the project know the restored files as they were, too.
	others, oerr := l.bases.SandboxesOf(j.Project)
	err = errors.Join(err, oerr)
	for _, id := range others {
		if id == j.SandboxID {
			continue
		}
		err = errors.Join(err, l.rewrite(id, func(b *Base) map[string]Entry {
			fresh := map[string]Entry{}
			for at, r := range files {
				if e, known := b.Lookup(at); known && !touched(e.Entry, true, Node{Type: File, Size: r.ident.Size}, r.ident) {
					fresh[at] = Entry{r.entry.Entry, e.Blob}
				}
			}
			return fresh
		}))
	}
	return err
}

// rewrite changes some entries of a sandbox's base; a sandbox without one is left alone.
func (l *Ledger) rewrite(id string, change func(*Base) map[string]Entry) error {
	b, err := l.base(id)
	if err != nil || b == nil {
		return err
	}
	fresh := change(b)
	if len(fresh) == 0 {
		return nil
	}
	file := l.bases.SandboxBase(id)
	f, err := os.OpenFile(file+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = b.with(fresh).Save(f)
	if err == nil && !l.noSync {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(file+".new"))
	}
	return l.bases.PlaceSandboxBase(id)
}

// vouches reports whether the project's version s was untouched since the base was taken.
func (b *baseState) vouches(path string, s state) bool {
	return !touched(b.entry(path).Entry, !b.None, Node{Type: s.Type, Mode: s.Mode, Size: s.Size, Link: string(s.Link)}, s.Ident)
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
