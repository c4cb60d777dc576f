//go:build linux

// Package gitguard finds the git repositories in a shared workspace. A backend mounts them read-only, because a program
// that writes them chooses what the host's next git command runs.
package gitguard

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The values of a backend's attribute "git".
const (
	ReadOnly = "readonly" // each repository is read-only
	Writable = "writable" // only hooks and settings are, where they are there: commits work, and so do some attacks
)

// Part is a path to mount on itself. A mount point cannot be renamed or removed inside the sandbox, so the directories
// above a read-only part are parts as well.
type Part struct {
	Path     string // below the workspace, with slashes
	ReadOnly bool
}

// most is how many repositories a workspace may have: each costs a few mounts.
const most = 256

// Parts lists what to mount in the directory workspace, parents first. It changes nothing there, so it cannot guard what
// does not exist yet. A directory that cannot be read is left out: the sandbox's user cannot read it either. Parts
// returns an error where a repository cannot be guarded.
func Parts(workspace, mode string) ([]Part, error) {
	g := guard{workspace: workspace, mode: mode, seen: map[string]bool{}}
	var err error
	if g.mount, err = mountOf(workspace); err != nil {
		return nil, err
	}
	err = filepath.WalkDir(workspace, func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(at, workspace), "/")
		if (rel == "" || !strings.EqualFold(e.Name(), ".git")) && !bare(at, e) {
			return nil
		}
		if err := g.repository(rel, e); err != nil {
			return err
		}
		if e.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	return g.parts, err
}

type guard struct {
	workspace, mode string
	mount           uint64 // that the workspace lies on
	repositories    int
	seen            map[string]bool
	parts           []Part
}

func (g *guard) repository(rel string, e fs.DirEntry) error {
	at := filepath.Join(g.workspace, rel)
	if g.repositories++; g.repositories > most {
		return fmt.Errorf("a shared workspace can have at most %d git repositories, and %s has more", most, g.workspace)
	}
	if rel == "" && g.mode != Writable {
		return fmt.Errorf("the shared workspace %s is itself a git repository's directory, which must not be written", at)
	}
	if e.Type() == fs.ModeSymlink {
		return fmt.Errorf("%s is a symbolic link, which cannot be guarded in a shared workspace", at)
	}
	if m, err := mountOf(at); err != nil || m != g.mount {
		return fmt.Errorf("the git repository %s is on another mount than the shared workspace, where it cannot be guarded", at)
	}
	g.add(rel, g.mode != Writable || !e.IsDir())
	if g.mode != Writable || !e.IsDir() {
		return nil
	}
	for _, name := range []string{"commondir", "config", "config.worktree", "hooks"} {
		if st, err := os.Lstat(filepath.Join(at, name)); err == nil && (st.Mode().IsRegular() || st.IsDir()) {
			g.add(path.Join(rel, name), true)
		}
	}
	return nil
}

// add adds a part and the directories above it.
func (g *guard) add(p string, readOnly bool) {
	if p == "" || g.seen[p] {
		return
	}
	if dir := path.Dir(p); dir != "." {
		g.add(dir, false)
	}
	g.seen[p] = true
	g.parts = append(g.parts, Part{p, readOnly})
}

// bare reports whether git takes the directory for a repository without the name .git.
func bare(at string, e fs.DirEntry) bool {
	has := func(name string) bool {
		_, err := os.Lstat(filepath.Join(at, name))
		return err == nil
	}
	return e.IsDir() && has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}

// mountOf returns the id of the mount that a path lies on.
func mountOf(p string) (uint64, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, p, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &st); err != nil {
		return 0, fmt.Errorf("look at %s: %w", p, err)
	}
	return st.Mnt_id, nil
}
