package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// copyTree copies the directory from into to, which is made, with modes, times and groups. Where the file system can,
// the copies share their blocks. The directory that to lies in is not copied into itself. left counts what cannot be
// copied: special files, and what this user cannot read.
func copyTree(ctx context.Context, from, to string) (left int, err error) {
	type made struct {
		path string
		info fs.FileInfo
	}
	var dirs []made
	around, err := os.Stat(filepath.Dir(to))
	if err != nil {
		return 0, err
	}
	err = filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		rel, rerr := filepath.Rel(from, p)
		if rerr != nil {
			return rerr
		}
		at := filepath.Join(to, rel)
		if err == nil {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				switch {
				case os.SameFile(info, around) && rel != ".":
					return fs.SkipDir
				case d.IsDir():
					if err = os.Mkdir(at, 0o700); errors.Is(err, fs.ErrExist) {
						err = nil
					}
					dirs = append(dirs, made{at, info})
				default:
					err = copyEntry(p, at, info)
				}
			}
		}
		switch {
		case errors.Is(err, errLeftOut), rel != "." && (errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist)):
			left++
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return err
	})
	for i := len(dirs) - 1; i >= 0 && err == nil; i-- { // what is in a directory changes its time, or needs its mode
		err = imitate(dirs[i].path, dirs[i].info)
	}
	return left, err
}

// errLeftOut is of an entry that is not copied.
var errLeftOut = errors.New("not a file, directory or link")

func copyEntry(from, to string, info fs.FileInfo) error {
	switch info.Mode().Type() {
	case fs.ModeSymlink:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case 0:
	default:
		return errLeftOut
	}
	in, err := os.OpenFile(from, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) != nil {
		_, err = io.Copy(out, in)
	}
	return errors.Join(err, out.Close(), imitate(to, info))
}

// imitate gives a copy the group, the mode and the time of its original. Not every user may give every group; set-id
// bits of files are dropped.
func imitate(p string, info fs.FileInfo) error {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		_ = os.Lchown(p, -1, int(st.Gid))
	}
	mode := info.Mode() &^ fs.ModeSetuid
	if !info.IsDir() {
		mode &^= fs.ModeSetgid
	}
	return errors.Join(os.Chmod(p, mode), os.Chtimes(p, time.Now(), info.ModTime()))
}
