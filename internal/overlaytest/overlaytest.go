// Package overlaytest mounts real overlay file systems for tests, in its own process with its own mount namespace,
// and does there what a program in a sandbox would. What is read of the layers beside the mount can be compared with
// what that process sees through it.
//
// A test binary that uses it calls [Main] at the start of its TestMain.
package overlaytest

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// At is where the process sees the mount.
const At = "/workspace"

// Op is one thing that is done to a directory. Paths are relative to it.
type Op struct {
	Do   string      // write, append, mkdir, remove, rename, symlink, chmod, link, view, files
	Path string      // for rename and link what there is already
	To   string      // of rename and link the new name, of symlink the target
	Data string      // of write and append
	Mode fs.FileMode // of write, mkdir and chmod
}

func (o Op) String() string {
	return fmt.Sprintf("%s %q to=%q data=%q mode=%o", o.Do, o.Path, o.To, o.Data, o.Mode)
}

// Answer is what came of an [Op].
type Answer struct {
	Err  string   // "" when it went well
	View []string // what the directory looks like afterwards; see View
	// Files are the regular files with their contents; only after the operation "files".
	Files map[string][]byte
}

// Line is one line of a view: of a path, its mode as Go has it, its content or the target of a link.
func Line(path string, mode fs.FileMode, content []byte, target string) string {
	switch {
	case mode.IsRegular():
		h := fnv.New64a()
		h.Write(content)
		return fmt.Sprintf("%s %s %d %s", path, mode, len(content), hex.EncodeToString(h.Sum(nil)))
	case mode.Type() == fs.ModeSymlink:
		return fmt.Sprintf("%s link %s", path, target)
	}
	return fmt.Sprintf("%s %s", path, mode)
}

// View describes all that is below dir, sorted by path.
func View(dir string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		var content []byte
		var target string
		switch fi.Mode().Type() {
		case 0:
			content, err = os.ReadFile(p)
		case fs.ModeSymlink:
			target, err = os.Readlink(p)
		}
		out = append(out, Line(strings.TrimPrefix(p, dir+"/"), fi.Mode(), content, target))
		return err
	})
	slices.Sort(out)
	return out, err
}

// Files reads all regular files below dir.
func Files(dir string) (map[string][]byte, error) {
	out := map[string][]byte{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(p)
		out[strings.TrimPrefix(p, dir+"/")] = b
		return err
	})
	return out, err
}

// Do does one thing below dir, as a program would.
func (o Op) in(dir string) error {
	at := filepath.Join(dir, o.Path)
	switch o.Do {
	case "view", "files":
		return nil
	case "write":
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := regular(at); err != nil {
			return err
		}
		if err := os.WriteFile(at, []byte(o.Data), 0o600); err != nil {
			return err
		}
		return os.Chmod(at, o.Mode)
	case "append":
		if err := regular(at); err != nil {
			return err
		}
		f, err := os.OpenFile(at, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteString(o.Data)
		return err
	case "mkdir":
		if err := os.MkdirAll(at, o.Mode); err != nil {
			return err
		}
		return nil
	case "remove":
		if _, err := os.Lstat(at); err != nil {
			return err
		}
		return os.RemoveAll(at)
	case "rename":
		return os.Rename(at, filepath.Join(dir, o.To))
	case "link":
		return os.Link(at, filepath.Join(dir, o.To))
	case "symlink":
		if fi, err := os.Lstat(at); err == nil {
			if fi.IsDir() {
				return fs.ErrExist
			}
			os.Remove(at)
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		return os.Symlink(o.To, at)
	case "chmod":
		return os.Chmod(at, o.Mode)
	}
	return fmt.Errorf("there is no operation %q", o.Do)
}

// regular refuses what a tool that writes files refuses.
func regular(at string) error {
	if fi, err := os.Stat(at); err == nil && !fi.Mode().IsRegular() {
		return fs.ErrInvalid
	}
	return nil
}
