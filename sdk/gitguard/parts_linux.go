package gitguard

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/gitindex"
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

// Parts lists what to mount in the directory workspace, parents first. It changes nothing there, so it cannot guard
// what does not exist yet; the directories of submodules that are not cloned become read-only. A directory that cannot
// be read is left out: the sandbox's user cannot read it either. Parts returns an error where a repository cannot be
// guarded.
func Parts(workspace, mode string) ([]Part, error) {
	workspace, err := filepath.EvalSymlinks(workspace) // WalkDir does not follow a link to the workspace
	if err != nil {
		return nil, err
	}
	g := guard{workspace: workspace, mode: mode, readOnly: map[string]bool{}}
	if g.mount, err = mountOf(workspace); err != nil {
		return nil, err
	}
	if err := each(workspace, g.repository); err != nil {
		return nil, err
	}
	var parts []Part
	for _, p := range slices.Sorted(maps.Keys(g.readOnly)) {
		parts = append(parts, Part{p, g.readOnly[p]})
	}
	return parts, nil
}

type guard struct {
	workspace, mode string
	mount           uint64 // that the workspace lies on
	repositories    int
	readOnly        map[string]bool // the parts
}

func (g *guard) repository(rel string, e fs.DirEntry) error {
	at := filepath.Join(g.workspace, rel)
	if rel == "" && g.mode != Writable {
		return fmt.Errorf("the shared workspace %s is itself a git repository's directory, which must not be written", at)
	}
	if e.Type() == fs.ModeSymlink {
		return fmt.Errorf("%s is a symbolic link, which cannot be guarded in a shared workspace", at)
	}
	if err := g.add(rel, g.mode != Writable || !e.IsDir()); err != nil {
		return err
	}
	if g.mode != Writable {
		if strings.EqualFold(e.Name(), ".git") {
			return g.submodules(path.Dir(rel), at)
		}
		return nil
	}
	for _, name := range []string{"commondir", "config", "config.worktree", "hooks"} {
		if st, err := os.Lstat(filepath.Join(at, name)); err == nil && (st.Mode().IsRegular() || st.IsDir()) {
			g.readOnly[path.Join(rel, name)] = true
		}
	}
	return nil
}

// submodules adds the submodules of the repository with the work tree dir that are not cloned. What has a .git is found
// by itself. git status runs in every directory that the index calls a submodule.
func (g *guard) submodules(dir, dotGit string) error {
	file, err := gitindex.Of(dotGit)
	if err != nil {
		return nil // git takes it for no repository either, and it becomes read-only
	}
	x, err := gitindex.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for err == nil && x.Next() {
		const gitlink = 0o160000
		if x.Mode != gitlink {
			continue
		}
		p := path.Join(dir, string(x.Path))
		at := filepath.Join(g.workspace, p)
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			continue
		}
		if real, err := filepath.EvalSymlinks(at); err != nil || real != at || !filepath.IsLocal(p) {
			return fmt.Errorf("the submodule %s of a shared workspace has no directory (git submodule update --init makes it)",
				at)
		}
		if err := g.add(p, true); err != nil {
			return err
		}
	}
	if err == nil {
		err = x.Err
	}
	if err != nil {
		return fmt.Errorf("the submodules of a shared workspace are not known: %s: %w", file, err)
	}
	return nil
}

// add adds a repository, or the place for one, and the directories above it.
func (g *guard) add(p string, readOnly bool) error {
	at := filepath.Join(g.workspace, p)
	if g.repositories++; g.repositories > most {
		return fmt.Errorf("a shared workspace can have at most %d git repositories, and %s has more", most, g.workspace)
	}
	if m, err := mountOf(at); err != nil || m != g.mount {
		return fmt.Errorf("the git repository %s is on another mount than the shared workspace, where it cannot be guarded",
			at)
	}
	if p == "" {
		return nil
	}
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if _, ok := g.readOnly[dir]; !ok {
			g.readOnly[dir] = false
		}
	}
	g.readOnly[p] = g.readOnly[p] || readOnly
	return nil
}

// mountOf returns the id of the mount that a path lies on.
func mountOf(p string) (uint64, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, p, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &st); err != nil {
		return 0, fmt.Errorf("look at %s: %w", p, err)
	}
	return st.Mnt_id, nil
}
