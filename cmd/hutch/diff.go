package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/workspace"
	"github.com/hutch-run/hutch/host/workspace/review"
)

type diffCmd struct {
	sandboxArg
	Paths    []string `arg:"" optional:"" name:"path" help:"Only what changed at and below these: relative to the project, or absolute." complete:"path"`
	Stat     bool     `xor:"form" help:"A line for each path, with the number of lines that changed."`
	NameOnly bool     `xor:"form" help:"Only the paths."`
	Output   string   `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one object, with the hunks and with what stands against applying each change."`
	Color    string   `enum:"auto,always,never" default:"auto" placeholder:"WHEN" help:"auto (default): on a terminal, unless NO_COLOR is set; always; never."`
	Merge    bool     `help:"Show texts that both sides changed in different places as hutch apply --merge would make them."`
	ExitCode bool     `help:"Exit with 1 when there are changes, with 0 when there are none."`
}

// Help is the text below the synopsis.
func (*diffCmd) Help() string {
	return `Compares the sandbox's workspace with the project as it is now, with git or without. Untracked, ignored and
nested repositories' files are in it. The text is a patch for git apply and patch; on a terminal, control characters
in it are shown and not sent.

What keeps a change from being applied is reported on stderr, and in the JSON: a path that the project's side changed
as well since the sandbox was made, and what hutch apply refuses by default.

    hutch diff box
    hutch diff box --stat
    hutch diff box --name-only src docs/guide.md
    hutch diff box -o json`
}

func (c *diffCmd) Run(ctx context.Context, u *ui) error {
	o := review.Options{Paths: c.Paths, Merge: c.Merge, Unjudged: c.NameOnly && c.Output == "text"}
	return reviewed(ctx, u, c.Sandbox, sandbox.Shared, o, func(r *workspace.Review) error {
		out := bufio.NewWriterSize(u.out, 64<<10)
		style := review.Style{Color: colorful(c.Color, u.outTTY), Terminal: u.outTTY, Width: u.width}
		var err error
		switch {
		case c.Output == "json":
			var d *review.Document
			if d, err = r.Document(ctx); err == nil {
				err = u.json(d)
			}
		case c.NameOnly:
			err = r.Names(out)
		case c.Stat:
			err = r.Stat(ctx, out, style)
		default:
			err = r.Unified(ctx, out, style)
		}
		if err = errors.Join(err, out.Flush()); err != nil {
			return err
		}
		if len(r.Changes) == 0 && len(c.Paths) > 0 && c.Output == "text" {
			nothingAt(u, c.Paths, r.Review)
		}
		if r.Gaps != nil {
			u.note("there may be more changes: %s", r.Gaps)
		}
		if c.Output == "text" && !c.NameOnly {
			obstacles(u, r.Review)
		}
		if c.ExitCode && len(r.Changes) > 0 {
			return exit(1)
		}
		return nil
	})
}

// nothingAt says that nothing changed at the paths that were named, one of which may be mistyped.
func nothingAt(u *ui, paths []string, r *review.Review) {
	u.note("nothing changed at %s, compared with %s", strings.Join(quoted(paths), ", "), r.Subject.Project)
}

// marked names the changes that a reviewer should look at although they are applied without a flag.
func marked(u *ui, list []*review.Change) {
	byMark, order := map[string][]string{}, []string{}
	for _, c := range list {
		for _, m := range c.Marks {
			if byMark[m] == nil {
				order = append(order, m)
			}
			byMark[m] = append(byMark[m], review.Quote(c.Path))
		}
	}
	for _, m := range order {
		paths := byMark[m]
		if n := len(paths) - 3; n > 0 {
			paths = append(paths[:3:3], fmt.Sprintf("%d more", n))
		}
		u.note("look at %s: %s", strings.Join(paths, ", "), m)
	}
}

// obstacles says in a line each what an apply would meet.
func obstacles(u *ui, r *review.Review) {
	conflicts, refused, never, flags := 0, 0, 0, []string{}
	marked(u, r.Changes)
	for _, c := range r.Changes {
		switch {
		case c.Left != "":
		case c.Conflict != "":
			conflicts++
		case slices.ContainsFunc(c.Refused, func(f judge.Finding) bool { return f.Rule.Flag() == "" }):
			never++
		case len(c.Refused) > 0:
			refused++
			for _, f := range c.Refused {
				if f := f.Rule.Flag(); f != "" && !slices.Contains(flags, f) {
					flags = append(flags, f)
				}
			}
		}
	}
	if conflicts > 0 {
		u.note("%s changed on both sides: hutch apply --dry-run says where", count(conflicts, "path"))
	}
	if refused > 0 {
		slices.Sort(flags)
		u.note("%s would be refused by hutch apply without %s", count(refused, "change"), strings.Join(flags, " "))
	}
	if never > 0 {
		u.note("%s would be refused by hutch apply whatever its flags: hutch apply --dry-run says why",
			count(never, "change"))
	}
}

// colorful decides about colour on stdout.
func colorful(when string, tty bool) bool {
	switch when {
	case "always":
		return true
	case "never":
		return false
	}
	return tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
