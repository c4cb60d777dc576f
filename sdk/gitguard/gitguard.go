// Package gitguard finds the git repositories in a shared workspace. A backend mounts them read-only, because a program
// that writes them chooses what the host's next git command runs.
package gitguard

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Repositories lists what git takes for a repository in a directory, by their paths below it: .git, sub/.git, mirror.
func Repositories(workspace string) (paths []string, err error) {
	if workspace, err = filepath.EvalSymlinks(workspace); err != nil {
		return nil, err
	}
	err = each(workspace, func(rel string, _ fs.DirEntry) error {
		paths = append(paths, rel)
		return nil
	})
	return paths, err
}

// each calls f for each repository, by its path below workspace.
func each(workspace string, f func(rel string, e fs.DirEntry) error) error {
	return filepath.WalkDir(workspace, func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(at, workspace), "/")
		if (rel == "" || !strings.EqualFold(e.Name(), ".git")) && !bare(at, e) {
			return nil
		}
		if err := f(rel, e); err != nil {
			return err
		}
		if e.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
}

// bare reports whether git takes the directory for a repository without the name .git.
func bare(at string, e fs.DirEntry) bool {
	has := func(name string) bool {
		_, err := os.Lstat(filepath.Join(at, name))
		return err == nil
	}
	return e.IsDir() && has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}
