// Package ignore says which files of a project are not sent: those that its .gitignore and .hutchignore files name.
//
// The rules are git's, see gitignore(5); a .hutchignore has the same form, and counts after the .gitignore
// beside it. Files outside the project, such as a person's core.excludesFile, are not looked at.
package ignore

import (
	"errors"
	"os"
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// The names of the files that hold rules.
const (
	Git   = ".gitignore"
	Hutch = ".hutchignore"
)

const maxFile = 1 << 20 // bytes of one file of rules

// Rules are those of one project. They are read as directories are come to. Not safe for concurrent use.
type Rules struct {
	root  *os.Root
	names []string
	dirs  map[string][]rule // directory -> the rules of its files
	err   error
}

// New returns the rules of the project at root, from files of the given names, of which later ones count more.
func New(root *os.Root, names ...string) *Rules {
	return &Rules{root: root, names: names, dirs: map[string][]rule{}}
}

// Err returns what kept a file of rules from being read. Rules that could not be read must not count as none.
func (r *Rules) Err() error { return r.err }

// Skip reports whether what is at p, a clean path below the root, is not sent. What is below a directory that is
// skipped is skipped as well and need not be asked for.
func (r *Rules) Skip(p string, isDir bool) bool {
	skip := false
	// The rules of a directory closer to p count more, and so do later ones of one directory.
	for at := 0; ; {
		dir := p[:max(at-1, 0)]
		for _, rule := range r.of(dir) {
			if rule.matches(p[at:], isDir) {
				skip = !rule.keep
			}
		}
		next := strings.IndexByte(p[at:], '/')
		if next < 0 {
			return skip
		}
		at += next + 1
	}
}

// of returns the rules in the directory dir, "" being the root.
func (r *Rules) of(dir string) []rule {
	if rules, ok := r.dirs[dir]; ok {
		return rules
	}
	var rules []rule
	for _, name := range r.names {
		b, err := safefile.ReadFile(r.root, path.Join(dir, name), maxFile)
		var refused *safefile.Error
		switch {
		case errors.As(err, &refused) && (refused.Reason == safefile.ReasonMissing ||
			refused.Reason == safefile.ReasonSymlink || refused.Reason == safefile.ReasonDir):
			// git follows no link here either
		case err != nil:
			r.err = errors.Join(r.err, err)
		default:
			rules = append(rules, parse(string(b))...)
		}
	}
	r.dirs[dir] = rules
	return rules
}

// rule is one line.
type rule struct {
	pattern string // for the whole path below the file's directory
	keep    bool   // the line began with !
	dirs    bool   // it ended with /
}

func (r rule) matches(p string, isDir bool) bool {
	if r.dirs && !isDir {
		return false
	}
	ok, err := doublestar.Match(r.pattern, p)
	return err == nil && ok
}

func parse(text string) (rules []rule) {
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if r, ok := parseLine(line); ok {
			rules = append(rules, r)
		}
	}
	return rules
}

func parseLine(line string) (r rule, ok bool) {
	if strings.HasPrefix(line, "#") {
		return r, false
	}
	line = trimSpaces(line)
	line, r.keep = strings.CutPrefix(line, "!")
	line, r.dirs = strings.CutSuffix(line, "/")
	if line == "" {
		return r, false
	}
	anchored := strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	// alternatives are doublestar's, not git's
	line = strings.NewReplacer("{", `\{`, "}", `\}`).Replace(unescapeBraces(line))
	if !anchored {
		line = "**/" + line
	}
	if strings.HasSuffix(line, "/**") { // what is in it, and not the directory itself
		line += "/*"
	}
	r.pattern = line
	return r, doublestar.ValidatePattern(line)
}

// unescapeBraces takes the backslash from a brace, which is a plain character for git either way.
func unescapeBraces(s string) string {
	return strings.NewReplacer(`\\`, `\\`, `\{`, "{", `\}`, "}").Replace(s)
}

// trimSpaces takes spaces from the end of a line, except one that a backslash stands before.
func trimSpaces(s string) string {
	for strings.HasSuffix(s, " ") {
		escapes := 0
		for i := len(s) - 2; i >= 0 && s[i] == '\\'; i-- {
			escapes++
		}
		if escapes%2 == 1 {
			return s
		}
		s = s[:len(s)-1]
	}
	return s
}
