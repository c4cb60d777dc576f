package main

import (
	"os"
	"path/filepath"
)

// guarded are the parts of a repository that make the git of the host run programs: hooks, and settings such as
// core.fsmonitor. Everything else of it stays writable, so that commits can be made.
var guarded = []string{"config", "config.worktree", "hooks"}

// guardGit keeps a sandbox from planting programs in a shared workspace that the user's next git command would run.
// The parts that are there become read-only. The directory itself is mounted on itself, because a mount point cannot
// be renamed: otherwise another one could be put in its place. What is not there cannot be guarded without leaving
// something in the user's directory; hooks and config are in every repository that git made.
func (l *layout) guardGit(source, at string) {
	st, err := os.Lstat(filepath.Join(source, ".git"))
	switch {
	case err != nil:
		return
	case st.Mode().IsRegular(): // of a worktree or a submodule: it names the repository
		l.bind(project+"/.git", at+"/.git", true)
		return
	case !st.IsDir():
		return
	}
	l.bind(project+"/.git", at+"/.git", false)
	for _, name := range guarded {
		st, err := os.Lstat(filepath.Join(source, ".git", name))
		if err == nil && (st.Mode().IsRegular() || st.IsDir()) {
			l.bind(project+"/.git/"+name, at+"/.git/"+name, true)
		}
	}
}
