package store

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/flock"
)

// socketName is the longest name of a socket that fits into every runtime directory.
const socketName = 40

// sunPath is the size of sockaddr_un.sun_path, the zero byte at the end included.
var sunPath = len(unix.RawSockaddrUnix{}.Path)

// RuntimeDir is a short, private directory (0700) for sockets and FIFOs, $XDG_RUNTIME_DIR/hutch/xxxxxx or
// /tmp/hutch-UID-xxxxxx. It lives as long as the process that made it: a lock on it shows [Store.GC] whether that
// process is gone. $TMPDIR does not matter, because it may be too long for a socket.
type RuntimeDir struct {
	path string
	lock *os.File
	once sync.Once
	err  error
}

// NewRuntimeDir makes a fresh one. It needs no store.
func NewRuntimeDir() (*RuntimeDir, error) {
	base, prefix, err := runtimeBase()
	if err != nil {
		return nil, err
	}
	for range 100 {
		d, err := claimRuntimeDir(filepath.Join(base, prefix+tailText(rand.Uint32())))
		if err == nil || !errors.Is(err, fs.ErrExist) {
			return d, err
		}
	}
	return nil, fmt.Errorf("make a runtime directory in %s: every name is taken", base)
}

// claimRuntimeDir makes path and locks it. fs.ErrExist says that another name must be tried.
func claimRuntimeDir(path string) (*RuntimeDir, error) {
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, diskError("make", path, err)
	}
	// A gc may find it before we have locked it, and remove it.
	f, err := openOwnDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", path, fs.ErrExist)
	}
	if err != nil {
		_ = os.Remove(path)
		return nil, err
	}
	if err := flock.Try(f, unix.LOCK_EX); err != nil || !sameFile(f, path) {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, fs.ErrExist)
	}
	return &RuntimeDir{path: path, lock: f}, nil
}

// runtimeBase chooses where runtime directories lie, and how their names begin.
func runtimeBase() (base, prefix string, err error) {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) && checkPrivate(dir) == nil {
		base = filepath.Join(dir, "hutch")
		if len(base)+1+tailDigits+1+socketName < sunPath {
			if err := os.Mkdir(base, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return "", "", diskError("make", base, err)
			}
			return base, "", checkPrivate(base)
		}
	}
	base = "/tmp"
	fi, err := os.Lstat(base)
	if err != nil {
		return "", "", diskError("look at", base, err)
	}
	if fi.Mode()&fs.ModeSymlink != 0 { // as on macOS
		if base, err = filepath.EvalSymlinks(base); err == nil {
			fi, err = os.Lstat(base)
		}
		if err != nil {
			return "", "", diskError("look at", base, err)
		}
	}
	if fi.Mode().Perm()&0o022 != 0 && fi.Mode()&fs.ModeSticky == 0 {
		return "", "", fmt.Errorf("%w: others may rename what is in %s (chmod +t %s)", ErrUnsafe, base, base)
	}
	return base, fmt.Sprintf("hutch-%d-", os.Geteuid()), nil
}

// openOwnDir opens a directory without following a link, and refuses one that is not ours alone.
func openOwnDir(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, diskError("open", path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		f.Close()
		return nil, diskError("look at", path, err)
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		f.Close()
		return nil, fmt.Errorf("%w: %s belongs to uid %d with mode %04o", ErrUnsafe, path, st.Uid, st.Mode&0o7777)
	}
	return f, nil
}

// Path is the absolute path, short enough for a socket with a name of up to 40 bytes in it.
func (d *RuntimeDir) Path() string { return d.path }

// Sub makes a private directory in it and returns its path.
func (d *RuntimeDir) Sub(name string) (string, error) {
	if name == "" || strings.ContainsAny(name, "/\x00") || name == "." || name == ".." {
		return "", fmt.Errorf("directory name %.80q", name)
	}
	path := filepath.Join(d.path, name)
	if err := os.Mkdir(path, 0o700); err != nil {
		return "", diskError("make", path, err)
	}
	return path, nil
}

// Close removes the directory and all that is in it. A second call does nothing.
func (d *RuntimeDir) Close() error {
	d.once.Do(func() {
		if err := removeAll(d.path); err != nil {
			d.err = diskError("remove", d.path, err)
		}
		_ = d.lock.Close()
	})
	return d.err
}

// staleRuntimeDirs calls each with every runtime directory whose process is gone. The directory is locked meanwhile.
func staleRuntimeDirs(each func(path string) error) error {
	base, prefix, err := runtimeBase()
	if err != nil {
		return err
	}
	places := [][2]string{{base, prefix}}
	if prefix == "" { // other processes of ours may have had no XDG_RUNTIME_DIR
		places = append(places, [2]string{"/tmp", fmt.Sprintf("hutch-%d-", os.Geteuid())})
	}
	var errs []error
	for _, p := range places {
		entries, err := os.ReadDir(p[0])
		if err != nil {
			errs = append(errs, diskError("read", p[0], err))
			continue
		}
		for _, e := range entries {
			tail, ok := strings.CutPrefix(e.Name(), p[1])
			if !ok || len(tail) != tailDigits || !e.IsDir() {
				continue
			}
			path := filepath.Join(p[0], e.Name())
			f, err := openOwnDir(path)
			if err != nil {
				continue // somebody else's, or just removed
			}
			if flock.Try(f, unix.LOCK_EX) == nil && sameFile(f, path) {
				if err := each(path); err != nil {
					errs = append(errs, err)
				}
			}
			f.Close()
		}
	}
	return errors.Join(errs...)
}
