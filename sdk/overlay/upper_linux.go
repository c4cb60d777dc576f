package overlay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Changes lists what upper, the upper directory of an overlay mount, changes in lower, in path order. Both may be in use.
// The directory itself is not compared, only what is in it. With ErrTooMany and ErrUnreadable come the changes found.
//
// A file that was copied up and is the same as before is no change, whatever its times. A file whose contents cannot be
// read for comparison counts as modified. The overlay must not use redirect_dir or metacopy; where their marks are found
// the list would be wrong, and Changes returns an error instead.
func Changes(ctx context.Context, lower, upper *os.Root, o Options) ([]Change, error) {
	o = o.withDefaults()
	lo, err := openTop(lower)
	if err != nil {
		return nil, fmt.Errorf("open lower directory: %w", err)
	}
	defer lo.close()
	up, err := openTop(upper)
	if err != nil {
		return nil, fmt.Errorf("open upper directory: %w", err)
	}
	defer up.close()
	w := &walker{ctx: ctx, o: o, left: o.MaxEntries, gaps: gaps{max: o}, marks: "user.overlay."}
	if o.Trusted {
		w.marks = "trusted.overlay."
	}
	w.startComparers()
	err = w.merge(up, lo, "", 0)
	w.stopComparers()
	if err == nil || errors.Is(err, ErrTooMany) {
		err = w.gaps.err()
	} else if ctx.Err() == nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return sorted(w.out), err
}

// walker is one run of Changes. One goroutine walks; a few compare contents.
type walker struct {
	ctx   context.Context
	o     Options
	left  int // entries that may still be looked at
	gaps  gaps
	marks string // prefix of the overlay's extended attributes

	mu    sync.Mutex
	out   []Change
	work  chan comparison
	group sync.WaitGroup
}

func (w *walker) add(c Change) {
	w.mu.Lock()
	w.out = append(w.out, c)
	w.mu.Unlock()
}

var errStop = fmt.Errorf("%w: entries", ErrTooMany)

// spend counts one entry.
func (w *walker) spend(n int) error {
	if w.left -= n; w.left < 0 {
		w.gaps.entries = true
		return errStop
	}
	return nil
}

// merge compares one directory of the upper layer with the same one in the lower layer, lo, which has no file when there
// is none, or when it is hidden.
func (w *walker) merge(up, lo dir, path string, depth int) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	names, more, err := up.names(w.left)
	if err != nil {
		return fmt.Errorf("%q in the upper directory: %w", path, err)
	}
	opaque := ""
	if path != "" {
		opaque = up.xattr("", w.marks+"opaque")
		if up.xattr("", w.marks+"redirect") != "" {
			return fmt.Errorf("%q in the upper directory was moved by redirect_dir: mount the overlay with redirect_dir=off", path)
		}
	}
	inUpper := make(map[string]bool)
	for _, name := range names {
		p := join(path, name)
		if w.o.ignored(p) {
			inUpper[name] = true
			continue
		}
		if err := w.spend(1); err != nil {
			return err
		}
		if opaque == "y" {
			inUpper[name] = true
		}
		if err := w.entry(up, lo, name, p, depth, opaque); err != nil {
			return err
		}
	}
	if more {
		return w.spend(w.left + 1)
	}
	if opaque != "y" || lo.f == nil {
		return nil
	}
	// The directory hides the one below it, so all that it does not have itself is gone.
	below, more, err := lo.names(w.left)
	if err != nil {
		w.gaps.unreadable(path)
		return nil
	}
	for _, name := range below {
		if inUpper[name] || w.o.ignored(join(path, name)) {
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
		return w.spend(w.left + 1)
	}
	return nil
}

// entry compares one name of the upper layer.
func (w *walker) entry(up, lo dir, name, path string, depth int, opaque string) error {
	new, ok, err := up.stat(name)
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
	if w.whiteout(up, new, name, opaque) {
		if had {
			return w.deleted(lo, old, name, path, depth)
		}
		return nil
	}
	if !had {
		return w.added(up, new, name, path, depth)
	}
	c := Change{Path: path, OldMode: modeOf(old.Mode), NewMode: modeOf(new.Mode), Size: sizeOf(new)}
	if old.Mode&unix.S_IFMT != new.Mode&unix.S_IFMT {
		c.Kind = Type
		w.add(c)
		if isDir(old) {
			if err := w.deletedIn(lo, name, path, depth); err != nil {
				return err
			}
		}
		if isDir(new) {
			return w.into(up, dir{}, name, path, depth)
		}
		return nil
	}
	switch {
	case isDir(new):
		if c.OldMode != c.NewMode {
			c.Kind = Mode
			w.add(c)
		}
		return w.into(up, lo, name, path, depth)
	case isLink(new):
		// The permissions of a symbolic link mean nothing.
		a, err1 := up.link(name)
		b, err2 := lo.link(name)
		if a != b || err1 != nil || err2 != nil {
			c.Kind = Symlink
			w.add(c)
		}
		return nil
	case isRegular(new):
		return w.file(up, lo, old, new, name, c)
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
func (w *walker) file(up, lo dir, old, new unix.Stat_t, name string, c Change) error {
	if up.xattr(name, w.marks+"metacopy") != "" {
		return fmt.Errorf("%q in the upper directory has only its metadata there: mount the overlay with metacopy=off", c.Path)
	}
	switch {
	case old.Size != new.Size:
		c.Kind = Modified
		w.add(c)
	case old.Size == 0 || old.Ino == new.Ino && old.Dev == new.Dev:
		w.same(c)
	case w.o.StatOnly:
		if old.Mtim != new.Mtim {
			c.Kind = Modified
			w.add(c)
			return nil
		}
		w.same(c)
	default:
		return w.compare(up, lo, name, c)
	}
	return nil
}

// same handles a file whose content did not change.
func (w *walker) same(c Change) {
	if c.OldMode != c.NewMode {
		c.Kind = Mode
		w.add(c)
	}
}

// whiteout reports the overlay's marks for "deleted": a character device 0:0, which a program cannot make through the
// overlay, or, in a directory marked for it, an empty file with an attribute. Names like ".wh.x" are just names.
func (w *walker) whiteout(up dir, st unix.Stat_t, name, opaque string) bool {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFCHR:
		return st.Rdev == 0
	case unix.S_IFREG:
		return opaque == "x" && st.Size == 0 && up.hasXattr(name, w.marks+"whiteout")
	}
	return false
}

// into goes one level down, with lo's directory of the same name if it has one.
func (w *walker) into(up, lo dir, name, path string, depth int) error {
	if depth+1 >= w.o.MaxDepth {
		w.gaps.tooDeep(path)
		return nil
	}
	subUp, err := up.sub(name)
	if err != nil {
		if err != unix.ENOENT && err != unix.ENOTDIR {
			w.gaps.unreadable(path)
		}
		return nil
	}
	defer subUp.close()
	var subLo dir
	if lo.f != nil {
		if subLo, err = lo.sub(name); err != nil {
			subLo = dir{}
			if err != unix.ENOENT && err != unix.ENOTDIR {
				w.gaps.unreadable(path)
			}
		}
		defer subLo.close()
	}
	return w.merge(subUp, subLo, path, depth+1)
}

// added reports something new and all that is in it.
func (w *walker) added(up dir, st unix.Stat_t, name, path string, depth int) error {
	w.add(Change{Path: path, Kind: Added, NewMode: modeOf(st.Mode), Size: sizeOf(st)})
	if isDir(st) {
		return w.into(up, dir{}, name, path, depth)
	}
	return nil
}

// deleted reports something of the lower layer that is gone, and all that was in it.
func (w *walker) deleted(lo dir, st unix.Stat_t, name, path string, depth int) error {
	w.add(Change{Path: path, Kind: Deleted, OldMode: modeOf(st.Mode)})
	if isDir(st) {
		return w.deletedIn(lo, name, path, depth)
	}
	return nil
}

func (w *walker) deletedIn(lo dir, name, path string, depth int) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if depth+1 >= w.o.MaxDepth {
		w.gaps.tooDeep(path)
		return nil
	}
	sub, err := lo.sub(name)
	if err != nil {
		if err != unix.ENOENT && err != unix.ENOTDIR {
			w.gaps.unreadable(path)
		}
		return nil
	}
	defer sub.close()
	names, more, err := sub.names(w.left)
	if err != nil {
		w.gaps.unreadable(path)
		return nil
	}
	for _, n := range names {
		p := join(path, n)
		if w.o.ignored(p) {
			continue
		}
		if err := w.spend(1); err != nil {
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
		return w.spend(w.left + 1)
	}
	return nil
}
