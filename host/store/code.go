package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/hutch-run/hutch/sdk/safefile"
)

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
	got, err := refFile(root, name)
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
func refFile(root *os.Root, name string) (FileRef, error) {
	f, info, err := safefile.OpenLinked(root, filepath.FromSlash(name), -1)
	if err != nil {
		return FileRef{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return FileRef{}, diskError("read", f.Name(), err)
	}
	return FileRef{Path: name, Size: n, SHA256: hex.EncodeToString(h.Sum(nil)), Mode: octal(info.Mode)}, nil
}

func octal(mode fs.FileMode) string { return fmt.Sprintf("%04o", mode.Perm()) }
