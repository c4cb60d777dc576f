package review

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// backup copies what will be replaced or removed, and makes sure that it is what the plan was made for.
func (l *Ledger) backup(ctx context.Context, dir string, project *dir, j *journal) error {
	blobs := 0
	for _, s := range j.Steps {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		now, id, err := project.look(string(s.Path))
		if err == nil && !is(s.Old, now, id) {
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
			return fmt.Errorf("nothing was applied: %s: %w", Quote(string(s.Path)), err)
		}
	}
	return nil
}

// keep copies the project's version of one file.
func keep(to string, project *dir, s *step) error {
	src, id, err := project.open(string(s.Path))
	if err != nil {
		return err
	}
	defer src.Close()
	if !s.Old.Ident.same(id) {
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
	if _, after := nodeOf(&st); !after.same(id) || n != s.Old.Size {
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
	fd, name, err := project.parent(string(s.Path))
	if err != nil {
		return err
	}
	d, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
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
