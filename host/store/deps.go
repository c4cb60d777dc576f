package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/flock"
)

// An entry of the dependency cache is deps/LANG/KEY, which exists as a whole or not at all. Beside it stands
// KEY.lock: locked exclusively while the entry is built or removed, shared while it is used, and its modification time
// is when it was last used.

// DepsEntry is one entry of the dependency cache, in use by this process.
type DepsEntry struct {
	Dir   string // absolute; to be mounted read-only
	Built bool   // false when it was there already
	lock  *os.File
}

// isDepsName says whether s, of at most so many bytes, may name a part of the cache.
func isDepsName(s string, most int) bool {
	return s != "" && len(s) <= most && madeOf(s[:1], letters+digits) && madeOf(s, letters+digits+"._-")
}

const lockSuffix = ".lock"

// Deps returns the entry for a language and a key, building it when it is missing: build fills the empty directory it
// is given, which becomes the entry at once and as a whole when build returns nil, its files readable by everybody
// and writable by nobody. Of several processes that want the same entry one builds and the others wait, or end with
// ctx. lang and key are made of a-z, 0-9, '.', '_' and '-' and begin with a letter or digit; key does not end with
// ".lock". Release the entry when the run has ended; until then [Store.GC] leaves it alone.
func (s *Store) Deps(ctx context.Context, lang, key string,
	build func(ctx context.Context, dir string) error) (*DepsEntry, error) {
	if !isDepsName(lang, 64) || !isDepsName(key, 128) || filepath.Ext(key) == lockSuffix {
		return nil, fmt.Errorf("dependency entry %.80q of %.80q: not a name for one", key, lang)
	}
	parent := filepath.Join(s.paths.Deps(), lang)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, diskError("make", parent, err)
	}
	e := &DepsEntry{Dir: filepath.Join(parent, key)}
	for {
		err := e.use(ctx, unix.LOCK_SH)
		if err == nil {
			return e, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		// It is missing: build it under the exclusive lock, unless somebody did while we waited for that.
		if err := e.use(ctx, unix.LOCK_EX); errors.Is(err, fs.ErrNotExist) {
			if err := e.build(ctx, build); err != nil {
				e.lock.Close()
				return nil, err
			}
			e.Built = true
		} else if err != nil {
			return nil, err
		}
		// Others may use it too from now on. The kernel lets go of one lock before it takes the other, so look again.
		if err := flock.Wait(ctx, e.lock, unix.LOCK_SH); err != nil {
			e.lock.Close()
			return nil, err
		}
		if _, err := os.Lstat(e.Dir); err == nil {
			return e, nil
		}
		e.lock.Close()
	}
}

// use locks the entry. An entry that is not there gives fs.ErrNotExist: with LOCK_EX the lock is then held.
func (e *DepsEntry) use(ctx context.Context, how int) error {
	path := e.Dir + lockSuffix
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return diskError("open", path, err)
		}
		if err := flock.Wait(ctx, f, how); err != nil {
			f.Close()
			return fmt.Errorf("wait for the dependencies in %s: %w", e.Dir, err)
		}
		if !sameFile(f, path) { // gc removed it while we waited
			f.Close()
			continue
		}
		_, err = os.Lstat(e.Dir)
		if err != nil && how == unix.LOCK_SH {
			f.Close()
			return err
		}
		e.lock = f
		now := time.Now()
		_ = os.Chtimes(path, now, now)
		return err
	}
}

func sameFile(f *os.File, path string) bool {
	a, err1 := f.Stat()
	b, err2 := os.Lstat(path)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}

func (e *DepsEntry) build(ctx context.Context, build func(ctx context.Context, dir string) error) (err error) {
	tmp := tempPath(e.Dir)
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return diskError("make", tmp, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeAll(tmp))
		}
	}()
	if err := build(ctx, tmp); err != nil {
		return err
	}
	if err := freeze(tmp); err != nil {
		return diskError("finish", tmp, err)
	}
	// An entry is used for weeks, so its files must be on the disk before its name is.
	if err := syncTree(tmp); err != nil {
		return diskError("sync", tmp, err)
	}
	if err := os.Rename(tmp, e.Dir); err != nil {
		return diskError("make", e.Dir, err)
	}
	return nil
}

// freeze makes the files of a tree readable by everybody and writable by nobody, without following links. Directories
// stay writable for the owner, so that rm -r works on the cache; sandboxes have it mounted read-only. What an installer
// left there is not trusted: set-id bits go, and so does what is neither file, directory nor link.
func freeze(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return freezeDir(root, ".")
}

func freezeDir(root *os.Root, dir string) error {
	// First it must be possible to look into it.
	if err := root.Chmod(dir, 0o700); err != nil {
		return err
	}
	d, err := root.Open(dir)
	if err != nil {
		return err
	}
	entries, err := d.ReadDir(-1)
	d.Close()
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir():
			err = freezeDir(root, name)
		case e.Type().IsRegular():
			var fi fs.FileInfo
			if fi, err = e.Info(); err == nil {
				mode := fs.FileMode(0o444)
				if fi.Mode().Perm()&0o100 != 0 {
					mode = 0o555
				}
				err = root.Chmod(name, mode)
			}
		case e.Type()&fs.ModeSymlink == 0:
			err = root.Remove(name)
		}
		if err != nil {
			return err
		}
	}
	return root.Chmod(dir, 0o755)
}

// Release ends the use of the entry. A second call does nothing.
func (e *DepsEntry) Release() error {
	if e.lock == nil {
		return nil
	}
	err := e.lock.Close() // which unlocks it
	e.lock = nil
	return err
}
