package overlay

import (
	"context"
	"crypto/sha256"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"

	"golang.org/x/sys/unix"
)

// Snapshot is what a directory looked like at one time. It is for directories that a sandbox writes in place, where no
// overlay keeps the changes apart. It is safe for concurrent use.
type Snapshot struct {
	entries  map[string]seen
	contents bool
	gaps     gaps            // what kept it from being complete
	closed   map[string]bool // directories that could not be read
}

// seen is one entry of a snapshot: what cannot be changed without a trace in it.
type seen struct {
	mode         fs.FileMode
	size         int64
	mtime, ctime unix.Timespec
	ino, rdev    uint64
	link         string
	hash         [sha256.Size]byte
}

// Take looks at every entry below root. With ErrTooMany and ErrUnreadable comes what could be seen. Changes of such a
// snapshot reports ErrTooMany again, and ErrUnreadable only for directories that could be read when it was taken.
func Take(ctx context.Context, root *os.Root, o Options) (*Snapshot, error) {
	return take(ctx, root, o, nil)
}

// take is Take, which does not miss the directories in closed.
func take(ctx context.Context, root *os.Root, o Options, closed map[string]bool) (*Snapshot, error) {
	o = o.withDefaults()
	s := &Snapshot{entries: make(map[string]seen), contents: o.Contents, closed: make(map[string]bool)}
	t := &taker{ctx: ctx, o: o, left: o.MaxEntries, gaps: gaps{max: o}, into: s.entries, before: closed, closed: s.closed}
	top, err := openTop(root)
	if err != nil {
		return nil, fmt.Errorf("take snapshot: %w", err)
	}
	defer top.close()
	if err := t.walk(top, "", 0); err != nil && !errors.Is(err, ErrTooMany) {
		return nil, fmt.Errorf("take snapshot: %w", err)
	}
	s.gaps = t.gaps
	return s, s.gaps.err()
}

// Len is the number of entries seen.
func (s *Snapshot) Len() int { return len(s.entries) }

// Entries yields everything seen, in no order.
func (s *Snapshot) Entries() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for path, e := range s.entries {
			if !yield(Entry{path, e.mode, e.size, e.mtime.Nano(), e.ctime.Nano(), e.ino, e.link}) {
				return
			}
		}
	}
}

// Changes lists what differs below root since the snapshot, in path order; o must be the options given to Take. A
// regular file counts as modified when its size, modification time, change time or inode differ, so also when it was
// only touched; the change time is one that no program can set. When the permissions differ, and of the rest the change
// time only, it is a change of mode. With Options.Contents, contents decide instead.
func (s *Snapshot) Changes(ctx context.Context, root *os.Root, o Options) ([]Change, error) {
	o.Contents = s.contents
	now, err := take(ctx, root, o, s.closed)
	if now == nil {
		return nil, err
	}
	var out []Change
	for path, n := range now.entries {
		old, had := s.entries[path]
		c := Change{Path: path, Kind: Added, OldMode: old.mode, NewMode: n.mode, Size: n.size}
		if had {
			if c.Kind = s.compare(old, n); c.Kind == "" {
				continue
			}
		}
		out = append(out, c)
	}
	for path, old := range s.entries {
		if _, still := now.entries[path]; !still {
			out = append(out, Change{Path: path, Kind: Deleted, OldMode: old.mode})
		}
	}
	bounds := s.gaps
	bounds.unread = 0 // a program that runs as this user could not look there either
	return sorted(out), errors.Join(bounds.err(), err)
}

// compare names the difference between two looks at one path; "" for none.
func (s *Snapshot) compare(old, now seen) Kind {
	switch {
	case old.mode.Type() != now.mode.Type() || old.rdev != now.rdev:
		return Type
	case now.mode.Type() == fs.ModeSymlink:
		if old.link != now.link {
			return Symlink
		}
		return ""
	case now.mode.IsRegular() && s.contents:
		if old.size != now.size || old.hash != now.hash {
			return Modified
		}
	case now.mode.IsRegular():
		if old.size != now.size || old.mtime != now.mtime || old.ino != now.ino ||
			old.ctime != now.ctime && old.mode == now.mode {
			return Modified
		}
	}
	if old.mode != now.mode {
		return Mode
	}
	return ""
}

// taker is one run of Take.
type taker struct {
	ctx  context.Context
	o    Options
	left int
	gaps gaps
	into map[string]seen
	buf  []byte

	before, closed map[string]bool // directories that could not be read before, and now
}

func (t *taker) unreadable(path string) {
	t.closed[path] = true
	if !t.before[path] {
		t.gaps.unreadable(path)
	}
}

func (t *taker) walk(d dir, path string, depth int) error {
	if err := t.ctx.Err(); err != nil {
		return context.Cause(t.ctx)
	}
	names, more, err := d.names(t.left)
	if err != nil {
		t.unreadable(path)
		return nil
	}
	for _, name := range names {
		p := join(path, name)
		if t.left--; t.left < 0 {
			t.gaps.entries = true
			return errStop
		}
		st, ok, err := d.stat(name)
		if err != nil {
			return fmt.Errorf("%q: %w", p, err)
		}
		if !ok {
			continue
		}
		e := seen{mode: modeOf(st.Mode), size: sizeOf(st), mtime: st.Mtim, ctime: st.Ctim, ino: st.Ino}
		switch {
		case isLink(st):
			if e.link, err = d.link(name); err != nil {
				continue // replaced or gone meanwhile; the next look will tell
			}
		case isRegular(st) && t.o.Contents:
			e.hash = t.hash(d, name)
		case !isRegular(st) && !isDir(st):
			e.rdev = st.Rdev
		}
		t.into[p] = e
		if !isDir(st) {
			continue
		}
		if depth+1 >= t.o.MaxDepth {
			t.gaps.tooDeep(p)
			continue
		}
		sub, err := d.sub(name)
		if err != nil {
			if err != unix.ENOENT && err != unix.ENOTDIR {
				t.unreadable(p)
			}
			continue
		}
		err = t.walk(sub, p, depth+1)
		sub.close()
		if err != nil {
			return err
		}
	}
	if more {
		t.gaps.entries = true
		return errStop
	}
	return nil
}

// hash is that of a file's content; of a file which cannot be read it is zero, and so equal to itself.
func (t *taker) hash(d dir, name string) (sum [sha256.Size]byte) {
	fd, err := d.file(name)
	if err != nil {
		return sum
	}
	defer unix.Close(fd)
	if t.buf == nil {
		t.buf = make([]byte, compareSize)
	}
	h := sha256.New()
	for t.ctx.Err() == nil {
		n, err := readFull(fd, t.buf)
		h.Write(t.buf[:n])
		if err != nil {
			return sum
		}
		if n < len(t.buf) {
			break
		}
	}
	h.Sum(sum[:0])
	return sum
}

// kept is one entry of a snapshot on disk.
type kept struct {
	Path         string
	Mode         fs.FileMode
	Size         int64
	Mtime, Ctime unix.Timespec
	Ino, Rdev    uint64
	Link         string
	Hash         [sha256.Size]byte
}

// keptHead comes first: how many entries follow.
type keptHead struct {
	Format   int
	Entries  int
	Contents bool
}

const snapshotFormat = 1

// Save writes the snapshot so that [Load] finds it again in another process. One that is not complete cannot be saved.
func (s *Snapshot) Save(w io.Writer) error {
	if err := s.gaps.err(); err != nil {
		return fmt.Errorf("save a snapshot: it is not complete: %w", err)
	}
	out := gob.NewEncoder(w)
	if err := out.Encode(keptHead{Format: snapshotFormat, Entries: len(s.entries), Contents: s.contents}); err != nil {
		return fmt.Errorf("save a snapshot: %w", err)
	}
	for path, e := range s.entries {
		if err := out.Encode(kept{path, e.mode, e.size, e.mtime, e.ctime, e.ino, e.rdev, e.link, e.hash}); err != nil {
			return fmt.Errorf("save a snapshot: %w", err)
		}
	}
	return nil
}

// Load reads what [Snapshot.Save] wrote. It trusts the file.
func Load(r io.Reader) (*Snapshot, error) {
	in := gob.NewDecoder(r)
	var head keptHead
	if err := in.Decode(&head); err != nil {
		return nil, fmt.Errorf("load a snapshot: %w", err)
	}
	if head.Format != snapshotFormat {
		return nil, fmt.Errorf("load a snapshot: its format is %d, this program knows %d", head.Format, snapshotFormat)
	}
	if head.Entries < 0 {
		return nil, fmt.Errorf("load a snapshot: it has %d entries", head.Entries)
	}
	s := &Snapshot{entries: make(map[string]seen), contents: head.Contents}
	for range head.Entries {
		var k kept
		if err := in.Decode(&k); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("load a snapshot: %w", err)
		}
		s.entries[k.Path] = seen{k.Mode, k.Size, k.Mtime, k.Ctime, k.Ino, k.Rdev, k.Link, k.Hash}
	}
	return s, nil
}
