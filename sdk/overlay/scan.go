package overlay

import (
	"context"
	"io/fs"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// Dir is a directory that [Union.Scan] looks at.
type Dir struct {
	Path string // relative to the union's top; "." for the top itself
	// Err says why its names are not known; nil when they are.
	Err error

	u     *Union
	p     pair // closed once it was visited, before the directories in it are
	depth int
}

// path is the path of a name in the directory.
func (d *Dir) path(name string) string {
	if d.Path == "." {
		return name
	}
	return d.Path + "/" + name
}

// Lstat looks at a name of the directory.
func (d *Dir) Lstat(n Name) (Node, error) {
	e := Node{Path: d.path(n.Name)}
	var st unix.Stat_t
	if err := unix.Fstatat(d.p.fd(n), n.Name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return e, &fs.PathError{Op: "lstat", Path: e.Path, Err: err}
	}
	e.fill(n.Layer, st)
	if isDir(st) && n.Layer == Upper && d.p.lo >= 0 {
		if sub, err := d.u.enter(d.p, n.Name); err == nil {
			e.Merged = sub.lo >= 0
			sub.close()
		}
	}
	if isLink(st) {
		var err error
		if e.Target, err = safefile.ReadlinkAt(d.p.fd(n), n.Name); err != nil {
			return e, &fs.PathError{Op: "readlink", Path: e.Path, Err: err}
		}
	}
	return e, nil
}

// ReadFile reads a name of the directory that is a regular file with one link and at most max bytes, into buf if it has
// room. What may not be read is a *[safefile.Error].
func (d *Dir) ReadFile(n Name, max int64, buf []byte) ([]byte, error) {
	fd, st, err := openFile(d.p.fd(n), n.Name, d.path(n.Name), max)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if need := int(st.Size) + 1; cap(buf) < need {
		buf = make([]byte, need+need/4)
	}
	// One byte more than it had shows the end without another call.
	got, err := readFull(fd, buf[:st.Size+1])
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: d.path(n.Name), Err: err}
	}
	return buf[:min(got, int(st.Size))], nil
}

// chunk is how many names of one directory are given to visit at a time, so that a large directory is shared out.
const chunk = 128

// Scan calls visit for every directory below dir, itself included, with its merged names in parts; concurrently and in
// no order. A directory that cannot be read has Err set, and no names. Symbolic links below dir are not followed; dir
// itself may be one. An error of visit ends the scan. The Dir is of no use after visit has returned.
func (u *Union) Scan(ctx context.Context, dir string, o ScanOptions, visit func(d *Dir, names []Name) error) error {
	if o.Depth <= 0 || o.Depth > DefaultMaxDepth {
		o.Depth = DefaultMaxDepth
	}
	if o.MaxEntries <= 0 {
		o.MaxEntries = DefaultMaxEntries
	}
	top, err := u.findDir(dir)
	if err != nil {
		return &fs.PathError{Op: "scan", Path: dir, Err: err}
	}
	s := &scan{u: u, o: o, visit: visit}
	s.left.Store(int64(o.MaxEntries))
	s.workers, s.ctx = errgroup.WithContext(ctx)
	s.workers.SetLimit(min(runtime.GOMAXPROCS(0), 8))
	s.workers.Go(func() error { return s.dir(top) })
	err = s.workers.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// findDir opens the directory at a path.
func (u *Union) findDir(name string) (*Dir, error) {
	p, err := u.find(name, true)
	if err != nil {
		return nil, err
	}
	defer p.close()
	d := &Dir{Path: p.path, u: u}
	if p.name != "" {
		if _, _, _, err := u.look(p.dir(), p.name); err != nil {
			return nil, err
		}
		d.p, err = u.enter(p.dir(), p.name)
		return d, err
	}
	// Descriptors of their own: a directory that is being read has one position.
	if d.p, err = u.enter(u.top, "."); err != nil {
		return nil, err
	}
	return d, nil
}

// scan is one run of Scan. A descriptor is open only while its directory is listed and visited.
type scan struct {
	u       *Union
	ctx     context.Context // ends at the first error, too
	o       ScanOptions
	visit   func(*Dir, []Name) error
	left    atomic.Int64 // names that may still be met
	workers *errgroup.Group
	buffers sync.Pool
}

// share runs f in another goroutine where one is free, else here.
func (s *scan) share(f func() error) error {
	if s.workers.TryGo(f) {
		return nil
	}
	return f()
}

// dir visits a directory, closes it, and goes on to those in it.
func (s *scan) dir(d *Dir) error {
	if s.ctx.Err() != nil {
		d.p.close()
		return context.Cause(s.ctx)
	}
	names, subs, err := s.list(d)
	var parts sync.WaitGroup
	for err == nil && len(names) > chunk {
		part := names[:chunk]
		names = names[chunk:]
		parts.Add(1)
		err = s.share(func() error {
			defer parts.Done()
			return s.visit(d, part)
		})
	}
	if err == nil && (d.Err == nil || !absent(d.Err) || d.Path == ".") { // else it is gone since it was listed
		err = s.visit(d, names)
	}
	parts.Wait()
	d.p.close()
	for _, sub := range subs {
		if err != nil {
			break
		}
		err = s.share(func() error { return s.dir(s.open(d, sub)) })
	}
	return err
}

// open opens a directory in d, which is closed, by its path.
func (s *scan) open(d *Dir, name Name) *Dir {
	sub := &Dir{Path: d.path(name.Name), u: s.u, depth: d.depth + 1, p: none}
	from := none
	if name.Layer == Upper {
		for _, up := range d.p.up { // closed by now
			from.up = append(from.up, s.u.top.up[up.layer])
		}
	}
	if d.p.lo >= 0 {
		from.lo = s.u.top.lo
	}
	sub.p, sub.Err = s.u.enter(from, sub.Path)
	return sub
}

// list reads the names of a directory, and says which of them are directories to go on to.
func (s *scan) list(d *Dir) (kept, subs []Name, err error) {
	var names []Name
	if d.Err == nil {
		buf, _ := s.buffers.Get().(*[]byte)
		if buf == nil {
			b := make([]byte, 64<<10)
			buf = &b
		}
		names, d.Err = s.u.names(d.p, *buf, int(max(s.left.Load(), 0))+1)
		s.buffers.Put(buf)
	}
	if d.Err != nil {
		if !absent(d.Err) || d.Path == "." {
			d.Err = &fs.PathError{Op: "read", Path: d.Path, Err: d.Err}
		}
		return nil, nil, nil
	}
	if s.left.Add(-int64(len(names))) < 0 {
		return nil, nil, errStop
	}
	kept = names[:0]
	for _, n := range names {
		if s.o.Skip != nil && s.o.Skip(d.path(n.Name), n.Type == fs.ModeDir) {
			continue
		}
		kept = append(kept, n)
		if n.Type == fs.ModeDir && d.depth+1 < s.o.Depth {
			subs = append(subs, n)
		}
	}
	return kept, subs, nil
}

// names lists a directory of the union, at most about most names.
func (u *Union) names(p pair, buf []byte, most int) ([]Name, error) {
	var out []Name
	var seen map[string]bool
	var err error
	add := func(fd int, as Name) {
		if err != nil {
			return
		}
		if len(out) > 0 && seen == nil {
			seen = make(map[string]bool, len(out))
		}
		for _, n := range out[len(seen):] {
			seen[n.Name] = true
		}
		out, err = readNames(fd, as, buf, most, out, seen)
	}
	for i, up := range p.up {
		add(up.fd, Name{Layer: Upper, part: i})
	}
	if p.lo >= 0 {
		add(p.lo, Name{Layer: Lower})
	}
	if err != nil {
		return nil, err
	}
	return u.settle(p, out), nil
}

// settle finds out types that the directory did not tell, and leaves out marks.
func (u *Union) settle(p pair, names []Name) []Name {
	kept := names[:0]
	for _, n := range names {
		mark := u.hiding && (n.Type == fs.ModeDevice|fs.ModeCharDevice || n.Layer == Upper && p.up[n.part].xwhite && n.Type == 0)
		if mark || n.Type == fs.ModeIrregular {
			var st unix.Stat_t
			if err := unix.Fstatat(p.fd(n), n.Name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				continue // gone since it was listed
			}
			if n.Type = safefile.ModeOf(uint32(st.Mode)).Type(); u.hiding && isDevice0(st) ||
				n.Layer == Upper && u.isWhiteout(p.up[n.part], st, n.Name) {
				continue
			}
		}
		kept = append(kept, n)
	}
	return kept
}
