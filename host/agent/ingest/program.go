package ingest

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/run/deps"
	"github.com/hutch-run/hutch/host/run/language"
)

// Program is what of an answer is run, and how.
type Program struct {
	Entrypoint   string
	Language     string // hutch's name of it; "" when the entrypoint's extension says it
	Dependencies []string
}

// Program settles what is run: what want says, else what the answer says, else what its files make plain. The error is
// an *Error when it is for the answer's author to mend.
func (a *Answer) Program(want Program) (Program, error) {
	p := &parser{out: *a}
	out := Program{Entrypoint: a.Entrypoint, Language: a.Language, Dependencies: slices.Clone(a.Dependencies)}
	if want.Entrypoint != "" {
		out.Entrypoint = want.Entrypoint
	}
	if want.Language != "" {
		out.Language = want.Language
	}
	out.Dependencies = append(out.Dependencies, want.Dependencies...)
	names := sortedNames(a.Files)
	switch {
	case len(a.Changes) > 0 && len(a.Files) == 0:
		p.fail(0, "the answer is a patch of files that it does not hold, so there is nothing to run", "give whole files")
		return out, p.err()
	case len(names) == 0:
		p.fail(0, "there is no file to run", "")
		return out, p.err()
	}
	if out.Entrypoint == "" {
		out.Entrypoint = a.guessEntrypoint(names)
	}
	switch {
	case out.Entrypoint == "":
		p.fail(0, "it does not say which file is to be run", `say it with "entrypoint", one of `+shortList(names))
	case !slices.Contains(names, out.Entrypoint):
		q := Problem{Message: fmt.Sprintf("the entrypoint %q is not among the files", clip(out.Entrypoint)),
			Hint: "it is one of " + shortList(names)}
		for _, w := range strings.Fields(out.Entrypoint) {
			if w != out.Entrypoint && slices.Contains(names, w) {
				q.Hint = fmt.Sprintf("an entrypoint is a file and no command: write %q", w)
			}
		}
		p.problem(q)
	}
	if out.Language != "" {
		l, ok := languageOf(out.Language)
		if !ok {
			p.problem(unknownLanguage(out.Language))
		} else if out.Language = l.Name; path.Ext(out.Entrypoint) != "" &&
			slices.Contains(l.Extensions, path.Ext(out.Entrypoint)) {
			out.Language = ""
		}
	} else if _, ok := language.ByPath(out.Entrypoint); !ok && len(p.problems) == 0 {
		p.failIn(out.Entrypoint, 0, "its name does not say how it is run",
			"a program is in one of "+strings.Join(language.Names(),
				", ")+`; where the extension does not say which, "language" does`)
	}
	if err := deps.Check(out.Dependencies); err != nil {
		p.fail(0, err.Error(), "dependencies are names of packages, perhaps with a version")
	}
	if len(p.problems) > 0 {
		return out, p.err()
	}
	if l, ok := language.ByPath(out.Entrypoint); ok || out.Language != "" {
		if named, okay := language.ByName(out.Language); okay {
			l = named
		}
		if len(out.Dependencies) > 0 && (l == nil || l.Deps == nil) {
			p.fail(0, fmt.Sprintf("hutch installs no dependencies for %s", l.Name),
				"leave dependencies out; those of "+strings.Join(deps.Languages(), " and ")+" are installed")
			return out, p.err()
		}
	}
	return out, nil
}

func unknownLanguage(name string) Problem {
	return Problem{Message: fmt.Sprintf("hutch does not know the language %q", clip(name)),
		Hint: "it knows " + strings.Join(language.Names(), ", ")}
}

// guessEntrypoint finds the one file that can only be meant: the only program, or the only one called main, index, app
// or run that lies highest.
func (a *Answer) guessEntrypoint(names []string) string {
	var programs []string
	for _, n := range names {
		l, ok := language.ByPath(n)
		if !ok || a.Language != "" && !sameLanguage(l, a.Language) {
			continue
		}
		programs = append(programs, n)
	}
	if len(programs) == 1 {
		return programs[0]
	}
	if len(names) == 1 {
		return names[0]
	}
	for _, stem := range []string{"main", "__main__", "index", "app", "run"} {
		byDepth := map[int][]string{}
		for _, n := range programs {
			if base := path.Base(n); strings.TrimSuffix(base, path.Ext(base)) == stem {
				d := strings.Count(n, "/")
				byDepth[d] = append(byDepth[d], n)
			}
		}
		if len(byDepth) > 0 {
			if highest := byDepth[slices.Min(slices.Collect(maps.Keys(byDepth)))]; len(highest) == 1 {
				return highest[0]
			}
			return ""
		}
	}
	return ""
}

func sameLanguage(l *language.Language, name string) bool {
	n, ok := languageOf(name)
	return ok && n.Name == l.Name
}

func shortList(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
}
