// Package guestfiles is what programs inside of sandboxes do with files there: the operations of the contract, the
// first filling with what the host brings, and the comparison with that later.
package guestfiles

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/contract"
	"github.com/hutch-run/hutch/sdk/inside"
	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/supervise/remote"
	"github.com/hutch-run/hutch/sdk/tree"
)

// Files does one operation on the files of a sandbox. It runs as a command of that sandbox, with its view and its
// rights, so nothing that a hostile tree holds can lead it to more than a command could reach. How it ended goes to
// stderr, as a [remote.Reply].
//
//	put file|tar PATH < content
//	get file PATH > a line with the size, content
//	get tar PATH > content
//	remove PATH
//	remove-all PATH
func Files(args []string) error {
	err := files(args)
	return errors.Join(err, remote.Send(os.Stderr, remote.Reply{Err: remote.AsError(err)}))
}

func files(args []string) error {
	if len(args) < 2 {
		return contract.Errorf(contract.ReasonInternal, "this operation on files has no path: %q", args)
	}
	root, err := os.OpenRoot("/")
	if err != nil {
		return err
	}
	defer root.Close()
	unix.Umask(0)
	f, p, format := inside.Files{Root: root}, args[len(args)-1], contract.Format(args[1])
	ctx := contract.WithProgress(context.Background(), func(_ string, _, size int64) { fmt.Println(size) })
	switch args[0] {
	case "put":
		return f.Put(ctx, p, format, os.Stdin)
	case "get":
		return f.Get(ctx, p, format, os.Stdout)
	case "remove", "remove-all":
		return f.Remove(p, args[0] == "remove-all")
	}
	return contract.Errorf(contract.ReasonUnsupported, "there is no operation %q on files", args[0])
}

// Fill unpacks the tar stream that the backend brings from its own host into dir, in which no command has run yet. So,
// other than what comes from a sandbox, symbolic links may lead wherever they like: a project's do. All that it writes
// belongs to uid and gid; -1 leaves the owner as it is.
func Fill(ctx context.Context, dir string, uid, gid int, r io.Reader) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	err = unpack(root, uid, gid, tar.NewReader(tree.Reader(ctx, bufio.NewReaderSize(r, 256<<10))))
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return contract.Errorf(contract.ReasonQuota, "there is no room for what the host sends to %s: %w", dir, err)
	}
	return err
}

// unpack writes the entries below root. Directories get their modes last, for one may forbid to write into it.
func unpack(root *os.Root, uid, gid int, in *tar.Reader) error {
	type dir struct {
		name string
		mode fs.FileMode
	}
	var dirs []dir
	made := map[string]bool{".": true}
	parents := func(name string) error {
		var missing []string
		for d := path.Dir(name); !made[d]; d = path.Dir(d) {
			missing = append(missing, d)
		}
		for i := len(missing) - 1; i >= 0; i-- {
			d := missing[i]
			if err := root.Mkdir(d, 0o755); err == nil {
				if err := root.Lchown(d, uid, gid); err != nil {
					return err
				}
			} else if !errors.Is(err, fs.ErrExist) {
				return err
			}
			made[d] = true
		}
		return nil
	}
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read what comes from the host: %w", err)
		}
		name, mode := path.Clean(h.Name), fs.FileMode(h.Mode).Perm()
		if name == "." || name == "/" {
			continue
		}
		if err := parents(name); err != nil {
			return fmt.Errorf("write %q: %w", name, err)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			if err = root.Mkdir(name, 0o700); errors.Is(err, fs.ErrExist) {
				err = nil
			}
			made[name] = true
			dirs = append(dirs, dir{name, mode})
		case tar.TypeSymlink:
			_ = root.Remove(name)
			err = root.Symlink(h.Linkname, name)
		case tar.TypeReg:
			err = writeNew(root, name, mode, in)
		default:
			continue // the backend has reported what it leaves out
		}
		if err == nil {
			err = root.Lchown(name, uid, gid)
		}
		if err != nil {
			return fmt.Errorf("write %q: %w", name, err)
		}
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := root.Chmod(dirs[i].name, dirs[i].mode); err != nil {
			return fmt.Errorf("write %q: %w", dirs[i].name, err)
		}
	}
	return nil
}

// writeNew writes a file that replaces what was there.
func writeNew(root *os.Root, name string, mode fs.FileMode, r io.Reader) error {
	_ = root.Remove(name)
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// compared is how the workspace is looked at.
var compared = overlay.Options{Contents: true}

// SaveBase notes in file what dir looks like, before any command has seen it.
func SaveBase(ctx context.Context, dir, file string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	s, err := overlay.Take(ctx, root, compared)
	if err != nil {
		return contract.Errorf(contract.ReasonConfig, "the workspace is too much to be compared later: %w", err)
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 256<<10)
	return errors.Join(s.Save(w), w.Flush(), f.Close())
}

// Changes compares dir with what SaveBase noted in file. Where there is no file dir was empty, and nothing of it is a
// change.
func Changes(ctx context.Context, dir, file string) ([]remote.Change, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s, err := overlay.Load(bufio.NewReaderSize(f, 256<<10))
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	list, err := s.Changes(ctx, root, compared)
	if err != nil {
		return nil, fmt.Errorf("compare the workspace: %w", err)
	}
	out := make([]remote.Change, len(list))
	for i, c := range list {
		out[i] = remote.Change{Path: []byte(c.Path), Change: c}
		out[i].Change.Path = ""
	}
	return out, nil
}
