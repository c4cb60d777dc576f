package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hutch-run/hutch/host/workspace"
	"github.com/hutch-run/hutch/host/workspace/review"
)

// applying is one apply that is about to happen.
type applying struct {
	*workspace.Review
	answer bool // of a model, which comes from no sandbox
	picks  []review.Pick
	policy review.Policy
	ledger *review.Ledger
	dryRun bool
	json   bool
	quiet  bool     // says nothing on stdout
	paths  []string // that alone were asked for
}

// applied is the JSON answer of apply.
type applied struct {
	Schema    string        `json:"schema"` // hutch.applied/v1
	Sandbox   string        `json:"sandbox"`
	Project   string        `json:"project"`
	DryRun    bool          `json:"dry_run,omitempty"`
	Undone    bool          `json:"undone,omitempty"`
	Applied   []appliedPath `json:"applied"`
	Left      []leftPath    `json:"left"` // conflicts and refused changes; without --partial nothing is applied when there is one
	UndoUntil *time.Time    `json:"undo_until,omitempty"`
}

type appliedPath struct {
	Path   string      `json:"path"`
	From   string      `json:"from,omitempty"`
	Kind   review.Kind `json:"kind,omitempty"`
	Part   bool        `json:"part,omitempty"`   // chosen hunks, not all of it
	Merged bool        `json:"merged,omitempty"` // with what the project's side changed
	Marks  []string    `json:"marks,omitempty"`  // what a reviewer should know of it
}

type leftPath struct {
	Path     string                `json:"path"`
	Conflict string                `json:"conflict,omitempty"`
	Sides    *review.DocumentSides `json:"sides,omitempty"` // of a conflict
	Refused  []review.DocumentRule `json:"refused,omitempty"`
}

const appliedSchema = "hutch.applied/v1"

// applyPicks plans, applies and reports.
func applyPicks(ctx context.Context, u *ui, a applying) error {
	r := a.Review
	doc := applied{Schema: appliedSchema, Sandbox: r.Subject.Name, Project: r.Subject.Project, DryRun: a.dryRun,
		Applied: []appliedPath{}, Left: []leftPath{}}
	done, err := r.Apply(ctx, a.ledger, a.picks, a.policy, a.dryRun)
	var blocked *review.BlockedError
	if errors.As(err, &blocked) {
		return a.blocked(ctx, u, doc, blocked)
	}
	if err != nil {
		return err
	}
	if doc.Left, err = leftOut(ctx, u, done.Left, a); err != nil {
		return err
	}
	for _, n := range done.Notes {
		u.note("%s", n)
	}
	if done.Undo != "" {
		doc.UndoUntil = &done.Until
		defer func() { u.note("%s takes it back, until %s", done.Undo, done.Until.Local().Format("2 January")) }()
	}
	var taken []*review.Change
	for _, pick := range done.Taken {
		c := pick.Change
		doc.Applied = append(doc.Applied, appliedPath{c.Path, c.From, c.Kind, !pick.Whole, c.Merged, c.Marks})
		taken = append(taken, c)
		if a.json || a.quiet {
			continue
		}
		if err := u.line("%s", takenLine(pick)); err != nil {
			return err
		}
	}
	if a.json {
		if err := u.json(doc); err != nil {
			return err
		}
	}
	marked(u, taken)
	switch {
	case len(done.Taken) == 0 && len(a.paths) > 0 && len(done.Left) == 0:
		nothingAt(u, a.paths, r.Review)
	case len(done.Taken) == 0:
		u.note("nothing to apply to %s", r.Subject.Project)
	case a.dryRun:
		u.note("would apply %s to %s", count(len(done.Taken), "change"), r.Subject.Project)
	default:
		u.note("applied %s to %s", count(len(done.Taken), "change"), r.Subject.Project)
	}
	return nil
}

// blocked says what keeps everything from being applied, and how to go on.
func (a applying) blocked(ctx context.Context, u *ui, doc applied, by *review.BlockedError) error {
	var err error
	if doc.Left, err = leftOut(ctx, u, slices.Concat(by.Conflicts, by.Refused), a); err != nil {
		return err
	}
	if a.json {
		if err := u.json(doc); err != nil {
			return err
		}
	}
	if a.answer { // nothing that could be applied in part
		return blockedError{by}
	}
	hints := []string{"name the paths that you want, or leave these out with --partial"}
	if len(by.Conflicts) > 0 {
		at, name := review.Quote(by.Conflicts[0].Path), a.Review.Subject.Name
		hints = append(hints,
			fmt.Sprintf("settle a conflict: hutch apply %s -i %s chooses hunk by hunk, hutch apply %s %s --take %s takes the "+
				"sandbox's version", name, at, name, at, at))
	}
	return &hinted{blockedError{by}, hints}
}

// takenLine is a change that was applied, as a person reads it.
func takenLine(pick review.Pick) string {
	c := pick.Change
	line := c.Kind.Letter() + " " + review.Quote(c.Path)
	if c.From != "" {
		line = c.Kind.Letter() + " " + review.Quote(c.From) + " => " + review.Quote(c.Path)
	}
	switch {
	case !pick.Whole:
		line += " (in part)"
	case c.Merged:
		line += " (merged)"
	}
	return line
}

// mostLeft is how many changes are named one by one when they are left out; of more, the number is reported.
const mostLeft = 30

// mostExplained is the number of conflicts whose both sides are shown.
const mostExplained = 10

// leftOut says why changes are left out.
func leftOut(ctx context.Context, u *ui, list []*review.Change, a applying) ([]leftPath, error) {
	out := []leftPath{}
	for i, c := range list {
		l := leftPath{Path: c.Path, Conflict: c.Conflict, Sides: c.Sides.Document()}
		lines := c.Reasons(a.policy.Allow)
		switch {
		case c.Conflict == "":
			l.Refused = c.Refusals(a.policy.Allow)
		case i < mostExplained:
			more, err := a.Explain(ctx, c)
			if err != nil {
				return nil, err
			}
			for _, m := range more {
				lines = append(lines, "  "+m)
			}
		}
		if i < mostLeft {
			for _, line := range lines {
				u.note("%s", line)
			}
		}
		out = append(out, l)
	}
	if more := len(list) - mostLeft; more > 0 {
		u.note("and %d more; hutch diff %s -o json says what stands against each", more, a.Subject.Name)
	}
	return out, nil
}

// quoted makes paths fit for a terminal.
func quoted(paths []string) []string {
	out := make([]string, len(paths))
	for i, p := range paths {
		out[i] = review.Quote(p)
	}
	return out
}
