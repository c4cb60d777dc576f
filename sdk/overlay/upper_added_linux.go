package overlay

import (
	"fmt"

	"golang.org/x/sys/unix"
)

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

// into goes one level down, with lo's directory of the same name if it has one. A goroutine of its own takes that where
// one is free, and the directories are open before it starts.
func (w *walker) into(up, lo dir, name, path string, depth int) error {
	if depth+1 >= w.o.MaxDepth {
		w.tooDeep(path)
		return nil
	}
	subUp, err := up.sub(name)
	if err != nil {
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
		return w.merge(subUp, subLo, path, depth+1)
	}
	if w.walkers.TryGo(merge) {
		return nil
	}
	return merge()
}

// added reports something new and all that is in it.
func (w *walker) added(up, lo dir, st unix.Stat_t, name, path string, depth int) error {
	w.add(Difference{Change: Change{Path: path, Kind: Added, NewMode: modeOf(st.Mode), Size: sizeOf(st)}, Seen: !lo.unread})
	if isDir(st) {
		return w.into(up, dir{unread: lo.unread}, name, path, depth)
	}
	return nil
}

// deleted reports something of the lower layer that is gone, and all that was in it.
func (w *walker) deleted(lo dir, st unix.Stat_t, name, path string, depth int) error {
	w.add(Difference{Change: Change{Path: path, Kind: Deleted, OldMode: modeOf(st.Mode)}, Lower: statOf(&st), Seen: true})
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
