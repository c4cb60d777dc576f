package review

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/safepath"
)

// Rule names what a change is refused for. Rules are stable: they are part of the JSON, and of the flags that allow
// what they forbid.
type Rule string

// The rules that can be allowed, each by the flag --allow-RULE.
const (
	RuleGit           Rule = "git"            // anything of a git repository's own files, in any directory
	RuleTools         Rule = "tools"          // files that the host's tools execute or obey without being asked
	RuleExec          Rule = "exec"           // a file becomes executable
	RuleSetID         Rule = "setid"          // a set-user-id or set-group-id bit
	RuleLinks         Rule = "links"          // a symbolic link that is absolute or leads out of the project
	RuleWorldWritable Rule = "world-writable" // everybody on the machine could write it
	RuleCollisions    Rule = "collisions"     // the same file as another one where case or Unicode form does not count
)

// The rules that nothing allows.
const (
	RuleSpecial    Rule = "special"    // a FIFO, a socket or a device
	RuleUnreadable Rule = "unreadable" // it cannot be read safely, or at all
	RuleEscapes    Rule = "escapes"    // its directory in the project is a symbolic link
)

// Allowable are the rules that a user can allow.
var Allowable = []Rule{RuleGit, RuleTools, RuleExec, RuleSetID, RuleLinks, RuleWorldWritable, RuleCollisions}

// Flag is the flag that allows what the rule forbids; "" when nothing does.
func (r Rule) Flag() string {
	if slices.Contains(Allowable, r) {
		return "--allow-" + string(r)
	}
	return ""
}

func (c *Change) refuse(rule Rule, format string, args ...any) {
	c.Refused = append(c.Refused, Refusal{rule, fmt.Sprintf(format, args...)})
}

// judge finds what is refused by default. Only what a change adds to the project's risk counts: a file that was
// executable may stay so.
func (r *Review) judge() {
	byPath := map[string]*Change{}
	for _, c := range r.Changes {
		for _, p := range c.parts() {
			byPath[p.Path] = c
		}
	}
	bare := map[string]bool{} // directories known to be a bare repository or not
	for _, c := range r.Changes {
		for _, p := range c.parts() {
			switch {
			case gitPath(p.Path) && path.Base(p.Path) == "index":
				c.Left = "it is git's own note of the sandbox's files"
			case gitPath(p.Path):
				c.refuse(RuleGit, "it belongs to a git repository, whose hooks and settings run programs")
			case r.inBare(p, byPath, bare):
				c.refuse(RuleGit, "it belongs to a bare git repository, whose hooks and settings run programs")
			case obeyed(p.Path) != "":
				c.refuse(RuleTools, "%s runs or obeys it without being asked", obeyed(p.Path))
			}
		}
		if c.New.Type == Special || c.Old.Type == Special {
			c.refuse(RuleSpecial, "it is a FIFO, a socket or a device")
		}
		old := c.Old
		if c.from != nil {
			old = c.from.Old
		}
		if old.Type != c.New.Type {
			old = Node{}
		}
		fresh := c.New.Mode &^ old.Mode
		if c.New.Type == File && fresh&execBits != 0 {
			c.refuse(RuleExec, "it becomes executable (mode %04o)", c.New.Mode)
		}
		if (c.New.Type == File || c.New.Type == Directory) && fresh&setidBits != 0 && !r.inherits(c) {
			c.refuse(RuleSetID, "it gets a set-id bit (mode %04o)", c.New.Mode)
		}
		if (c.New.Type == File || c.New.Type == Directory) && fresh&otherMay != 0 {
			c.refuse(RuleWorldWritable, "everybody may write it (mode %04o)", c.New.Mode)
		}
		if c.New.Type == Symlink && leadsOut(parentOf(c.Path), c.New.Link) {
			c.refuse(RuleLinks, "it links to %q, outside the project", c.New.Link)
		}
		if _, _, err := r.project.parent(c.Path); errors.Is(err, errLinked) && !replaced(c.Path, byPath) {
			c.refuse(RuleEscapes, "its directory is a symbolic link in the project")
		}
	}
	r.collisions(byPath)
}

// inherits reports whether a directory has its set-group-id bit from the one it lies in.
func (r *Review) inherits(c *Change) bool {
	if c.New.Type != Directory || c.New.Mode&unix.S_ISUID != 0 {
		return false
	}
	if up := parentOf(c.Path); up != "" {
		n, _, err := r.project.look(up)
		return err == nil && n.Type == Directory && n.Mode&unix.S_ISGID != 0
	}
	var st unix.Stat_t
	return unix.Fstat(r.project.top, &st) == nil && uint32(st.Mode)&unix.S_ISGID != 0
}

// replaced reports whether a directory above path is one that the sandbox put in the place of something else.
func replaced(p string, byPath map[string]*Change) bool {
	for p = parentOf(p); p != ""; p = parentOf(p) {
		if c := byPath[p]; c != nil && c.Kind == Retyped && c.New.Type == Directory {
			return true
		}
	}
	return false
}

// gitPath reports whether an element of the path is .git, however a file system may spell that.
func gitPath(p string) bool {
	for name := range strings.SplitSeq(p, "/") {
		if name == ".git" || len(name) >= 4 && (safepath.Fold(name) == ".git" || strings.EqualFold(name, "git~1")) {
			return true
		}
	}
	return false
}

// inBare reports whether the change is about the settings or hooks of a bare repository, which git obeys in any directory
// that has HEAD, objects and refs in it.
func (r *Review) inBare(c *Change, byPath map[string]*Change, known map[string]bool) bool {
	if c.New.Type == Nothing {
		return false
	}
	in := parentOf(c.Path)
	switch name := path.Base(c.Path); {
	case name == "HEAD" || name == "config" || name == "hooks" || name == "config.worktree":
	case path.Base(in) == "hooks":
		in = parentOf(in)
	default:
		return false
	}
	is, ok := known[in]
	if !ok {
		is = true
		for _, name := range []string{"HEAD", "objects", "refs"} {
			p := path.Join(in, name)
			if c := byPath[p]; c != nil {
				is = is && c.New.Type != Nothing
				continue
			}
			n, _, err := r.project.look(p)
			is = is && err == nil && n.Type != Nothing
		}
		known[in] = is
	}
	return is
}

// leadsOut reports whether a symbolic link in the directory dir can lead out of the project: it is absolute, goes up
// further than dir is deep, or goes up after it went down, where the way up depends on what other links make of the
// way down.
func leadsOut(dir, target string) bool {
	if target == "" || strings.HasPrefix(target, "/") {
		return true
	}
	depth := 0
	if dir != "" {
		depth = strings.Count(dir, "/") + 1
	}
	down := false
	for name := range strings.SplitSeq(target, "/") {
		switch name {
		case "", ".":
		case "..":
			if depth--; down || depth < 0 {
				return true
			}
		default:
			down = true
		}
	}
	return false
}

// collisions refuses new names that some file system takes for the name of a neighbour.
func (r *Review) collisions(byPath map[string]*Change) {
	fresh := map[string][]*Change{} // by directory
	for _, c := range r.Changes {
		if c.Old.Type == Nothing && c.New.Type != Nothing {
			fresh[parentOf(c.Path)] = append(fresh[parentOf(c.Path)], c)
		}
	}
	for in, list := range fresh {
		names, err := r.project.list(in)
		if err != nil {
			names = nil // it is new, or an apply fails in it
		}
		there := map[string]string{}
		for _, name := range names {
			if c := byPath[path.Join(in, name)]; c == nil || c.Path == path.Join(in, name) && c.New.Type != Nothing {
				there[fold(name)] = name
			}
		}
		for _, c := range list {
			name := path.Base(c.Path)
			key := fold(name)
			if other, ok := there[key]; ok && other != name {
				c.refuse(RuleCollisions, "where case or Unicode form does not count it is the same as %q", other)
			}
			there[key] = name
		}
	}
}

// fold is safepath.Fold, which for a plain name is the name itself.
func fold(name string) string {
	if plain(name) {
		return name
	}
	return safepath.Fold(name)
}
