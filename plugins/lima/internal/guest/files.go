package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk/safefile"
	"github.com/hutch-run/hutch/sdk/tree"
)

// Files does one operation on the files of a sandbox. It runs as a command of that sandbox, with its view and its
// rights, so nothing that a hostile tree holds can lead it to more than a command could reach. How it ended goes to
// stderr, as a [wire.Reply].
//
//	put file|tar PATH < content
//	get file PATH > a line with the size, content
//	get tar PATH > content
//	remove PATH
//	remove-all PATH
func Files(args []string) error {
	err := files(args)
	return errors.Join(err, wire.Send(os.Stderr, wire.Reply{Err: wire.AsError(err)}))
}

func files(args []string) error {
	if len(args) < 2 {
		return wire.Errorf(wire.ReasonInternal, "this operation on files has no path: %q", args)
	}
	root, err := os.OpenRoot("/")
	if err != nil {
		return err
	}
	defer root.Close()
	unix.Umask(0)
	p := args[len(args)-1]
	rel := strings.TrimPrefix(path.Clean(p), "/")
	if rel == "" {
		rel = "."
	}
	ctx := context.Background()
	switch op := strings.Join(args[:len(args)-1], " "); op {
	case "put file":
		return explain(p, putFile(root, rel, os.Stdin))
	case "put tar":
		return explain(p, putTree(ctx, root, rel, p))
	case "get file":
		f, info, err := safefile.Open(root, rel, -1)
		if err != nil {
			return explain(p, err)
		}
		defer f.Close()
		if _, err = fmt.Println(info.Size); err == nil {
			_, err = io.Copy(os.Stdout, f)
		}
		return explain(p, err)
	case "get tar":
		dir, err := safefile.OpenRoot(root, rel)
		if err != nil {
			if _, there := root.Lstat(rel); there == nil && errors.Is(err, unix.ENOTDIR) {
				return wire.Errorf(wire.ReasonConfig, "%s is no directory", p)
			}
			return explain(p, err)
		}
		defer dir.Close()
		_, err = tree.Pack(ctx, dir, os.Stdout, tree.PackOptions{Special: true})
		return explain(p, err)
	case "remove", "remove-all":
		return explain(p, remove(root, rel, p, op == "remove-all"))
	default:
		return wire.Errorf(wire.ReasonUnsupported, "there is no operation %q on files", op)
	}
}

// putFile replaces the file rel in one step, so that a command never sees half of it, and a hard link to it keeps its
// content.
func putFile(root *os.Root, rel string, r io.Reader) error {
	mode := fs.FileMode(0o644)
	if st, err := root.Lstat(rel); err == nil {
		if !st.Mode().IsRegular() {
			return wire.Errorf(wire.ReasonConfig, "/%s is not a regular file", rel)
		}
		mode = st.Mode().Perm()
	}
	temp := path.Join(path.Dir(rel), ".hutch-put-"+readLine("/proc/sys/kernel/random/uuid"))
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err == nil {
		err = root.Rename(temp, rel)
	}
	if err != nil {
		_ = root.Remove(temp)
	}
	return err
}

func putTree(ctx context.Context, root *os.Root, rel, p string) error {
	if err := root.MkdirAll(rel, 0o755); err != nil {
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, fs.ErrExist) {
			return wire.Errorf(wire.ReasonConfig, "a tree cannot be written to %s, which is no directory: %w", p, err)
		}
		return err
	}
	dir, err := safefile.OpenRoot(root, rel)
	if err != nil {
		return err
	}
	defer dir.Close()
	_, err = tree.Unpack(ctx, os.Stdin, dir, tree.Caps{})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return err
	}
	return wire.Errorf(wire.ReasonConfig, "the tree cannot be written to %s: %w", p, err)
}

func remove(root *os.Root, rel, p string, recursive bool) error {
	st, err := root.Lstat(rel)
	if err != nil {
		return err
	}
	if st.IsDir() && !recursive {
		return wire.Errorf(wire.ReasonConfig, "%s is a directory", p)
	}
	err = root.RemoveAll(rel)
	if errors.Is(err, fs.ErrPermission) { // of directories that their owner closed to itself
		openBelow(root, rel)
		err = root.RemoveAll(rel)
	}
	return err
}

// openBelow lets this user into directories below name that a command closed. Links are not followed.
func openBelow(root *os.Root, name string) {
	if st, err := root.Lstat(name); err != nil || !st.IsDir() || root.Chmod(name, 0o700) != nil {
		return
	}
	d, err := root.Open(name)
	if err != nil {
		return
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	for _, n := range names {
		openBelow(root, path.Join(name, n))
	}
}

// explain gives an error the reason that the contract has for it.
func explain(p string, err error) error {
	var done *wire.Error
	var refused *safefile.Error
	switch {
	case err == nil || errors.As(err, &done):
		return err
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return wire.Errorf(wire.ReasonNotFound, "there is no %s in the sandbox", p)
	case errors.As(err, &refused), errors.Is(err, unix.EISDIR):
		return wire.Errorf(wire.ReasonConfig, "%s: %w", p, err)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return wire.Errorf(wire.ReasonQuota, "%s: %w", p, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return wire.Errorf(wire.ReasonDenied, "%s: %w", p, err)
	}
	return fmt.Errorf("%s: %w", p, err)
}
