package overlay

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Dir is a directory that [Union.Scan] looks at.
type Dir struct {
	Path string // relative to the union's top; "." for the top itself
	// Err says why its names are not known; nil when they are.
	Err error

	u     *Union
	p     pair
	depth int
	users atomic.Int32 // tasks that still need the descriptors
}

// path is the path of a name in the directory.
func (d *Dir) path(name string) string {
	if d.Path == "." {
		return name
	}
	return d.Path + "/" + name
}

func (d *Dir) leave() {
	if d.users.Add(-1) == 0 {
		d.p.close()
	}
}

// Lstat looks at a name of the directory.
func (d *Dir) Lstat(n Name) (Node, error) {
	e := Node{Path: d.path(n.Name)}
	var st unix.Stat_t
	if err := unix.Fstatat(d.p.fd(n.Layer), n.Name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
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
		if e.Target, err = readLink(d.p.fd(n.Layer), n.Name); err != nil {
			return e, &fs.PathError{Op: "readlink", Path: e.Path, Err: err}
		}
	}
	return e, nil
}

// ReadFile reads a name of the directory that is a regular file with one link and at most max bytes, into buf if it has
// room. What may not be read is a *[safefile.Error].
func (d *Dir) ReadFile(n Name, max int64, buf []byte) ([]byte, error) {
	fd, st, err := openFile(d.p.fd(n.Layer), n.Name, d.path(n.Name), max)
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
	if o.Workers <= 0 {
		o.Workers = min(runtime.GOMAXPROCS(0), 8)
	}
	top, err := u.findDir(dir)
	if err != nil {
		return &fs.PathError{Op: "scan", Path: dir, Err: err}
	}
	s := &scan{u: u, ctx: ctx, o: o, visit: visit}
	s.idle.L = &s.mu
	s.left.Store(int64(o.MaxEntries))
	top.users.Store(1)
	s.stack = []task{{d: top, fresh: true}}
	stop := context.AfterFunc(ctx, func() { s.fail(context.Cause(ctx)) })
	defer stop()
	var wg sync.WaitGroup
	for range o.Workers {
		wg.Go(s.work)
	}
	wg.Wait()
	for _, t := range s.stack { // left over after an error
		if t.d != nil {
			t.d.leave()
		}
	}
	return s.err
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
		if _, _, err := u.look(p.dir(), p.name); err != nil {
			return nil, err
		}
		d.p, err = u.enter(p.dir(), p.name)
		return d, err
	}
	d.p = pair{-1, -1, u.top.xwhite}
	for from, to := range map[int]*int{u.top.up: &d.p.up, u.top.lo: &d.p.lo} {
		if from < 0 {
			continue
		}
		// A descriptor of its own: a directory that is being read has one position.
		if *to, err = openDir(from, "."); err != nil {
			d.p.close()
			return nil, err
		}
	}
	return d, nil
}

// task is a directory to be opened, one to be listed, or names to be visited.
type task struct {
	path   string // to be opened: of a directory that has a part in these layers
	up, lo bool
	depth  int

	d     *Dir
	fresh bool // to be listed
	names []Name
}

// scan is one run of Scan. Its tasks are a stack, so that the most directories known at a time are about those of one
// path; a descriptor is open only while a directory is being worked on.
type scan struct {
	u     *Union
	ctx   context.Context
	o     ScanOptions
	visit func(*Dir, []Name) error
	left  atomic.Int64 // names that may still be met

	mu    sync.Mutex
	idle  sync.Cond
	stack []task
	busy  int
	err   error
}

func (s *scan) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.idle.Broadcast()
}

func (s *scan) push(more []task) {
	s.mu.Lock()
	s.stack = append(s.stack, more...)
	s.mu.Unlock()
	if len(more) > 1 {
		s.idle.Broadcast()
	} else {
		s.idle.Signal()
	}
}

// next waits for a task; there is none when all is done or anything failed.
func (s *scan) next(wasBusy bool) (task, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if wasBusy {
		s.busy--
	}
	for len(s.stack) == 0 && s.busy > 0 && s.err == nil {
		s.idle.Wait()
	}
	if len(s.stack) == 0 || s.err != nil {
		s.idle.Broadcast()
		return task{}, false
	}
	t := s.stack[len(s.stack)-1]
	s.stack = s.stack[:len(s.stack)-1]
	s.busy++
	return t, true
}

func (s *scan) work() {
	buf := make([]byte, 64<<10)
	busy := false
	for {
		t, ok := s.next(busy)
		if !ok {
			return
		}
		busy = true
		if err := s.do(t, buf); err != nil {
			s.fail(err)
		}
	}
}

func (s *scan) do(t task, buf []byte) error {
	d := t.d
	switch {
	case d == nil:
		d = s.open(t)
		d.users.Store(1)
		defer d.leave()
		return s.list(d, buf)
	case t.fresh:
		defer d.leave()
		return s.list(d, buf)
	}
	defer d.leave()
	return s.visit(d, t.names)
}

// open opens the directory of a task.
func (s *scan) open(t task) *Dir {
	d := &Dir{Path: t.path, u: s.u, depth: t.depth, p: pair{-1, -1, false}}
	from := pair{-1, -1, false}
	if t.up {
		from.up = s.u.top.up
	}
	if t.lo {
		from.lo = s.u.top.lo
	}
	d.p, d.Err = s.u.enter(from, t.path)
	return d
}

// list reads the names of a directory and makes tasks of them. The first part is visited at once.
func (s *scan) list(d *Dir, buf []byte) error {
	var names []Name
	if d.Err == nil {
		names, d.Err = s.u.names(d.p, buf, int(s.left.Load())+1)
	}
	if d.Err != nil {
		if absent(d.Err) && d.Path != "." {
			return nil // gone since it was listed
		}
		d.Err = &fs.PathError{Op: "read", Path: d.Path, Err: d.Err}
		return s.visit(d, nil)
	}
	if s.left.Add(-int64(len(names))) < 0 {
		return errStop
	}
	kept, subs := names[:0], []task(nil)
	for _, n := range names {
		p := d.path(n.Name)
		if s.o.Skip != nil && s.o.Skip(p, n.Type == fs.ModeDir) {
			continue
		}
		kept = append(kept, n)
		if n.Type == fs.ModeDir && d.depth+1 < s.o.Depth {
			subs = append(subs, task{path: p, depth: d.depth + 1, up: n.Layer == Upper, lo: d.p.lo >= 0})
		}
	}
	for at := chunk; at < len(kept); at += chunk {
		d.users.Add(1)
		subs = append(subs, task{d: d, names: kept[at:min(at+chunk, len(kept))]})
	}
	if len(subs) > 0 {
		s.push(subs)
	}
	return s.visit(d, kept[:min(chunk, len(kept))])
}

// names lists a directory of the union, at most about most names.
func (u *Union) names(p pair, buf []byte, most int) ([]Name, error) {
	var out []Name
	var seen map[string]bool
	if p.up >= 0 {
		var err error
		if out, err = readNames(p.up, Upper, buf, most, nil, nil); err != nil {
			return nil, err
		}
		if p.lo >= 0 {
			seen = make(map[string]bool, len(out))
			for _, n := range out {
				seen[n.Name] = true
			}
		}
	}
	if p.lo >= 0 {
		var err error
		if out, err = readNames(p.lo, Lower, buf, most, out, seen); err != nil {
			return nil, err
		}
	}
	return u.settle(p, out), nil
}

// settle finds out types that the directory did not tell, and leaves out marks.
func (u *Union) settle(p pair, names []Name) []Name {
	kept := names[:0]
	for _, n := range names {
		mark := u.hiding && (n.Type == fs.ModeDevice|fs.ModeCharDevice || p.xwhite && n.Layer == Upper && n.Type == 0)
		if mark || n.Type == fs.ModeIrregular {
			var st unix.Stat_t
			if err := unix.Fstatat(p.fd(n.Layer), n.Name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				continue // gone since it was listed
			}
			if n.Type = modeOf(st.Mode).Type(); u.hiding && isDevice0(st) || n.Layer == Upper && u.isWhiteout(p, st, n.Name) {
				continue
			}
		}
		kept = append(kept, n)
	}
	return kept
}

var direntTypes = [...]fs.FileMode{
	unix.DT_REG: 0, unix.DT_DIR: fs.ModeDir, unix.DT_LNK: fs.ModeSymlink, unix.DT_FIFO: fs.ModeNamedPipe, unix.DT_SOCK: fs.ModeSocket,
	unix.DT_CHR: fs.ModeDevice | fs.ModeCharDevice, unix.DT_BLK: fs.ModeDevice, unix.DT_UNKNOWN: fs.ModeIrregular,
}

// readNames appends the names of a directory that are not in seen. With more than most of them it stops.
func readNames(fd int, layer Layer, buf []byte, most int, out []Name, seen map[string]bool) ([]Name, error) {
	for len(out) <= most {
		n, err := unix.Getdents(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return out, err
		}
		if n == 0 {
			break
		}
		// struct linux_dirent64: inode 8, offset 8, length 2, type 1, name with a zero byte.
		for b := buf[:n]; len(b) >= 20; {
			size := int(binary.NativeEndian.Uint16(b[16:]))
			if size < 20 || size > len(b) {
				return out, unix.EIO
			}
			name, kind := b[19:size], b[18]
			for i, c := range name {
				if c == 0 {
					name = name[:i]
					break
				}
			}
			b = b[size:]
			if string(name) == "." || string(name) == ".." || seen[string(name)] {
				continue
			}
			t := fs.ModeIrregular
			if int(kind) < len(direntTypes) && kind != unix.DT_UNKNOWN {
				t = direntTypes[kind]
			}
			out = append(out, Name{string(name), layer, t})
		}
	}
	return out, nil
}
