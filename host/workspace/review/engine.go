package review

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// engine takes the paths of a project from one state to another.
type engine struct {
	project *dir
	prefix  string // of the names of temporary files, which lie beside their targets
	// careful is for putting a project back: a path may be in either state already, or in between, and one that is in
	// none of them is left alone and reported.
	careful bool
	left    []string // what was left alone, and why

	at func(string) // shows tests where it is
}

// move is one step in the direction that is wanted.
type move struct {
	number   int
	path     string
	from, to state
	content  func() (*blob, error) // of to; nil when it is no file, or has the content of from
}

// run does all moves: first what goes, the deepest first, then directories, then what comes, and last the permissions
// of directories, because one of them may forbid the rest. moves are in the order of their paths.
func (e *engine) run(ctx context.Context, moves []*move) error {
	chmodded := map[*move]bool{}
	for _, m := range moves {
		if m.from.Type == Directory && m.to.Type == Directory && m.to.Mode&0o200 != 0 && m.from.Mode&0o200 == 0 {
			chmodded[m] = true
			if err := e.do(ctx, m, e.chmod); err != nil {
				return err
			}
		}
	}
	for _, m := range slices.Backward(moves) {
		if goes(m) {
			if err := e.do(ctx, m, e.remove); err != nil {
				return err
			}
		}
	}
	for _, m := range moves {
		if m.to.Type == Directory && m.from.Type != Directory {
			if err := e.do(ctx, m, e.mkdir); err != nil {
				return err
			}
		}
	}
	for _, m := range moves {
		var err error
		switch {
		case m.to.Type == File && m.content == nil:
			err = e.do(ctx, m, e.chmod)
		case m.to.Type == File || m.to.Type == Symlink:
			err = e.do(ctx, m, e.place)
		}
		if err != nil {
			return err
		}
	}
	for _, m := range slices.Backward(moves) {
		if m.to.Type == Directory && (m.from.Type != Directory || m.from.Mode != m.to.Mode) && !chmodded[m] {
			if err := e.do(ctx, m, e.chmod); err != nil {
				return err
			}
		}
	}
	return nil
}

// goes reports whether what stands at the path must go first: it is not replaced in one go.
func goes(m *move) bool {
	return m.from.Type != Nothing && (m.to.Type == Nothing || (m.from.Type == Directory) != (m.to.Type == Directory))
}

// errChanged says that a path is not what it was when the plan was made.
var errChanged = errors.New("it changed in the project meanwhile")

func (e *engine) do(ctx context.Context, m *move, f func(*move) error) error {
	if ctx.Err() != nil && !e.careful {
		return context.Cause(ctx)
	}
	err := f(m)
	if err == nil {
		return nil
	}
	if e.careful {
		e.left = append(e.left, fmt.Sprintf("%s: %v", Quote(m.path), err))
		return nil
	}
	return fmt.Errorf("%s: %w", Quote(m.path), err)
}

func (e *engine) point(what string, m *move) {
	if e.at != nil {
		e.at(what + " " + m.path)
	}
}

func (e *engine) temp(m *move) string { return e.prefix + strconv.Itoa(m.number) }

// remove takes away a file, a link or an empty directory.
func (e *engine) remove(m *move) error {
	fd, name, now, err := e.here(m)
	if err != nil || now.Type == Nothing && e.careful {
		return err
	}
	if done, err := e.settled(m, now); done || err != nil {
		return err
	}
	e.point("remove", m)
	if m.from.Type == Directory {
		err := unix.Unlinkat(fd, name, unix.AT_REMOVEDIR)
		e.project.forget()
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			err = errors.New("there is something in it that is not part of this apply")
		}
		return err
	}
	// It is moved aside first, so that what goes is for sure what was looked at.
	tmp := e.temp(m)
	err = renameNew(fd, name, tmp)
	if unsupported(err) {
		return unix.Unlinkat(fd, name, 0)
	}
	if err != nil {
		return err
	}
	e.point("removing", m)
	if moved, err := lookAt(fd, tmp); err != nil || moved.Type != now.Type || !moved.Moved(now.Stat) {
		return errors.Join(errChanged, err, renameNew(fd, tmp, name))
	}
	return unix.Unlinkat(fd, tmp, 0)
}

// mkdir makes a directory that only we may enter until its permissions are set.
func (e *engine) mkdir(m *move) error {
	fd, name, now, err := e.here(m)
	if err != nil {
		return err
	}
	if now.Type == Directory && e.careful {
		return nil
	}
	if now.Type != Nothing {
		return errChanged
	}
	e.point("mkdir", m)
	uid, gid, err := owner(fd, m, Node{})
	if err != nil {
		return err
	}
	if err := unix.Mkdirat(fd, name, 0o700); err != nil {
		return err
	}
	defer e.project.forget()
	// At once, for what comes into it takes its owner from it.
	if err := chown(uid, gid, func() error {
		return unix.Fchownat(fd, name, uid, gid,
			unix.AT_SYMLINK_NOFOLLOW)
	}); err != nil || len(m.to.Xattrs) == 0 {
		return err
	}
	d, err := safefile.OpenDirAt(fd, name)
	if err != nil {
		return err
	}
	defer unix.Close(d)
	return writeXattrs(d, m.to.Xattrs)
}

// place puts a file or a link there, in one go.
func (e *engine) place(m *move) error {
	fd, name, now, err := e.here(m)
	if err != nil {
		return err
	}
	expect := m.from
	if goes(m) {
		expect = state{} // it was taken away before
	}
	if e.careful {
		if now.Type != Nothing || m.from.Type != Nothing && !goes(m) {
			if done, err := e.settled(m, now); done || err != nil {
				return err
			}
		}
	} else if !is(expect, now) {
		return errChanged
	}
	e.point("stage", m)
	tmp := e.temp(m)
	if err := e.write(fd, tmp, m, now); err != nil {
		return errors.Join(err, ignoreMissing(unix.Unlinkat(fd, tmp, 0)))
	}
	e.point("place", m)
	if err := e.swap(fd, tmp, name, now); err != nil {
		return errors.Join(err, ignoreMissing(unix.Unlinkat(fd, tmp, 0)))
	}
	e.point("placed", m)
	return nil
}

// swap gives the staged file its name. What it replaces must be what was looked at: it is checked after the two changed
// names, and they change back when it is not.
func (e *engine) swap(fd int, tmp, name string, now Node) error {
	if now.Type == Nothing {
		err := renameNew(fd, tmp, name)
		if unsupported(err) {
			if err = unix.Linkat(fd, tmp, fd, name, 0); err == nil {
				err = unix.Unlinkat(fd, tmp, 0)
			}
		}
		if errors.Is(err, unix.EEXIST) {
			err = errChanged
		}
		return err
	}
	err := exchange(fd, tmp, name)
	if unsupported(err) {
		last, err := lookAt(fd, name)
		if err != nil || last.Type != now.Type || !last.Untouched(now.Stat) {
			return errors.Join(errChanged, err)
		}
		return unix.Renameat(fd, tmp, fd, name)
	}
	if err != nil {
		return err
	}
	if old, err := lookAt(fd, tmp); err != nil || old.Type != now.Type || !old.Moved(now.Stat) {
		return errors.Join(errChanged, err, exchange(fd, tmp, name))
	}
	return unix.Unlinkat(fd, tmp, 0)
}

// chmod sets the permissions of what is there: of a file that only changes these, or of a directory.
func (e *engine) chmod(m *move) error {
	fd, name, now, err := e.here(m)
	if err != nil {
		return err
	}
	if now.Type != m.to.Type {
		return errChanged
	}
	if now.Mode == m.to.Mode && m.from.Type == m.to.Type {
		return nil
	}
	if m.from.Type == m.to.Type && now.Mode != m.from.Mode && !(e.careful && m.to.Type == Directory) {
		return errChanged
	}
	if !e.careful && m.to.Type == File && !now.Untouched(m.from.Stat) {
		return errChanged
	}
	e.point("chmod", m)
	return chmodAt(fd, name, safefile.Bits(m.to.Mode))
}

// here opens the directory of a move's path and looks at what stands there.
func (e *engine) here(m *move) (fd int, name string, now Node, err error) {
	fd, name, err = e.project.parent(m.path)
	if err == nil {
		now, err = lookAt(fd, name)
	} else if e.careful && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, errLinked)) &&
		m.to.Type == Nothing {
		return -1, "", Node{}, nil
	}
	return fd, name, now, err
}

// settled looks, before a path is changed, at whether it must be: in a careful run it may be what it shall become. It
// is an error when it is neither that nor what it was expected to be.
func (e *engine) settled(m *move, now Node) (bool, error) {
	if !e.careful {
		if !is(m.from, now) {
			return false, errChanged
		}
		return false, nil
	}
	switch {
	case e.equal(m, m.to, now):
		return true, nil
	case e.equal(m, m.from, now):
		return false, nil
	}
	return false, errors.New("it was changed by somebody else since, and is left as it is")
}

// is reports whether a path is untouched since its state was taken.
func is(s state, now Node) bool {
	if s.Type != now.Type {
		return false
	}
	switch s.Type {
	case File:
		return s.Untouched(now.Stat)
	case Symlink:
		return s.Link == now.Link
	case Directory:
		return s.Mode == now.Mode
	}
	return true
}

// equal reports whether what stands at a path is a state, by its content.
func (e *engine) equal(m *move, s state, now Node) bool {
	if s.Type != now.Type {
		return false
	}
	switch s.Type {
	case Symlink:
		return s.Link == now.Link
	case Directory, Nothing:
		return true // its permissions are set last
	}
	if s.placed() && s.Untouched(now.Stat) {
		return true
	}
	if now.Size != s.Size || s.SHA256 == "" {
		return s.SHA256 == "" && s.Moved(now.Stat)
	}
	sum, err := hashFile(e.project, m.path)
	return err == nil && sum == s.SHA256
}

// sweep removes the temporary files that an interrupted run left. moves go back: from what the run wanted, to what was
// there before. A temporary file may also be what stood at the target, which changed names with it just then.
func (e *engine) sweep(moves []*move, prefix string) {
	for _, m := range moves {
		fd, name, err := e.project.parent(m.path)
		if err != nil {
			continue // the directory is not there, so nothing is in it
		}
		tmp := prefix + strconv.Itoa(m.number)
		aside, err := lookAt(fd, tmp)
		if err != nil || aside.Type == Nothing {
			continue
		}
		now, err := lookAt(fd, name)
		if err != nil {
			continue
		}
		was := aside.Type == m.to.Type && m.to.Moved(aside.Stat) // it is the old version
		switch {
		case now.Type == Nothing && (was || m.from.Type == Nothing):
			if renameNew(fd, tmp, name) == nil {
				continue
			}
		case was || now.Type == m.to.Type && m.to.Moved(now.Stat):
			// The old version is in its place, or in the store: what is aside is not needed.
		case m.from.Type != Nothing && e.equal(m, m.from, now):
			// Neither is the old version: somebody changed the target in the moment before it was replaced.
			if exchange(fd, tmp, name) != nil {
				continue
			}
		}
		_ = unix.Unlinkat(fd, tmp, 0)
	}
}

func unsupported(err error) bool {
	return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)
}

func ignoreMissing(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// Bounds of what is taken from a sandbox.
const (
	maxFileBytes  = 2 << 30 // of one file
	maxStageBytes = 8 << 30 // of all files of a review
	inMemory      = 64 << 10
	maxMemory     = 64 << 20
)

// stage holds the contents of a sandbox's files as they were read, small ones in memory, the others on disk.
type stage struct {
	dir    string
	files  int
	bytes  int64
	memory int64
}

func newStage(parent string) (*stage, error) {
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, stagePrefix+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return nil, err
	}
	return &stage{dir: dir}, nil
}

// stagePrefix begins the name of a stage's directory; the process and a random number follow.
const stagePrefix = "stage-"

func (s *stage) close() { os.RemoveAll(s.dir) }

// blob is content that cannot change any more.
type blob struct {
	size   int64
	sha256 string
	data   []byte // when path is empty
	path   string
}

func (b *blob) open() (io.ReadCloser, error) {
	if b.path != "" {
		return os.Open(b.path)
	}
	return io.NopCloser(bytes.NewReader(b.data)), nil
}

// put takes in what copy writes. size is what is expected.
func (s *stage) put(size int64, copy func(io.Writer, int64) (safefile.Copied, error)) (*blob, error) {
	limit := min(maxFileBytes, maxStageBytes-s.bytes)
	if size > limit {
		return nil, &safefile.Error{Reason: safefile.ReasonTooBig,
			Detail: fmt.Sprintf("it has %d bytes; %d of one file and %d of all together can be", size, maxFileBytes,
				int64(maxStageBytes))}
	}
	b := &blob{}
	var got safefile.Copied
	if size <= inMemory && s.memory+size <= maxMemory {
		var buf bytes.Buffer
		var err error
		if got, err = copy(&buf, inMemory); err != nil {
			return nil, err
		}
		b.data = buf.Bytes()
		s.memory += int64(len(b.data))
	} else {
		s.files++
		b.path = filepath.Join(s.dir, strconv.Itoa(s.files))
		f, err := os.OpenFile(b.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		got, err = copy(f, limit)
		if err := errors.Join(err, f.Close()); err != nil {
			os.Remove(b.path)
			return nil, err
		}
	}
	b.size, b.sha256 = got.Size, got.SHA256
	s.bytes += b.size
	return b, nil
}

// read takes the contents of all changed files into a stage.
func (r *Review) read(ctx context.Context, parent string) (err error) {
	if r.stage, err = newStage(parent); err != nil {
		return fmt.Errorf("stage the changes: %w", err)
	}
	for _, c := range r.Changes {
		if !c.hasContent() {
			continue
		}
		b, err := r.stage.put(c.New.Size, func(w io.Writer, max int64) (safefile.Copied, error) {
			return r.source.copy(ctx, w, c.Path, max)
		})
		var bad *safefile.Error
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &bad):
			c.refuse(judge.Unreadable, "the sandbox's file cannot be taken: "+bad.Detail)
			continue
		case err != nil:
			return fmt.Errorf("stage %q: %w", c.Path, err)
		}
		c.blob = b
		c.New.Size, c.New.SHA256 = b.size, b.sha256
	}
	return nil
}

// backup copies what will be replaced or removed, and makes sure that it is what the plan was made for.
func (l *Ledger) backup(ctx context.Context, dir string, project *dir, j *journal) error {
	blobs := 0
	for _, s := range j.Steps {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		now, err := project.look(s.Path)
		if err == nil && !is(s.Old, now) {
			err = errChanged
		}
		if err == nil && s.Old.Type == File && !(s.New.Type == File && s.content == nil) {
			blobs++
			s.Old.Blob = blobs
			err = keep(filepath.Join(dir, oldDir, strconv.Itoa(blobs)), project, s)
			j.OldBytes += s.Old.Size
		}
		if err == nil && s.Old.Type == Directory && s.New.Type != Directory {
			err = keepXattrs(project, s)
		}
		if err != nil {
			return fmt.Errorf("nothing was applied: %s: %w", Quote(s.Path), err)
		}
	}
	return nil
}

// keep copies the project's version of one file.
func keep(to string, project *dir, s *step) error {
	src, now, err := project.open(s.Path)
	if err != nil {
		return err
	}
	defer src.Close()
	if !s.Old.Untouched(now.Stat) {
		return errChanged
	}
	if s.Old.Xattrs, err = readXattrs(int(src.Fd())); err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), src)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(src.Fd()), &st); err != nil {
		return err
	}
	if !now.Untouched(safefile.StatOf(&st)) || n != s.Old.Size {
		return errChanged
	}
	sum := hex.EncodeToString(h.Sum(nil))
	if s.Old.SHA256 != "" && s.Old.SHA256 != sum {
		return errChanged
	}
	s.Old.SHA256 = sum
	return nil
}

// keepXattrs notes the attributes of a directory that goes.
func keepXattrs(project *dir, s *step) error {
	fd, name, err := project.parent(s.Path)
	if err != nil {
		return err
	}
	d, err := safefile.OpenDirAt(fd, name)
	if errors.Is(err, unix.EACCES) {
		return nil // what we may not look into has nothing of ours
	}
	if err != nil {
		return err
	}
	defer unix.Close(d)
	s.Old.Xattrs, err = readXattrs(d)
	return err
}

// write makes the temporary file or link, complete but for its name.
func (e *engine) write(fd int, tmp string, m *move, old Node) error {
	if err := ignoreMissing(unix.Unlinkat(fd, tmp, 0)); err != nil {
		return err
	}
	uid, gid, err := owner(fd, m, old)
	if err != nil {
		return err
	}
	if m.to.Type == Symlink {
		if err := unix.Symlinkat(m.to.Link, fd, tmp); err != nil {
			return err
		}
		return chown(uid, gid, func() error { return unix.Fchownat(fd, tmp, uid, gid, unix.AT_SYMLINK_NOFOLLOW) })
	}
	b, err := m.content()
	if err != nil {
		return err
	}
	src, err := b.open()
	if err != nil {
		return err
	}
	defer src.Close()
	out, err := unix.Openat(fd, tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(out), tmp)
	sum := sha256.New()
	if _, err = io.Copy(io.MultiWriter(f, sum), src); err == nil && hex.EncodeToString(sum.Sum(nil)) != m.to.SHA256 {
		err = errors.New("its content in hutch's store is damaged")
	}
	if err == nil {
		err = chown(uid, gid, func() error { return f.Chown(uid, gid) })
	}
	if err == nil {
		err = writeXattrs(out, m.xattrs())
	}
	if err == nil {
		// after the owner: a change of it clears set-id bits; an access control list sets the mode
		err = unix.Fchmod(out, safefile.Bits(m.to.Mode))
	}
	if err == nil && m.to.Mtime != 0 {
		err = setTimes(fd, tmp, m.to.Mtime)
	}
	return errors.Join(err, f.Close())
}

// xattrs are the attributes of a new file: those of the version that is put back, else of the one it replaces.
func (m *move) xattrs() []xattr {
	if m.to.placed() {
		return m.to.Xattrs
	}
	if m.from.Type != File {
		return nil
	}
	return m.from.Xattrs
}

// owner is whose a new file is: that of the version which is put back, else of the one it replaces, else of the
// directory it lies in. Never the sandbox's.
func owner(fd int, m *move, old Node) (uid, gid int, err error) {
	switch {
	case m.to.placed():
		return int(m.to.UID), int(m.to.GID), nil
	case old.placed() && os.Geteuid() != 0: // the owner cannot be kept then, but the group can
		return os.Geteuid(), int(old.GID), nil
	case old.placed():
		return int(old.UID), int(old.GID), nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, 0, err
	}
	if uint32(st.Mode)&unix.S_ISGID == 0 && os.Geteuid() != 0 {
		return os.Geteuid(), os.Getegid(), nil
	}
	return int(st.Uid), int(st.Gid), nil
}

// chown gives a file its owner as far as we may. Only root can give files away; a user's are the user's anyway, and a
// group that is not the user's is not worth failing for.
func chown(uid, gid int, f func() error) error {
	if os.Geteuid() == 0 {
		return f()
	}
	if uid == os.Geteuid() && gid != os.Getegid() {
		_ = f()
	}
	return nil
}

// setTimes sets when a file was written, to the nanosecond.
func setTimes(fd int, name string, mtime int64) error {
	t := unix.NsecToTimespec(mtime)
	return unix.UtimesNanoAt(fd, name, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW)
}

// chmodAt sets permissions without following a link, also of what we may not read.
func chmodAt(fd int, name string, mode uint32) error {
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	f, err := unix.Openat(fd, name, flags, 0)
	if errors.Is(err, unix.EACCES) {
		return unix.Fchmodat(fd, name, mode, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		return err
	}
	defer unix.Close(f)
	return unix.Fchmod(f, mode)
}

// hashFile is the hash of a file of the project.
func hashFile(d *dir, path string) (string, error) {
	f, _, err := d.open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
