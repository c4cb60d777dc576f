package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hutch-run/hutch/sdk"
)

// Remove implements [sdk.Remover].
func (s *sandbox) Remove(_ context.Context, p string, recursive bool) error {
	cfg := &s.st.Config
	cfg.fault("remove")
	if !filepath.IsAbs(p) {
		return sdk.Errorf(sdk.ReasonConfig, "%q is not an absolute path", p)
	}
	p = filepath.Clean(p)
	for _, own := range []string{s.st.Workspace, s.path("input"), s.path("output")} {
		if p == own || strings.HasPrefix(own, strings.TrimSuffix(p, "/")+"/") {
			return sdk.Errorf(sdk.ReasonConfig, "%s is part of the sandbox", p)
		}
	}
	look := os.Lstat
	if cfg.lies("remove_follows") {
		look = os.Stat
	}
	fi, err := look(p)
	if errors.Is(err, syscall.ENOTDIR) {
		err = fs.ErrNotExist // something on the way is no directory
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && cfg.lies("remove_missing"):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return sdk.Errorf(sdk.ReasonNotFound, "there is no %s", p)
	case err != nil:
		return err
	case fi.IsDir() && !recursive && !cfg.lies("remove_unasked"):
		return sdk.Errorf(sdk.ReasonConfig, "%s is a directory", p)
	case cfg.lies("remove_follows"):
		if real, err := filepath.EvalSymlinks(p); err == nil {
			p = real
		}
	}
	return removeTree(p)
}

// removeTree removes a file, or a tree whose directories may forbid it.
func removeTree(p string) error {
	err := filepath.WalkDir(p, func(p string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err == nil && d.IsDir():
			return os.Chmod(p, 0o700)
		}
		return err
	})
	return errors.Join(err, os.RemoveAll(p))
}
