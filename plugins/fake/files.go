package main

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/sdk"
)

// Put implements [sdk.Putter].
func (s *sandbox) Put(_ context.Context, dst string, format sdk.Format, r io.Reader) error {
	c := &s.st.Config
	c.fault("put")
	if !filepath.IsAbs(dst) {
		return sdk.Errorf(sdk.ReasonConfig, "%q is not an absolute path", dst)
	}
	if format == sdk.FormatFile {
		err := putFile(dst, r)
		if err == nil && c.lies("put_file_mode") {
			err = os.Chmod(dst, 0o644)
		}
		return err
	}
	if err := os.MkdirAll(dst, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dst)
	if err != nil {
		return err
	}
	defer root.Close()
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			// The reader stops at the tar's own end; the stream may have been cut right there.
			_, err = io.Copy(io.Discard, r)
			return err
		}
		if err != nil {
			return err
		}
		if c.lies("put_modes") {
			h.Mode = 0o644
			if h.Typeflag == tar.TypeDir {
				h.Mode = 0o755
			}
		}
		if c.lies("put_escape") && strings.HasPrefix(h.Name, "..") {
			if err := putFile(filepath.Join(dst, h.Name), tr); err != nil {
				return err
			}
			continue
		}
		if err := putEntry(root, h, tr); err != nil {
			return sdk.Errorf(sdk.ReasonConfig, "tar entry %q: %w", h.Name, err)
		}
	}
}

// putEntry makes one entry below root, which it cannot leave.
func putEntry(root *os.Root, h *tar.Header, r io.Reader) error {
	name := path.Clean(h.Name)
	if !filepath.IsLocal(name) {
		return errors.New("the name leads out of the tree")
	}
	mode := h.FileInfo().Mode().Perm()
	if dir := path.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if err := root.MkdirAll(name, mode); err != nil {
			return err
		}
		return root.Chmod(name, mode)
	case tar.TypeReg:
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Chmod(mode), f.Close())
	case tar.TypeSymlink:
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return root.Symlink(h.Linkname, name)
	}
	return fmt.Errorf("entries of type %q are not taken", h.Typeflag)
}

// putFile replaces a file as a whole or not at all.
func putFile(dst string, r io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(dst), ".put-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	mode := fs.FileMode(0o644)
	if fi, err := os.Lstat(dst); err == nil && fi.Mode().IsRegular() {
		mode = fi.Mode().Perm()
	}
	_, err = io.Copy(f, r)
	if err := errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), dst)
}

// Get implements [sdk.Getter].
func (s *sandbox) Get(ctx context.Context, src string, format sdk.Format, w io.Writer) error {
	c := &s.st.Config
	if c.CrashDuring != "get" { // that one comes in the middle of the bytes
		c.fault("get")
	}
	look := os.Lstat
	if c.lies("get_follows") && format == sdk.FormatFile {
		look = os.Stat
	}
	fi, err := look(src)
	switch {
	case errors.Is(err, fs.ErrNotExist) && c.lies("get_missing"):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return sdk.Errorf(sdk.ReasonNotFound, "there is no %s", src)
	case err != nil:
		return err
	case format == sdk.FormatFile && !fi.Mode().IsRegular():
		return sdk.Errorf(sdk.ReasonConfig, "%s is no regular file", src)
	case format == sdk.FormatTar && !fi.IsDir():
		return sdk.Errorf(sdk.ReasonConfig, "%s is no directory", src)
	}
	if format == sdk.FormatFile && !c.lies("get_no_size") {
		sdk.Progress(ctx)(sdk.FetchingFile, 0, fi.Size())
	}
	if c.CrashDuring == "get" {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil { // in the middle of it
			return err
		}
		c.fault("get")
	}
	if format == sdk.FormatFile {
		f, err := os.Open(src)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(w, f)
		return err
	}
	return getTree(src, w, c.lies("get_symlinks"))
}

func getTree(src string, w io.Writer, follow bool) error {
	tw := tar.NewWriter(w)
	err := filepath.WalkDir(src, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == src {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		var link string
		if fi.Mode().Type() == fs.ModeSymlink {
			if follow {
				fi, err = os.Stat(p)
			} else {
				link, err = os.Readlink(p)
			}
			if err != nil {
				return err
			}
		}
		if t := fi.Mode().Type(); t != 0 && t != fs.ModeDir && t != fs.ModeSymlink {
			return nil // sockets, FIFOs and devices are not files to give out
		}
		h, err := tar.FileInfoHeader(fi, link)
		if err != nil {
			return err
		}
		h.Name, _ = filepath.Rel(src, p)
		if fi.IsDir() {
			h.Name += "/"
		}
		h.Uname, h.Gname = "", ""
		if err := tw.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
			return err
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(tw, f)
		return err
	})
	return errors.Join(err, tw.Close())
}

// copyTree copies a tree with its modes and symbolic links to a directory, made when missing.
func copyTree(ctx context.Context, src, dst string) error {
	var dirs []string // their modes come last: one may forbid to write
	err := filepath.WalkDir(src, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		rel, err := filepath.Rel(src, p)
		if err != nil {
			return err
		}
		to := filepath.Join(dst, rel)
		fi, err := d.Info()
		if err != nil {
			return err
		}
		switch fi.Mode().Type() {
		case fs.ModeDir:
			dirs = append(dirs, rel)
			if err := os.Mkdir(to, 0o700); err != nil && rel != "." {
				return err
			}
			return nil
		case fs.ModeSymlink:
			link, err := os.Readlink(p)
			if err != nil {
				return err
			}
			return os.Symlink(link, to)
		case 0:
			return copyFile(p, to, fi)
		}
		return nil
	})
	for _, rel := range slices.Backward(dirs) {
		if err != nil {
			break
		}
		var fi fs.FileInfo
		if fi, err = os.Stat(filepath.Join(src, rel)); err == nil {
			err = os.Chmod(filepath.Join(dst, rel), fi.Mode()&(fs.ModePerm|fs.ModeSetgid))
		}
	}
	return err
}

func copyFile(src, dst string, fi fs.FileInfo) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return cmp.Or(err, out.Chmod(fi.Mode().Perm()), out.Close(), os.Chtimes(dst, fi.ModTime(), fi.ModTime()))
}
