package inside

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hutch-run/hutch/sdk/contract"
	"github.com/hutch-run/hutch/sdk/safefile"
	"github.com/hutch-run/hutch/sdk/tree"
)

// Files are the files of one sandbox. Its methods may be called concurrently; paths are absolute, as commands see them.
type Files struct {
	// Root is the sandbox's root directory.
	Root *os.Root
	// At is the directory of commands that Root is, where that is not all they see; nothing else can be reached.
	At string
	// As runs changes with the rights of the sandbox's user; nil is with one's own.
	As func(change func() error) error
	// Own are directories of the sandbox itself, which cannot be removed, nor what they lie in.
	Own []string
}

// rel is the part of p below f.Root.
func (f Files) rel(p string) (string, error) {
	rel, err := Rel(p)
	if err != nil || f.At == "" {
		return rel, err
	}
	below, err := filepath.Rel(f.At, "/"+rel)
	if err != nil || !filepath.IsLocal(below) {
		return "", contract.Errorf(contract.ReasonDenied, "%s is not below %s", p, f.At)
	}
	return below, nil
}

// Rel is the part of p below the root, "." for the root itself. A path that is not absolute is a ReasonConfig error.
func Rel(p string) (string, error) {
	if !path.IsAbs(p) {
		return "", contract.Errorf(contract.ReasonConfig, "the path %q inside the sandbox is not absolute", p)
	}
	if rel := strings.TrimPrefix(path.Clean(p), "/"); rel != "" {
		return rel, nil
	}
	return ".", nil
}

// Get writes the regular file at p to w, or the tree below the directory p as a tar stream; see [sdk.Getter].
func (f Files) Get(ctx context.Context, p string, format contract.Format, w io.Writer) error {
	rel, err := f.rel(p)
	if err != nil {
		return err
	}
	switch format {
	case contract.FormatFile:
		file, info, err := safefile.Open(f.Root, rel, -1)
		if err != nil {
			return Error(p, err)
		}
		defer file.Close()
		contract.Progress(ctx)(contract.FetchingFile, 0, info.Size)
		_, err = io.Copy(w, file)
		return err
	case contract.FormatTar:
		dir, err := safefile.OpenRoot(f.Root, rel)
		if err != nil {
			if st, serr := f.Root.Lstat(rel); serr == nil && !st.IsDir() {
				return contract.Errorf(contract.ReasonConfig, "%s is no directory", p)
			}
			return Error(p, err)
		}
		defer dir.Close()
		_, err = tree.Pack(ctx, dir, w, tree.PackOptions{Special: true})
		return err
	}
	return unspoken(format)
}

// Put writes the file p, or a tar stream to the directory p, which is made when it is missing; see [sdk.Putter].
func (f Files) Put(ctx context.Context, p string, format contract.Format, r io.Reader) error {
	rel, err := f.rel(p)
	if err != nil {
		return err
	}
	switch format {
	case contract.FormatFile:
		return f.as(func() error { return f.putFile(p, rel, r) })
	case contract.FormatTar:
		return f.as(func() error { return f.putTree(ctx, p, rel, r) })
	}
	return unspoken(format)
}

// putFile replaces a file in one step, so that a command never sees half of it, and so that a hard link to it keeps its
// content.
func (f Files) putFile(p, rel string, r io.Reader) error {
	mode := fs.FileMode(0o644)
	if st, err := f.Root.Lstat(rel); err == nil {
		if !st.Mode().IsRegular() {
			return contract.Errorf(contract.ReasonConfig, "%s is not a regular file", p)
		}
		mode = st.Mode().Perm()
	}
	temp := path.Join(path.Dir(rel), ".hutch-put-"+rand.Text())
	out, err := f.Root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return Error(p, err)
	}
	_, err = io.Copy(out, r)
	if err == nil {
		err = out.Chmod(mode) // whatever this process's umask took from it
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = f.Root.Rename(temp, rel)
	}
	if err != nil {
		_ = f.Root.Remove(temp)
	}
	return Error(p, err)
}

func (f Files) putTree(ctx context.Context, p, rel string, r io.Reader) error {
	if err := f.Root.MkdirAll(rel, 0o755); err != nil {
		return NoDir(p, err)
	}
	dir, err := safefile.OpenRoot(f.Root, rel)
	if err != nil {
		return Error(p, err)
	}
	defer dir.Close()
	_, err = tree.Unpack(ctx, r, dir, tree.Caps{})
	return Refused(ctx, p, err)
}

// Remove removes what is at p, of a symbolic link the link; see [sdk.Remover].
func (f Files) Remove(p string, recursive bool) error {
	clean := path.Clean(p)
	for _, own := range f.Own {
		if own != "" && (clean == "/" || own == clean || strings.HasPrefix(own, clean+"/")) {
			return contract.Errorf(contract.ReasonConfig, "%s is part of the sandbox and cannot be removed",
				p).WithFix("remove what is in it")
		}
	}
	rel, err := f.rel(p)
	if err != nil {
		return err
	}
	return f.as(func() error {
		st, err := f.Root.Lstat(rel)
		if err != nil {
			return Error(p, err)
		}
		if st.IsDir() && !recursive {
			return contract.Errorf(contract.ReasonConfig, "%s is a directory", p).WithFix("remove it with all that is in it")
		}
		return Error(p, RemoveAll(f.Root, rel))
	})
}

func (f Files) as(change func() error) error {
	if f.As == nil {
		return change()
	}
	return f.As(change)
}

// RemoveAll is [os.Root.RemoveAll] that does not stop at directories which their owner closed to itself.
func RemoveAll(root *os.Root, name string) error {
	err := root.RemoveAll(name)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	OpenBelow(root, name)
	return root.RemoveAll(name)
}

// OpenBelow lets this user into the directories at and below name that are closed to it, as far as it may. Links are
// not followed.
func OpenBelow(root *os.Root, name string) {
	if st, err := root.Lstat(name); err != nil || !st.IsDir() || root.Chmod(name, 0o700) != nil {
		return
	}
	d, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a FIFO by now
	if err != nil {
		return
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	for _, n := range names {
		OpenBelow(root, filepath.Join(name, n))
	}
}
