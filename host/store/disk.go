package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/flock"
	"github.com/hutch-run/hutch/sdk/safefile"
	"github.com/hutch-run/hutch/sdk/tree"
)

// diskError says what could not be done to which path, and marks a lack of room as [ErrFull].
func diskError(verb, path string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err // the path is said once, by us
	}
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(err, full) {
			return fmt.Errorf("%w: %s %s: %w (make room, or remove old runs, as `hutch gc --keep-runs 20` does)", ErrFull, verb,
				path, err)
		}
	}
	return fmt.Errorf("%s %s: %w", verb, path, err)
}

// privateDir makes dir where it is missing, follows symbolic links in its path once and for all, and refuses a result
// which anybody else may write: they could replace what we trust. It returns the path without links.
func privateDir(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); errors.Is(err, syscall.ENOTDIR) {
		return "",
			fmt.Errorf("%w: %s is not a directory, or below something that is not one (set HUTCH_HOME to a directory of your "+
				"own)", ErrUnsafe, dir)
	} else if err != nil {
		return "", diskError("make", dir, err)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", diskError("resolve", dir, err)
	}
	if err := checkPrivate(real); err != nil {
		return "", err
	}
	if real != dir { // a link that others may replace is as bad as a directory that they may write
		if err := checkAncestors(dir); err != nil {
			return "", err
		}
	}
	return real, checkAncestors(real)
}

func checkPrivate(dir string) error {
	fi, err := os.Lstat(dir)
	if err != nil {
		return diskError("look at", dir, err)
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case !fi.IsDir():
		return fmt.Errorf("%w: %s is not a directory", ErrUnsafe, dir)
	case ok && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%w: %s belongs to uid %d and hutch runs as uid %d (set HUTCH_HOME to a directory of your own)",
			ErrUnsafe, dir, st.Uid, os.Geteuid())
	case fi.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%w: others may write %s, mode %04o (chmod go-w %s)", ErrUnsafe, dir, fi.Mode().Perm(), dir)
	}
	return nil
}

// checkAncestors refuses a directory on the way in which anybody may rename our directory away. Group-writable ones
// are left to the administrator, who made them so.
func checkAncestors(dir string) error {
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		fi, err := os.Lstat(parent)
		if err != nil {
			return diskError("look at", parent, err)
		}
		if fi.IsDir() && fi.Mode().Perm()&0o002 != 0 && fi.Mode()&fs.ModeSticky == 0 {
			return fmt.Errorf("%w: everybody may write %s, mode %04o, which %s lies in (chmod o-w %s, or set HUTCH_HOME "+
				"elsewhere)", ErrUnsafe, parent, fi.Mode().Perm(), dir, parent)
		}
		if parent == filepath.Dir(parent) {
			return nil
		}
	}
}

// writeAtomic puts data in place as a whole or not at all. With sync the content is on the disk before it is in place;
// the caller decides when to sync the directory.
func writeAtomic(path string, data []byte, sync bool) error {
	f := newAtomicFile(path)
	defer f.abandon()
	if err := f.write(data, sync); err != nil {
		return err
	}
	return f.place()
}

// atomicFile is a file that is written first and takes its place later.
type atomicFile struct{ path, tmp string }

func newAtomicFile(path string) *atomicFile { return &atomicFile{path: path, tmp: tempPath(path)} }

func (a *atomicFile) create() (*os.File, error) {
	return os.OpenFile(a.tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
}

func (a *atomicFile) write(data []byte, sync bool) error {
	f, err := a.create()
	if err != nil {
		return diskError("write", a.path, err)
	}
	_, err = f.Write(data)
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return diskError("write", a.path, err)
	}
	return nil
}

// writeNew writes a file that must not exist, in a directory that is not in place yet.
func writeNew(path string, data []byte) error {
	return (&atomicFile{path: path, tmp: path}).write(data, false)
}

func (a *atomicFile) place() error {
	if err := os.Rename(a.tmp, a.path); err != nil {
		return diskError("write", a.path, err)
	}
	a.tmp = ""
	return nil
}

// abandon removes what was not placed.
func (a *atomicFile) abandon() {
	if a.tmp != "" {
		_ = os.Remove(a.tmp)
	}
}

// entriesOf lists a directory, sorted; one that is not there is empty.
func entriesOf(dir string) ([]os.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, diskError("read", dir, err)
	}
	return entries, nil
}

// MarshalIndent is JSON for people: indented, with <, > and & as they are, and a newline at the end.
func MarshalIndent(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return b.Bytes(), err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return diskError("sync", dir, err)
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return diskError("sync", dir, err)
	}
	return nil
}

// discard removes a directory. Its name goes first, so that an interrupted removal leaves nothing that looks like a
// damaged record; gc removes the rest. A directory that does not exist gives an error that is [fs.ErrNotExist].
func discard(dir string) error {
	trash := tempPath(dir)
	if err := os.Rename(dir, trash); err != nil {
		return diskError("remove", dir, err)
	}
	if err := removeAll(trash); err != nil {
		return diskError("remove", trash, err)
	}
	return nil
}

// removeAll removes a tree that may hold directories without permissions, as overlays and read-only caches do.
func removeAll(path string) error {
	err := os.RemoveAll(path)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	fi, serr := os.Lstat(path)
	if serr != nil || !fi.IsDir() {
		return err
	}
	_ = os.Chmod(path, 0o700) // the first obstacle may be the top itself, which OpenRoot needs to read
	root, rerr := os.OpenRoot(path)
	if rerr != nil {
		return err
	}
	defer root.Close()
	openUp(root, ".")
	return os.RemoveAll(path)
}

// openUp gives the owner back every permission on the directories below dir, without following links out of root.
func openUp(root *os.Root, dir string) {
	_ = root.Chmod(dir, 0o700)
	d, err := root.Open(dir)
	if err != nil {
		return
	}
	entries, _ := d.ReadDir(-1)
	d.Close()
	for _, e := range entries {
		if e.IsDir() {
			openUp(root, filepath.Join(dir, e.Name()))
		}
	}
}

// treeSize adds up what the files below path occupy, for gc to say. Errors count as nothing.
func treeSize(path string) int64 { return sizeOf(path, func(*syscall.Stat_t) bool { return true }) }

// sizeOf is treeSize of what count chooses.
func sizeOf(path string, count func(*syscall.Stat_t) bool) (total int64) {
	_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if fi, ierr := d.Info(); ierr == nil {
			if st, ok := fi.Sys().(*syscall.Stat_t); ok && count(st) {
				total += st.Blocks * 512
			}
		}
		return nil
	})
	return total
}

// lockTimeout bounds how long a lock that is held for microseconds may be waited for: a process that holds it longer
// is stopped, and waiting for a stopped process would hang every run on the machine.
var lockTimeout = 30 * time.Second

// lockFile takes a lock (unix.LOCK_EX or LOCK_SH) that its holders keep for moments.
func lockFile(f *os.File, how int) error {
	err := flock.Try(f, how)
	if !errors.Is(err, flock.ErrLocked) {
		return err
	}
	late := fmt.Errorf("%w for %s already (is it stopped?)", err, lockTimeout)
	ctx, cancel := context.WithTimeoutCause(context.Background(), lockTimeout, late)
	defer cancel()
	return flock.Wait(ctx, f, how)
}

func unlockFile(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// codeWriter puts declared files below code/, which it makes for the first one. Directories and files there have the
// modes that the sandbox shall see; what keeps other users out is the run's directory, which is 0700.
type codeWriter struct {
	dir     string
	content string // directory of shared contents; empty to share none

	mu   sync.Mutex
	root *os.Root
	dirs map[string]bool // made already
}

func (w *codeWriter) open() (*os.Root, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.root != nil {
		return w.root, nil
	}
	if err := os.Mkdir(w.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	root, err := os.OpenRoot(w.dir)
	if err != nil {
		return nil, err
	}
	if err := root.Chmod(".", 0o755); err != nil {
		root.Close()
		return nil, err
	}
	w.root, w.dirs = root, map[string]bool{".": true}
	return root, nil
}

func (w *codeWriter) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.root == nil {
		return nil
	}
	return w.root.Close()
}

func (w *codeWriter) write(name string, mode fs.FileMode, content io.Reader) (FileRef, error) {
	root, err := w.open()
	if err != nil {
		return FileRef{}, err
	}
	if err := w.mkdirs(path.Dir(name)); err != nil {
		return FileRef{}, err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return FileRef{}, err
	}
	h := sha256.New()
	n, err := io.Copy(f, io.TeeReader(content, h))
	if err == nil {
		err = f.Chmod(mode) // whatever the umask is
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = root.Remove(name)
		return FileRef{}, err
	}
	ref := FileRef{Path: path.Join(codeDir, name), Size: n, SHA256: hex.EncodeToString(h.Sum(nil)), Mode: octal(mode)}
	if w.content != "" && n >= minShared {
		w.share(filepath.Join(w.dir, filepath.FromSlash(name)), ref)
	}
	return ref, nil
}

// minShared is the size below which a file is not worth a shared content, in bytes.
const minShared = 16 << 10

// share makes a file that was just written one with the content of other records. Contents are named by hash and mode
// and are links of the records' files, so that one to which no record has a link is not needed any more. An existing
// content is used only if it still is what its name says. A file that cannot be shared, as across file systems, stays
// a copy.
func (w *codeWriter) share(own string, ref FileRef) {
	kept := filepath.Join(w.content, ref.SHA256+"-"+ref.Mode)
	err := os.Link(own, kept)
	if errors.Is(err, fs.ErrNotExist) && os.MkdirAll(w.content, 0o700) == nil {
		err = os.Link(own, kept)
	}
	if !errors.Is(err, fs.ErrExist) {
		return
	}
	from, to := kept, own
	if !isContent(w.content, filepath.Base(kept), ref) {
		from, to = own, kept
	}
	tmp := tempPath(kept)
	if err = os.Link(from, tmp); errors.Is(err, syscall.EMLINK) {
		from, to = own, kept // later records share ours
		err = os.Link(from, tmp)
	}
	if err == nil && os.Rename(tmp, to) != nil {
		_ = os.Remove(tmp)
	}
}

// isContent reports whether a shared content is what its name says.
func isContent(dir, name string, ref FileRef) bool {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false
	}
	defer root.Close()
	got, err := refFile(context.Background(), root, name)
	return err == nil && got.Size == ref.Size && got.SHA256 == ref.SHA256 && got.Mode == ref.Mode
}

// mkdirs makes dir and its parents, 0755 whatever the umask is.
func (w *codeWriter) mkdirs(dir string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mkdirsLocked(dir)
}

func (w *codeWriter) mkdirsLocked(dir string) error {
	if w.dirs[dir] {
		return nil
	}
	if err := w.mkdirsLocked(path.Dir(dir)); err != nil {
		return err
	}
	if err := w.root.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := w.root.Chmod(dir, 0o755); err != nil {
		return err
	}
	w.dirs[dir] = true
	return nil
}

// refFile hashes one regular file below root.
func refFile(ctx context.Context, root *os.Root, name string) (FileRef, error) {
	f, info, err := safefile.OpenLinked(root, filepath.FromSlash(name), -1)
	if err != nil {
		return FileRef{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, tree.Reader(ctx, f))
	if err != nil {
		return FileRef{}, diskError("read", f.Name(), err)
	}
	return FileRef{Path: name, Size: n, SHA256: hex.EncodeToString(h.Sum(nil)), Mode: octal(info.Mode)}, nil
}

func octal(mode fs.FileMode) string { return fmt.Sprintf("%04o", mode.Perm()) }
