package overlay

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// Take looks at every entry below root, and reads no file without Options.Contents. With ErrTooMany and ErrUnreadable
// comes what could be seen. Changes of such a snapshot reports ErrTooMany again, and ErrUnreadable only for directories
// that could be read when it was taken.
func Take(ctx context.Context, root *os.Root, o Options) (*Snapshot, error) {
	return take(ctx, root, o, nil)
}

// take is Take, which does not miss the directories in closed.
func take(ctx context.Context, root *os.Root, o Options, closed map[string]bool) (*Snapshot, error) {
	o = o.withDefaults()
	s := &Snapshot{Taken: time.Now(), contents: o.Contents, closed: make(map[string]bool)}
	t := &taker{ctx: ctx, o: o, left: o.MaxEntries, gaps: gaps{max: o}, into: s, before: closed}
	top, err := openTop(root)
	if err != nil {
		return nil, fmt.Errorf("take snapshot: %w", err)
	}
	defer top.close()
	if err := t.walk(top, "", 0); err != nil && !errors.Is(err, ErrTooMany) {
		return nil, fmt.Errorf("take snapshot: %w", err)
	}
	s.gaps = t.gaps
	s.Complete = s.gaps.err() == nil
	s.sort()
	return s, s.gaps.err()
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
	for _, n := range now.Entries {
		old, had := s.Lookup(n.Path)
		c := Change{Path: n.Path, Kind: Added, OldMode: old.Mode, NewMode: n.Mode, Size: n.Size}
		if had {
			if c.Kind = s.compare(old, n); c.Kind == "" {
				continue
			}
		}
		out = append(out, c)
	}
	for _, old := range s.Entries {
		if _, still := now.Lookup(old.Path); !still {
			out = append(out, Change{Path: old.Path, Kind: Deleted, OldMode: old.Mode})
		}
	}
	bounds := s.gaps
	bounds.unread = 0 // a program that runs as this user could not look there either
	return sorted(out), errors.Join(bounds.err(), err)
}

// compare names the difference between two looks at one path; "" for none.
func (s *Snapshot) compare(old, now Entry) Kind {
	switch {
	case old.Mode.Type() != now.Mode.Type() || old.Rdev != now.Rdev:
		return Type
	case now.Mode.Type() == fs.ModeSymlink:
		if old.Link != now.Link {
			return Symlink
		}
		return ""
	case now.Mode.IsRegular() && s.contents:
		if old.Size != now.Size || old.Content != now.Content {
			return Modified
		}
	case now.Mode.IsRegular():
		if old.Size != now.Size || old.Mtime != now.Mtime || old.Ino != now.Ino ||
			old.Ctime != now.Ctime && old.Mode == now.Mode {
			return Modified
		}
	}
	if old.Mode != now.Mode {
		return Mode
	}
	return ""
}

// taker is one run of Take.
type taker struct {
	ctx    context.Context
	o      Options
	left   int
	gaps   gaps
	into   *Snapshot
	buf    []byte
	before map[string]bool // directories that could not be read before
}

func (t *taker) unreadable(path string) {
	t.into.closed[path] = true
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
		e := Entry{Path: join(path, name)}
		if t.left--; t.left < 0 {
			t.gaps.entries = true
			return errStop
		}
		e.Stat, err = safefile.StatAt(d.fd(), name)
		if e.Mode.Type() == fs.ModeSymlink && err != nil {
			continue // replaced or gone meanwhile; the next look will tell
		}
		if err != nil {
			return fmt.Errorf("%q: %w", e.Path, err)
		}
		if !e.Exists() {
			continue
		}
		if e.Mode.IsRegular() && t.o.Contents {
			e.Content = t.hash(d, name)
		}
		e.Dev, e.UID, e.GID = 0, 0, 0 // of no matter, and not kept on disk
		t.into.Entries = append(t.into.Entries, e)
		if !e.Mode.IsDir() {
			continue
		}
		if depth+1 >= t.o.MaxDepth {
			t.gaps.tooDeep(e.Path)
			continue
		}
		sub, err := d.sub(name)
		if err != nil {
			if err != unix.ENOENT && err != unix.ENOTDIR {
				t.unreadable(e.Path)
			}
			continue
		}
		err = t.walk(sub, e.Path, depth+1)
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

// hash is that of a file's content; of a file which cannot be read it is empty, and so equal to itself.
func (t *taker) hash(d dir, name string) string {
	fd, _, err := safefile.OpenFileAt(d.fd(), name)
	if err != nil {
		return ""
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
			return ""
		}
		if n < len(t.buf) {
			break
		}
	}
	return string(h.Sum(nil))
}
