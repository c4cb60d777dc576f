package overlay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// Changes lists what upper, the upper directory of an overlay mount, changes in lower, in path order. Both may be in
// use. The directory itself is not compared, only what is in it. With ErrTooMany and ErrUnreadable come the changes
// found.
//
// A file that was copied up and is the same as before is no change, whatever its times. A file whose contents cannot be
// read for comparison counts as modified. The overlay must not use redirect_dir or metacopy; where their marks are
// found the list would be wrong, and Changes returns an error instead.
func Changes(ctx context.Context, lower, upper *os.Root, o Options) ([]Change, error) {
	list, err := Differences(ctx, lower, upper, o)
	if list == nil {
		return nil, err
	}
	out := make([]Change, len(list))
	for i, d := range list {
		out[i] = d.Change
	}
	return out, err
}

// Differences is [Changes] that also says what was seen in lower, so that the caller need not look again.
func Differences(ctx context.Context, lower, upper *os.Root, o Options) ([]Difference, error) {
	o = o.withDefaults()
	lo, err := openTop(lower)
	if err != nil {
		return nil, fmt.Errorf("open lower directory: %w", err)
	}
	defer lo.close()
	w := &walker{ctx: ctx, o: o, gaps: gaps{max: o}, marks: "user.overlay."}
	w.left.Store(int64(o.MaxEntries))
	if o.Trusted {
		w.marks = "trusted.overlay."
	}
	var up stack
	defer up.close()
	for _, root := range append([]*os.Root{upper}, o.Frozen...) {
		d, err := openTop(root)
		if err != nil {
			return nil, fmt.Errorf("open upper directory: %w", err)
		}
		if w.put(&up, d); up.hides {
			break
		}
	}
	w.startComparers()
	w.walkers, w.walking = errgroup.WithContext(ctx)
	w.walkers.SetLimit(min(runtime.GOMAXPROCS(0), 4))
	w.walkers.Go(func() error { return w.merge(up, lo, "", 0, false) })
	err = w.walkers.Wait()
	w.stopComparers()
	if err == nil || errors.Is(err, ErrTooMany) {
		err = w.gaps.err()
	} else if ctx.Err() == nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	slices.SortFunc(w.out, func(a, b Difference) int { return strings.Compare(a.Path, b.Path) })
	return w.out, err
}

// walker is one run of Differences. A few goroutines walk, each a directory with what is below it and of which no other
// one was free to take a part; a few more compare contents.
type walker struct {
	ctx     context.Context
	walking context.Context // ends at the first error, too
	walkers *errgroup.Group
	o       Options
	left    atomic.Int64 // entries that may still be looked at
	marks   string       // prefix of the overlay's extended attributes
	work    chan comparison
	group   sync.WaitGroup

	mu   sync.Mutex
	gaps gaps
	out  []Difference
}

func (w *walker) add(d Difference) {
	w.mu.Lock()
	w.out = append(w.out, d)
	w.mu.Unlock()
}

func (w *walker) unreadable(path string) {
	w.mu.Lock()
	w.gaps.unreadable(path)
	w.mu.Unlock()
}

func (w *walker) tooDeep(path string) {
	w.mu.Lock()
	w.gaps.tooDeep(path)
	w.mu.Unlock()
}

var errStop = fmt.Errorf("%w: entries", ErrTooMany)

// spend counts one entry.
func (w *walker) spend() error {
	if w.left.Add(-1) < 0 {
		return w.stop()
	}
	return nil
}

// stop ends the walk for want of entries.
func (w *walker) stop() error {
	w.mu.Lock()
	w.gaps.entries = true
	w.mu.Unlock()
	return errStop
}

// room is how many entries may still be looked at.
func (w *walker) room() int { return int(max(0, w.left.Load())) }

// merge compares one directory of the upper layer with the same one in the lower layer, lo, which has no file when
// it is missing. A directory that is opaque, or lies in one, hides it: all that it does not have itself is gone.
func (w *walker) merge(up stack, lo dir, path string, depth int, hidden bool) error {
	if err := w.walking.Err(); err != nil {
		return err
	}
	names, more, err := up.names(w.room())
	if err != nil {
		return fmt.Errorf("%q in the upper directory: %w", path, err)
	}
	for _, l := range up.parts {
		if path != "" && l.xattr("", w.marks+"redirect") != "" {
			return fmt.Errorf("%q in the upper directory was moved by redirect_dir: mount the overlay with redirect_dir=off",
				path)
		}
	}
	hidden = hidden || up.hides
	var inUpper map[string]bool // names that a directory which hides others has itself
	if hidden {
		inUpper = make(map[string]bool, len(names))
	}
	for _, name := range names {
		p := join(path, name)
		if inUpper != nil {
			inUpper[name] = true
		}
		if err := w.spend(); err != nil {
			return err
		}
		if err := w.entry(up, lo, name, p, depth, hidden); err != nil {
			return err
		}
	}
	if more {
		return w.stop()
	}
	if !hidden || lo.f == nil {
		return nil
	}
	below, more, err := lo.names(w.room())
	if err != nil {
		w.unreadable(path)
		return nil
	}
	for _, name := range below {
		if inUpper[name] {
			continue
		}
		st, ok, err := lo.stat(name)
		if err != nil {
			return fmt.Errorf("%q in the lower directory: %w", join(path, name), err)
		}
		if ok {
			if err := w.deleted(lo, st, name, join(path, name), depth); err != nil {
				return err
			}
		}
	}
	if more {
		return w.stop()
	}
	return nil
}

// entry compares one name of the upper layer.
func (w *walker) entry(layers stack, lo dir, name, path string, depth int, hidden bool) error {
	up, new, ok, err := layers.stat(name)
	if err != nil {
		return fmt.Errorf("%q in the upper directory: %w", path, err)
	}
	if !ok {
		return nil // gone since it was listed
	}
	old, had, err := lo.stat(name)
	if err != nil {
		return fmt.Errorf("%q in the lower directory: %w", path, err)
	}
	if w.whiteout(up, new, name) {
		if had {
			return w.deleted(lo, old, name, path, depth)
		}
		return nil
	}
	if !had {
		return w.added(layers, lo, new, name, path, depth)
	}
	c := Difference{Lower: safefile.StatOf(&old), Seen: true}
	c.Change = Change{Path: path, OldMode: safefile.ModeOf(uint32(old.Mode)), NewMode: safefile.ModeOf(uint32(new.Mode)),
		Size: sizeOf(new)}
	if old.Mode&unix.S_IFMT != new.Mode&unix.S_IFMT {
		c.Kind = Type
		w.add(c)
		if isDir(old) {
			if err := w.deletedIn(lo, name, path, depth); err != nil {
				return err
			}
		}
		if isDir(new) {
			return w.into(layers, dir{}, name, path, depth, hidden)
		}
		return nil
	}
	switch {
	case isDir(new):
		if c.OldMode != c.NewMode {
			c.Kind = Mode
			w.add(c)
		}
		return w.into(layers, lo, name, path, depth, hidden)
	case isLink(new):
		// The permissions of a symbolic link mean nothing.
		a, err1 := safefile.ReadlinkAt(up.fd(), name)
		b, err2 := safefile.ReadlinkAt(lo.fd(), name)
		if a != b || err1 != nil || err2 != nil {
			c.Kind = Symlink
			w.add(c)
		}
		return nil
	case isRegular(new):
		return w.file(up.dir, lo, old, new, name, c)
	}
	// FIFOs, sockets and devices have nothing but their permissions and number.
	if old.Rdev != new.Rdev {
		c.Kind = Type
		w.add(c)
	} else if c.OldMode != c.NewMode {
		c.Kind = Mode
		w.add(c)
	}
	return nil
}

// file compares a regular file with the one that was there before, as cheaply as can be.
func (w *walker) file(up, lo dir, old, new unix.Stat_t, name string, c Difference) error {
	// Without data of its own a file has the size of the one below it, and no blocks: no need to ask about any other.
	if (old.Size == new.Size || new.Blocks == 0) && up.xattr(name, w.marks+"metacopy") != "" {
		return fmt.Errorf("%q in the upper directory has only its metadata there: mount the overlay with metacopy=off",
			c.Path)
	}
	switch {
	case old.Size != new.Size:
		c.Kind = Modified
		w.add(c)
	case old.Size == 0 || old.Ino == new.Ino && old.Dev == new.Dev:
		w.same(c)
	default:
		return w.compare(up, lo, name, c)
	}
	return nil
}

// same handles a file whose content did not change.
func (w *walker) same(c Difference) {
	if c.OldMode != c.NewMode {
		c.Kind = Mode
		w.add(c)
	}
}

// whiteout reports the overlay's marks for "deleted": a character device 0:0, which a program cannot make through the
// overlay, or, in a directory marked for it, an empty file with an attribute. Names like ".wh.x" are just names.
func (w *walker) whiteout(up layer, st unix.Stat_t, name string) bool {
	return isDevice0(st) ||
		up.xwhite && isRegular(st) && st.Size == 0 && hasXattr(up.fd(), name, w.marks+"whiteout")
}

// layer is a directory of upper or of a frozen layer.
type layer struct {
	dir
	xwhite bool // it may hold whiteouts that are files with an attribute
}

// stack is one directory of upper and the frozen layers: what each of them has of it, from the top.
type stack struct {
	parts []layer
	hides bool // what is below the last part
}

func (s stack) close() {
	for _, l := range s.parts {
		l.close()
	}
}

// put adds the next part of s.
func (w *walker) put(s *stack, d dir) {
	mark := d.xattr("", w.marks+"opaque")
	s.parts, s.hides = append(s.parts, layer{d, mark == "x"}), mark == "y"
}

// names are those of all parts, as names of a dir are.
func (s stack) names(most int) (names []string, more bool, err error) {
	for _, l := range s.parts {
		some, m, err := l.names(most)
		if err != nil {
			return nil, false, err
		}
		names, more = append(names, some...), more || m
	}
	if len(s.parts) > 1 {
		slices.Sort(names)
		names = slices.Compact(names)
	}
	return names, more, nil
}

// stat finds the first part that has the name, which may be a whiteout.
func (s stack) stat(name string) (l layer, st unix.Stat_t, ok bool, err error) {
	for _, l = range s.parts {
		if st, ok, err = l.stat(name); ok || err != nil {
			break
		}
	}
	return l, st, ok, err
}

// sub opens what the parts of s have of a directory.
func (w *walker) sub(s stack, name string) (out stack, err error) {
	for _, l := range s.parts {
		d, err := l.sub(name)
		switch {
		case err == nil:
			if w.put(&out, d); out.hides {
				return out, nil
			}
		case err == unix.ENOENT:
		case err == unix.ENOTDIR && len(out.parts) > 0: // a file or a whiteout, which hides what is below it
			out.hides = true
			return out, nil
		default:
			return out, err
		}
	}
	if len(out.parts) == 0 {
		return out, unix.ENOENT
	}
	return out, nil
}

// into goes one level down, with lo's directory of the same name if it has one. A goroutine of its own takes that where
// one is free, and the directories are open before it starts.
func (w *walker) into(up stack, lo dir, name, path string, depth int, hidden bool) error {
	if depth+1 >= w.o.MaxDepth {
		w.tooDeep(path)
		return nil
	}
	subUp, err := w.sub(up, name)
	if err != nil {
		subUp.close()
		if err != unix.ENOENT && err != unix.ENOTDIR {
			w.unreadable(path)
		}
		return nil
	}
	subLo := dir{unread: lo.unread}
	if lo.f != nil {
		if subLo, err = lo.sub(name); err != nil {
			subLo = dir{}
			if err != unix.ENOENT && err != unix.ENOTDIR {
				w.unreadable(path)
				subLo.unread = true
			}
		}
	}
	merge := func() error {
		defer subUp.close()
		defer subLo.close()
		return w.merge(subUp, subLo, path, depth+1, hidden)
	}
	if w.walkers.TryGo(merge) {
		return nil
	}
	return merge()
}

// added reports something new and all that is in it.
func (w *walker) added(up stack, lo dir, st unix.Stat_t, name, path string, depth int) error {
	w.add(Difference{Change: Change{Path: path, Kind: Added, NewMode: safefile.ModeOf(uint32(st.Mode)), Size: sizeOf(st)},
		Seen: !lo.unread})
	if isDir(st) {
		return w.into(up, dir{unread: lo.unread}, name, path, depth, false)
	}
	return nil
}

// deleted reports something of the lower layer that is gone, and all that was in it.
func (w *walker) deleted(lo dir, st unix.Stat_t, name, path string, depth int) error {
	w.add(Difference{Change: Change{Path: path, Kind: Deleted, OldMode: safefile.ModeOf(uint32(st.Mode))},
		Lower: safefile.StatOf(&st), Seen: true})
	if isDir(st) {
		return w.deletedIn(lo, name, path, depth)
	}
	return nil
}

func (w *walker) deletedIn(lo dir, name, path string, depth int) error {
	if err := w.walking.Err(); err != nil {
		return err
	}
	if depth+1 >= w.o.MaxDepth {
		w.tooDeep(path)
		return nil
	}
	sub, err := lo.sub(name)
	if err != nil {
		if err != unix.ENOENT && err != unix.ENOTDIR {
			w.unreadable(path)
		}
		return nil
	}
	defer sub.close()
	names, more, err := sub.names(w.room())
	if err != nil {
		w.unreadable(path)
		return nil
	}
	for _, n := range names {
		p := join(path, n)
		if err := w.spend(); err != nil {
			return err
		}
		st, ok, err := sub.stat(n)
		if err != nil {
			return fmt.Errorf("%q in the lower directory: %w", p, err)
		}
		if ok {
			if err := w.deleted(sub, st, n, p, depth+1); err != nil {
				return err
			}
		}
	}
	if more {
		return w.stop()
	}
	return nil
}
