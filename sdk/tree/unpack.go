package tree

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/safefile"
	"github.com/hutch-run/hutch/sdk/safepath"
)

// Unpack merges the tree in r into dst: what is there stays, files and symbolic links of the same name are replaced.
// The stream may be hostile: names that are unsafe or collide, hard links, devices, symbolic links that lead out of dst
// however indirectly, and whatever exceeds the caps refuse the whole tree. Modes lose set-id bits and writing for group
// and others; the owner may always read and write. Owners, times and extended attributes are not taken over.
//
// Everything is written to its own directory in dst first and moved into place when the whole stream was good, so
// an error leaves dst as it was; only one that comes while things are moved may leave a part of them there.
//
// All is done on the calling goroutine, so that a thread with other rights may call it.
func Unpack(ctx context.Context, r io.Reader, dst *os.Root, c Caps) (Summary, error) {
	return UnpackIf(ctx, r, dst, c, nil)
}

// UnpackIf is [Unpack] that asks admit, unless it is nil, once the whole tree is in its own directory and before
// anything is moved into place. An error of admit leaves dst as it was.
func UnpackIf(ctx context.Context, r io.Reader, dst *os.Root, c Caps, admit func(stage *os.Root) error) (Summary,
	error) {
	c = c.withDefaults()
	plain, done, err := decompress(&reader{ctx, r})
	if err != nil {
		return Summary{}, err
	}
	defer done()
	name := stagePrefix + rand.Text()
	if err := dst.Mkdir(name, 0o700); err != nil {
		return Summary{}, fmt.Errorf("unpack: %w", err)
	}
	stage, err := safefile.OpenRoot(dst, name)
	if err != nil {
		return Summary{}, errors.Join(err, dst.Remove(name))
	}
	defer stage.Close()
	top, err := stage.Open(".")
	if err != nil {
		return Summary{}, errors.Join(err, dst.Remove(name))
	}
	defer top.Close()
	u := &unpacker{stage: stage, caps: c, at: ".", here: top, top: top, modes: map[fs.FileMode]bool{},
		buf: make([]byte, 256<<10)}
	u.names.Rules.MaxDepth = c.Depth
	err = u.all(tar.NewReader(&bounded{r: plain, left: c.stream()}))
	u.leave()
	if err == nil && admit != nil {
		err = admit(stage)
	}
	if err == nil {
		m := merger{dst: dst, stage: name}
		if err = m.check("."); err == nil {
			err = m.move(".")
		}
	}
	// The mode of a directory that was made always lets its owner remove what is in it.
	if e := dst.RemoveAll(name); e != nil {
		err = errors.Join(err, e)
	}
	if err != nil {
		return Summary{}, err
	}
	return u.sum, nil
}

// stagePrefix begins the name of the directory in which a tree waits until it is whole.
const stagePrefix = ".hutch-unpack-"

func (c Caps) withDefaults() Caps {
	if c.Entries <= 0 {
		c.Entries = DefaultMaxEntries
	}
	if c.Bytes <= 0 {
		c.Bytes = DefaultMaxBytes
	}
	if c.File <= 0 {
		c.File = c.Bytes
	}
	if c.Depth <= 0 {
		c.Depth = safepath.DefaultMaxDepth
	}
	return c
}

// stream is how long a tar stream within the caps can be: its content, and for each entry a header, padding, and an
// extended header with two names of the greatest length. It bounds what is no entry at all, such as a compressed
// gigabyte of headers without a file.
func (c Caps) stream() int64 {
	const most = 1 << 60
	if c.Bytes > most {
		return most
	}
	return c.Bytes + int64(c.Entries)*(4*512+2*safepath.DefaultMaxLen) + 1<<20
}

// bounded ends a stream with an error when it is longer than it may be.
type bounded struct {
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errors.New("the tar stream is longer than the tree that it may hold")
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	return n, err
}

type unpacker struct {
	stage   *os.Root
	caps    Caps
	names   safepath.Set
	links   []link // made at last, so that nothing is ever written through one
	dirs    []dirMode
	entries int
	sum     Summary
	buf     []byte
	// The directory last written to stays open: the entries of one directory mostly follow each other, and an os.Root
	// looks up every element of a name.
	at   string
	here *os.File
	top  *os.File
	// Whether a file that is made with a mode has it then.
	modes map[fs.FileMode]bool
}

type link struct{ name, target string }

type dirMode struct {
	name string
	mode fs.FileMode
}

func (u *unpacker) all(tr *tar.Reader) error {
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) { // which the checks of names say better
			return fmt.Errorf("the tar stream is broken: %w", err)
		}
		if u.entries++; u.entries > u.caps.Entries {
			return fmt.Errorf("the tree has more than %d entries", u.caps.Entries)
		}
		if err := u.entry(h, tr); err != nil {
			return err
		}
	}
	for _, l := range u.links {
		dir, err := u.enter(path.Dir(l.name))
		if err == nil {
			err = unix.Symlinkat(l.target, int(dir.Fd()), path.Base(l.name))
		}
		if err != nil {
			return fmt.Errorf("unpack %q: %w", l.name, err)
		}
	}
	for i := len(u.dirs) - 1; i >= 0; i-- {
		if err := u.stage.Chmod(u.dirs[i].name, u.dirs[i].mode); err != nil {
			return fmt.Errorf("unpack %q: %w", u.dirs[i].name, err)
		}
	}
	return nil
}

func (u *unpacker) entry(h *tar.Header, r io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil // git archive begins with one; it says nothing about files
	}
	if reason, detail := LeftOut(h); reason != "" {
		return fmt.Errorf("%q cannot be copied: %s", h.Name, detail)
	}
	name := strings.TrimPrefix(h.Name, "./")
	isDir := h.Typeflag == tar.TypeDir
	if isDir {
		name = strings.TrimSuffix(name, "/")
		if name == "" || name == "." {
			return nil
		}
	}
	add := u.names.AddFile
	if isDir {
		add = u.names.AddDir
	}
	if err := add(name); err != nil {
		return err
	}
	if first, _, _ := strings.Cut(name, "/"); strings.HasPrefix(first, stagePrefix) {
		return fmt.Errorf("%q is a name of hutch's own", name)
	}
	mode := fs.FileMode(h.Mode)&0o755 | 0o600
	switch h.Typeflag {
	case tar.TypeDir:
		u.sum.Dirs++
		u.dirs = append(u.dirs, dirMode{name, mode | 0o700})
		if err := u.stage.MkdirAll(name, 0o755); err != nil {
			return fmt.Errorf("unpack %q: %w", name, err)
		}
		return nil
	case tar.TypeReg, tar.TypeGNUSparse:
		if err := u.file(name, mode, h.Size, r); err != nil {
			return fmt.Errorf("unpack %q: %w", name, err)
		}
		return nil
	case tar.TypeSymlink:
		if err := checkTarget(name, h.Linkname); err != nil {
			return err
		}
		u.sum.Symlinks++
		u.links = append(u.links, link{name, h.Linkname})
		return nil
	}
	return fmt.Errorf("%q is neither a file, a directory nor a symbolic link", name)
}

// checkTarget refuses a symbolic link that leads out of the tree, or could. A target may climb only at its beginning,
// and only as high as the top: then every step of its resolution is inside, through whatever other links it leads,
// because each of them obeys the same rule. A ".." further in would climb from wherever a link before it has led to.
func checkTarget(name, target string) error {
	switch {
	case target == "" || strings.IndexByte(target, 0) >= 0 || len(target) > safepath.DefaultMaxLen:
		return fmt.Errorf("symbolic link %q has no usable target", name)
	case path.IsAbs(target):
		return fmt.Errorf("symbolic link %q leads out of the tree, to %.200q", name, target)
	}
	up, rest := strings.Count(name, "/"), target
	for {
		first, tail, more := strings.Cut(rest, "/")
		if first == ".." {
			up--
		} else if first != "." && first != "" {
			break
		}
		if rest = tail; !more {
			break
		}
	}
	if up < 0 {
		return fmt.Errorf("symbolic link %q leads out of the tree, to %.200q", name, target)
	}
	if strings.Contains("/"+rest+"/", "/../") {
		return fmt.Errorf("symbolic link %q climbs in the middle of its target %.200q, so it may lead out of the tree", name,
			target)
	}
	return nil
}

// enter opens the directory, making it when an entry came before its directory.
func (u *unpacker) enter(dir string) (*os.File, error) {
	if dir == u.at {
		return u.here, nil
	}
	u.leave()
	if dir == "." {
		return u.top, nil
	}
	f, err := openNow(u.stage, dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err = u.stage.MkdirAll(dir, 0o755); err == nil {
			f, err = openNow(u.stage, dir)
		}
	}
	if err != nil {
		return nil, err
	}
	u.at, u.here = dir, f
	return f, nil
}

func (u *unpacker) leave() {
	if u.here != u.top {
		u.here.Close()
	}
	u.at, u.here = ".", u.top
}

func (u *unpacker) file(name string, mode fs.FileMode, size int64, r io.Reader) error {
	if size > u.caps.File {
		return fmt.Errorf("%d bytes, at most %d are allowed in one file", size, u.caps.File)
	}
	if size > u.caps.Bytes-u.sum.Bytes {
		return fmt.Errorf("the tree has more than %d bytes", u.caps.Bytes)
	}
	dir, err := u.enter(path.Dir(name))
	if err != nil {
		return err
	}
	// O_EXCL follows no link, and the name is one element, so this needs nothing of what an os.Root does at each open.
	fd, err := unix.Openat(int(dir.Fd()), path.Base(name), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC,
		uint32(mode))
	if err != nil {
		return err
	}
	n, err := CopySparse(fd, r, u.buf)
	if err == nil {
		err = u.chmod(fd, mode)
	}
	if cerr := unix.Close(fd); err == nil {
		err = cerr
	}
	u.sum.Files++
	u.sum.Bytes += n
	return err
}

// chmod gives a new file its mode where the umask has kept it from having it. Whether it does is found out once.
func (u *unpacker) chmod(fd int, mode fs.FileMode) error {
	right, known := u.modes[mode]
	if !known {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		right = fs.FileMode(st.Mode&0o7777) == mode
		u.modes[mode] = right
	}
	if right {
		return nil
	}
	return unix.Fchmod(fd, uint32(mode))
}

// merger moves a whole tree from its stage into the directory around it.
type merger struct {
	dst   *os.Root
	stage string // name of the stage in dst
}

// check looks for what stands in the way of the directory p of the tree, before anything is moved.
func (m merger) check(p string) error {
	return m.each(p, func(name string, isDir, there bool, old fs.FileInfo) error {
		switch {
		case !there:
			return nil
		case isDir && old.IsDir():
			return m.check(name)
		case isDir:
			return fmt.Errorf("%q is a directory in the tree, and what is there is not", name)
		case old.IsDir():
			return fmt.Errorf("%q is a directory there, and none in the tree", name)
		}
		return nil
	})
}

// move moves what is in the directory p of the tree. A name that is not there yet is moved with all that is in it.
func (m merger) move(p string) error {
	return m.each(p, func(name string, isDir, there bool, _ fs.FileInfo) error {
		if isDir && there {
			return m.move(name)
		}
		from := path.Join(m.stage, name)
		err := m.dst.Rename(from, name)
		if errors.Is(err, syscall.EXDEV) {
			err = m.copy(from, name)
		}
		return err
	})
}

// each calls fn for every name in the directory p of the tree, with what is there already.
func (m merger) each(p string, fn func(name string, isDir, there bool, old fs.FileInfo) error) error {
	dir, err := openNow(m.dst, path.Join(m.stage, p))
	if err != nil {
		return err
	}
	entries, err := dir.ReadDir(-1)
	dir.Close()
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(p, e.Name())
		old, err := m.dst.Lstat(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := fn(name, e.IsDir(), err == nil, old); err != nil {
			return err
		}
	}
	return nil
}

// copy moves what cannot be renamed, because another file system is mounted at its place.
func (m merger) copy(from, to string) error {
	st, err := m.dst.Lstat(from)
	if err != nil {
		return err
	}
	switch st.Mode().Type() {
	case fs.ModeDir:
		if err := m.dst.Mkdir(to, 0o700); err != nil {
			return err
		}
		if err := m.move(to); err != nil { // one name in the tree and outside of it

			return err
		}
		return m.dst.Chmod(to, st.Mode().Perm())
	case fs.ModeSymlink:
		target, err := m.dst.Readlink(from)
		if err != nil {
			return err
		}
		if err := m.dst.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return m.dst.Symlink(target, to)
	}
	in, err := openNow(m.dst, from)
	if err != nil {
		return err
	}
	defer in.Close()
	if now, err := in.Stat(); err != nil || !os.SameFile(now, st) {
		return errors.Join(fmt.Errorf("%q was replaced meanwhile", to), err)
	}
	if err := m.dst.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := m.dst.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(st.Mode().Perm()), out.Close())
}

// openNow opens what is to be read, and does not wait where a FIFO took its place.
func openNow(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}
