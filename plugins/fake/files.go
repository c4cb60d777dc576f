package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/inside"
)

// withFiles calls fn with the files of the sandbox: those of this machine.
func (s *sandbox) withFiles(fn func(inside.Files) error) error {
	root, err := os.OpenRoot("/")
	if err != nil {
		return err
	}
	defer root.Close()
	return fn(inside.Files{Root: root, Own: []string{s.st.Workspace, s.path("input"), s.path("output")}})
}

// Put implements [sdk.Putter].
func (s *sandbox) Put(ctx context.Context, dst string, format sdk.Format, r io.Reader) error {
	c := &s.st.Config
	c.fault("put")
	if c.lies("put_escape") && format == sdk.FormatTar {
		b, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if escaped, err := putOutside(dst, b); escaped || err != nil {
			return err
		}
		r = bytes.NewReader(b)
	}
	err := s.withFiles(func(f inside.Files) error { return f.Put(ctx, dst, format, r) })
	switch {
	case err != nil:
		return err
	case c.lies("put_file_mode") && format == sdk.FormatFile:
		return os.Chmod(dst, 0o644)
	case c.lies("put_modes") && format == sdk.FormatTar:
		return filepath.WalkDir(dst, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				err = os.Chmod(p, 0o644)
			}
			return err
		})
	}
	return nil
}

// putOutside writes the entries of a tar stream whose names begin with .., and reports whether there were any.
func putOutside(dst string, stream []byte) (escaped bool, err error) {
	for tr := tar.NewReader(bytes.NewReader(stream)); ; {
		h, err := tr.Next()
		if err != nil {
			return escaped, nil //nolint:nilerr // a broken stream is refused afterwards
		}
		if strings.HasPrefix(h.Name, "..") {
			escaped = true
			b, err := io.ReadAll(tr)
			if err := errors.Join(err, os.WriteFile(filepath.Join(dst, h.Name), b, 0o644)); err != nil {
				return true, err
			}
		}
	}
}

// Get implements [sdk.Getter].
func (s *sandbox) Get(ctx context.Context, src string, format sdk.Format, w io.Writer) error {
	c := &s.st.Config
	if c.CrashDuring != "get" { // that one comes in the middle of the bytes
		c.fault("get")
	}
	if c.lies("get_missing") {
		if _, err := os.Lstat(src); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	follow := c.lies("get_follows") || c.lies("claims_vm") || c.lies("claims_namespace") // as without any isolation
	if follow && format == sdk.FormatFile {
		if real, err := filepath.EvalSymlinks(src); err == nil {
			src = real
		}
	}
	if c.lies("get_no_size") {
		ctx = context.Background() // without a receiver of progress
	}
	if c.CrashDuring == "get" {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			return err
		}
		c.fault("get")
	}
	if fi, err := os.Lstat(src); c.lies("get_symlinks") && format == sdk.FormatTar && err == nil && fi.IsDir() {
		followed, err := sdk.MkdirTemp()
		if err != nil {
			return err
		}
		defer os.RemoveAll(followed)
		if err := followLinks(ctx, src, followed); err != nil {
			return err
		}
		src = followed
	}
	return s.withFiles(func(f inside.Files) error { return f.Get(ctx, src, format, w) })
}

// followLinks copies the tree at src into dst, with the small files that its links lead to in their place. Links to
// directories stay: one to / would copy this machine.
func followLinks(ctx context.Context, src, dst string) error {
	if err := exec.CommandContext(ctx, "cp", "-a", src+"/.", dst).Run(); err != nil {
		return err
	}
	return filepath.WalkDir(src, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() != fs.ModeSymlink {
			return err
		}
		fi, err := os.Stat(p)
		if err != nil || !fi.Mode().IsRegular() || fi.Size() > 1<<20 {
			return nil //nolint:nilerr // it leads nowhere
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		at := filepath.Join(dst, strings.TrimPrefix(p, src))
		return errors.Join(os.Remove(at), os.WriteFile(at, data, 0o644))
	})
}

// Remove implements [sdk.Remover].
func (s *sandbox) Remove(_ context.Context, p string, recursive bool) error {
	c := &s.st.Config
	c.fault("remove")
	if c.lies("remove_follows") {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			p = real
		}
	}
	err := s.withFiles(func(f inside.Files) error { return f.Remove(p, recursive || c.lies("remove_unasked")) })
	if c.lies("remove_missing") && sdk.ReasonOf(err) == sdk.ReasonNotFound {
		return nil
	}
	return err
}

// removeTree removes a tree, closed directories included, below the directory it lies in.
func removeTree(p string) error {
	root, err := os.OpenRoot(filepath.Dir(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return inside.RemoveAll(root, filepath.Base(p))
}

// copyTree copies what is in src, with its permissions and times, into the directory dst, made when it is missing.
func copyTree(ctx context.Context, src, dst string) error {
	if err := os.MkdirAll(dst, 0o755); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "cp", "-rP", "--preserve=mode,timestamps", src+"/.", dst).CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("copy %s: %w: %s", src, err, out)
	}
	return nil
}
