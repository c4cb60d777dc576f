package review

import (
	"fmt"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/sdk/safefile"
)

func (c *Change) refuse(rule judge.Rule, detail string) {
	c.Refused = append(c.Refused, judge.Finding{Rule: rule, Detail: detail})
}

// judge has the changes judged.
func (r *Review) judge() {
	var list []judge.Change
	var of []*Change
	for _, c := range r.Changes {
		for _, p := range c.parts() {
			x := judge.Change{Path: p.Path, Old: judged(p.Old), New: judged(p.New)}
			if p == c && c.from != nil {
				was := judged(c.from.Old)
				x.From = &was
			}
			list, of = append(list, x), append(of, c)
		}
	}
	for i, v := range judge.Judge(list, place{r.project}) {
		c := of[i]
		if p := list[i].Path; judge.GitPath(p) && path.Base(p) == "index" {
			c.Left = "it is git's own note of the sandbox's files"
			v.Refused = slices.DeleteFunc(v.Refused, func(f judge.Finding) bool { return f.Rule == judge.Git })
		}
		c.Refused, c.Marks = append(c.Refused, v.Refused...), append(c.Marks, v.Marks...)
	}
}

// judged is a node as the judge sees it.
func judged(n Node) judge.Node {
	if n.Type == Nothing {
		return judge.Node{}
	}
	return judge.Node{There: true, Mode: n.Mode, Link: n.Link}
}

// place is the project as the judge sees it.
type place struct{ *dir }

// Look implements [judge.Place]. What cannot be looked at is nothing: an apply fails there.
func (p place) Look(at string) judge.Node {
	if at == "" {
		var st unix.Stat_t
		if unix.Fstat(p.top, &st) != nil {
			return judge.Node{}
		}
		return judged(nodeOf(safefile.StatOf(&st)))
	}
	n, err := p.look(at)
	if err != nil {
		return judge.Node{}
	}
	return judged(n)
}

// Names implements [judge.Place].
func (p place) Names(in string) []string {
	names, err := p.list(in)
	if err != nil {
		return nil
	}
	return names
}

// Reasons say in a line each why an apply with these allowances does not take the change.
func (c *Change) Reasons(allow map[judge.Rule]bool) []string {
	if c.Conflict != "" {
		line := fmt.Sprintf("conflict: %s: %s", Quote(c.Path), c.Conflict)
		if c.Sides != nil && c.Sides.Unmerged != "" {
			line += "; the two cannot be merged: " + c.Sides.Unmerged
		}
		return []string{line}
	}
	verb := "refused"
	if c.Left != "" {
		verb = "left out"
	}
	var lines []string
	for _, r := range c.Refusals(allow) {
		line := fmt.Sprintf("%s: %s: %s", verb, Quote(c.Path), r.Detail)
		if r.Flag != "" {
			line += " (" + r.Flag + ")"
		}
		lines = append(lines, line)
	}
	return lines
}

// Refusals are why an apply with these allowances does not take the change by itself, each with the flag that allows
// it; its conflict is not among them.
func (c *Change) Refusals(allow map[judge.Rule]bool) []DocumentRule {
	if c.Left != "" && !allow[judge.Git] {
		return []DocumentRule{{judge.Finding{Rule: judge.Git, Detail: c.Left}, judge.Git.Flag()}}
	}
	var list []DocumentRule
	for _, f := range c.Against(allow) {
		list = append(list, DocumentRule{f, f.Rule.Flag()})
	}
	return list
}
