package judge

import (
	"strings"
)

// GitPath reports whether an element of the path is .git, however a file system may spell that.
func GitPath(p string) bool {
	for name := range strings.SplitSeq(p, "/") {
		if name == ".git" || len(name) >= 4 && (fold(name) == ".git" || strings.EqualFold(name, "git~1")) {
			return true
		}
	}
	return false
}

// gitNames are the names in a repository's directory by which git finds it, or from which it takes orders.
var gitNames = map[string]bool{
	"head": true, "commondir": true, "objects": true, "refs": true, "config": true, "config.worktree": true, "hooks": true,
	"gitdir": true, "index": true, "info": true, "modules": true, "packed-refs": true, "reftable": true, "worktrees": true,
}

// repositories knows which directories git takes, or could take, for a repository without the name .git. The conditions
// are those of is_git_directory in git's setup.c, without looking into the files: HEAD, and objects and refs in the
// same directory or in the one that commondir names. config and hooks are those of the directory with objects and refs,
// config.worktree that of the directory with HEAD.
//
// A name counts when it is there before or after the landing, so that a landing in several steps comes to the same, and
// so that a repository which a part of the changes deletes stays one for the rest.
type repositories struct {
	to    Place
	after map[string]map[string]bool // directory, name in it, both folded: whether something but a directory is at it
	known map[string]repository
}

// repository is what is known of one directory.
type repository struct {
	found bool // git takes it for a repository
	store bool // a HEAD elsewhere whose commondir names this directory makes a repository of the two
	whole bool // store, before anything lands
}

func (c *court) repositories() *repositories {
	r := &repositories{to: c.to, after: map[string]map[string]bool{}, known: map[string]repository{}}
	for i := range c.changes {
		x := &c.changes[i]
		for dir, name := range gitParts(x.Path) {
			at := r.after[fold(dir)]
			if at == nil {
				at = map[string]bool{}
				r.after[fold(dir)] = at
			}
			last := len(x.Path) == len(dir)+len(name) || dir != "" && len(x.Path) == len(dir)+1+len(name)
			notDir := last && (x.New.There && !x.New.isDir() || x.Old.There && !x.Old.isDir())
			at[fold(name)] = at[fold(name)] || notDir
		}
	}
	return r
}

// gitParts are the elements of a path that are git's own names, each with the directory that it lies in.
func gitParts(p string) func(yield func(dir, name string) bool) {
	return func(yield func(string, string) bool) {
		for at := 0; at <= len(p); {
			end := len(p)
			if i := strings.IndexByte(p[at:], '/'); i >= 0 {
				end = at + i
			}
			if gitNames[fold(p[at:end])] && !yield(p[:max(at-1, 0)], p[at:end]) {
				return
			}
			at = end + 1
		}
	}
}

// part reports whether the change makes a repository, or is about one.
func (r *repositories) part(x *Change) bool {
	for dir, name := range gitParts(x.Path) {
		repo := r.look(dir)
		switch fold(name) {
		case "config", "config.worktree", "hooks":
			if repo.found || repo.store {
				return true
			}
		case "objects", "refs": // the last part of a store that has settings already
			if repo.found || repo.store && !repo.whole && (r.has(dir, "config", false) || r.has(dir, "hooks", false)) {
				return true
			}
		default:
			if repo.found {
				return true
			}
		}
	}
	return false
}

func (r *repositories) look(dir string) repository {
	repo, ok := r.known[dir]
	if !ok {
		repo.store = r.has(dir, "objects", false) && r.has(dir, "refs", false)
		repo.found = r.has(dir, "HEAD", true) && (repo.store || r.has(dir, "commondir", true))
		repo.whole = repo.store && r.stands(dir, "objects").There && r.stands(dir, "refs").There
		r.known[dir] = repo
	}
	return repo
}

// has reports whether there is something of this name in dir, before or after the landing: a file where that is asked.
func (r *repositories) has(dir, name string, file bool) bool {
	if notDir, ok := r.after[fold(dir)][fold(name)]; ok && (notDir || !file) {
		return true
	}
	n := r.stands(dir, name)
	return n.There && !(file && n.isDir())
}

func (r *repositories) stands(dir, name string) Node {
	if dir != "" {
		name = dir + "/" + name
	}
	return r.to.Look(name)
}
