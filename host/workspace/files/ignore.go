package files

import (
	"context"
	"path"
	"strings"
	"sync"

	"github.com/bmatcuk/doublestar/v4"
)

// ignorer knows which paths of the workspace git ignores: .git itself, and what the .gitignore files say, or the first
// one where the workspace is not on this host. Those of the user and of .git/info are not read.
type ignorer struct {
	read func(file string) string // "" without one

	mu    sync.Mutex
	rules map[string][]ignoreRule // by directory
}

// ignoreRule is one line of a .gitignore.
type ignoreRule struct {
	glob    string // relative to the file's directory
	negated bool
	dirs    bool // directories only
}

func (f *Files) ignorer(ctx context.Context) *ignorer {
	return &ignorer{rules: map[string][]ignoreRule{}, read: func(file string) string {
		s, err := f.find(file)
		if err != nil || s.area.name != "workspace" {
			return ""
		}
		if _, here := s.view.(*layered); !here && file != ".gitignore" { // each is a request to the backend
			return ""
		}
		b, _, err := f.content(ctx, s)
		if err != nil {
			return ""
		}
		return string(b)
	}}
}

// skips reports whether a path, relative to the workspace, is ignored by itself. The caller does not go into a
// directory that is.
func (i *ignorer) skips(name string, isDir bool) bool {
	if i == nil || name == "." || path.IsAbs(name) {
		return false
	}
	if path.Base(name) == ".git" {
		return true
	}
	for dir := path.Dir(name); ; dir = path.Dir(dir) { // the nearest file with a matching line decides
		rel := strings.TrimPrefix(name, dir+"/")
		rules := i.of(dir)
		for n := len(rules) - 1; n >= 0; n-- {
			r := rules[n]
			if ok, _ := doublestar.Match(r.glob, rel); ok && (isDir || !r.dirs) {
				return !r.negated
			}
		}
		if dir == "." {
			return false
		}
	}
}

func (i *ignorer) of(dir string) []ignoreRule {
	i.mu.Lock()
	defer i.mu.Unlock()
	rules, known := i.rules[dir]
	if !known {
		rules = ignoreRules(i.read(path.Join(dir, ".gitignore")))
		i.rules[dir] = rules
	}
	return rules
}

// ignoreRules reads a .gitignore. Braces mean nothing to git.
func ignoreRules(text string) (rules []ignoreRule) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if trimmed := strings.TrimRight(line, " "); !strings.HasSuffix(trimmed, `\`) {
			line = trimmed
		}
		if line == "" || line[0] == '#' {
			continue
		}
		r := ignoreRule{}
		line, r.negated = strings.CutPrefix(line, "!")
		line, r.dirs = strings.CutSuffix(line, "/")
		if !strings.Contains(line, "/") {
			line = "**/" + line
		}
		r.glob = strings.NewReplacer("{", `\{`, "}", `\}`).Replace(strings.TrimPrefix(line, "/"))
		if doublestar.ValidatePattern(r.glob) {
			rules = append(rules, r)
		}
	}
	return rules
}
