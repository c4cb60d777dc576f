package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"

	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/workspace"
	"github.com/hutch-run/hutch/host/workspace/review"
)

// allowFlags allow what an apply refuses by default.
type allowFlags struct {
	AllowGit           bool `group:"allow" help:"Changes in git repositories' own files, in any directory."`
	AllowTools         bool `group:"allow" help:"Files that tools of this machine run or obey without being asked: settings of editors, coding agents and package managers, .envrc, .gitattributes."`
	AllowExec          bool `group:"allow" help:"Files that become executable."`
	AllowSetid         bool `group:"allow" help:"Set-user-id and set-group-id bits."`
	AllowLinks         bool `group:"allow" help:"Symbolic links that are absolute or lead out of the project."`
	AllowWorldWritable bool `group:"allow" help:"Files and directories that everybody may write."`
	AllowCollisions    bool `group:"allow" help:"Names that are the same as another where case or Unicode form does not count."`
}

func (a allowFlags) policy(partial bool) review.Policy {
	return review.Policy{Partial: partial, Allow: map[judge.Rule]bool{
		judge.Git: a.AllowGit, judge.Tools: a.AllowTools, judge.Exec: a.AllowExec, judge.SetID: a.AllowSetid,
		judge.Links: a.AllowLinks, judge.WorldWritable: a.AllowWorldWritable, judge.Collisions: a.AllowCollisions,
	}}
}

type applyCmd struct {
	sandboxArg
	Paths       []string `arg:"" optional:"" name:"path" help:"Only what changed at and below these: relative to the project, or absolute." complete:"path"`
	Interactive bool     `short:"i" xor:"which" help:"Ask about each hunk, as git add -p does."`
	Hunks       []string `xor:"which" sep:"none" placeholder:"FILE:1,3-5" help:"Only these hunks of a file, as diff counts them; 0 is the change of its mode. Repeatable."`
	Merge       bool     `help:"Join the two versions of a text where both sides changed different places, as git does; that needs the file as it was when the sandbox was made, in the project's git repository. diff --merge shows the outcome."`
	Take        []string `sep:"none" placeholder:"PATH" help:"Settle conflicts at and below PATH: take the sandbox's version in place of the project's, which --undo brings back. Repeatable." complete:"file"`
	Resolve     []string `sep:"none" placeholder:"FILE:CHOICES" help:"With --merge: for each place of a text that both sides changed, in order and separated by commas, project, sandbox or both. Repeatable."`
	Partial     bool     `help:"Leave out what is in conflict or refused, instead of refusing all."`
	DryRun      bool     `help:"Say what would be done, and do nothing."`
	AutoApprove bool     `hidden:"" help:"Nothing: apply asks nothing."`
	Undo        bool     `xor:"which" help:"Take back the last apply from the sandbox, which may be removed by now."`
	Output      string   `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one object."`

	allowFlags
}

// Help is the text below the synopsis.
func (*applyCmd) Help() string {
	return `Brings what changed in the sandbox's workspace back to its project: everything, chosen paths, or chosen
hunks; all of it or nothing. A path that the project's side changed as well since the sandbox was made is a conflict
and never overwritten, unless you decide: --merge joins two texts that were changed in different places, and --resolve
chooses at the same places, -i and --hunks choose hunks, which lead from the project's version to the sandbox's,
--take takes the sandbox's version, --partial leaves it out. What was replaced is kept for 30 days, and --undo brings
it back where the project was not changed since.

Refused by default, each with a flag that allows it: what touches .git or files that tools run without being asked,
new execute and set-id bits, links that lead out of the project, names that collide. FIFOs and devices are always
refused. The exit code is 1 when something stands against it.

    hutch apply box --dry-run
    hutch apply box
    hutch apply box src docs/guide.md
    hutch apply box -i
    hutch apply box --hunks src/main.go:1,3-5
    hutch apply box --merge
    hutch apply box --merge --resolve src/main.go:sandbox,both
    hutch apply box --take src/main.go
    hutch apply box --undo`
}

func (c *applyCmd) Run(ctx context.Context, u *ui) error {
	if c.Undo {
		return c.undo(ctx, u)
	}
	if len(c.Take) > 0 && (c.Interactive || len(c.Hunks) > 0) {
		return errors.New("--take takes whole paths; with -i and --hunks each hunk is chosen by itself")
	}
	if len(c.Hunks) > 0 && len(c.Paths) > 0 {
		return errors.New("--hunks names files already; give paths or hunks, not both")
	}
	if len(c.Resolve) > 0 && !c.Merge {
		return errors.New("--resolve goes with --merge, which joins the rest of the text")
	}
	var resolve []review.Resolution
	for _, v := range c.Resolve {
		r, err := review.ParseResolution(v)
		if err != nil {
			return fmt.Errorf("--resolve %w", err)
		}
		resolve = append(resolve, r)
	}
	st, done, err := openStore()
	if err != nil {
		return err
	}
	ledger := workspace.Ledger(st)
	done()
	recovered(ctx, u, ledger)
	return reviewed(ctx, u, c.Sandbox, sandbox.Exclusive,
		review.Options{Paths: c.Paths, Merge: c.Merge, Resolve: resolve, Keep: ledger.Dir()},
		func(v *workspace.Review) error {
			picks, err := c.pick(ctx, u, v.Review)
			if err != nil {
				return err
			}
			return applyPicks(ctx, u, applying{
				Review: v, picks: picks, policy: c.policy(c.Partial), ledger: ledger, dryRun: c.DryRun, json: c.Output == "json",
				paths: c.Paths,
			})
		})
}

// pick chooses what is applied.
func (c *applyCmd) pick(ctx context.Context, u *ui, r *review.Review) ([]review.Pick, error) {
	switch {
	case c.Interactive:
		return ask(ctx, u, r, c.policy(c.Partial).Allow)
	case len(c.Hunks) > 0:
		var refs []review.HunkRef
		for _, h := range c.Hunks {
			ref, err := review.ParseHunks(h)
			if err != nil {
				return nil, err
			}
			refs = append(refs, ref)
		}
		return r.PickHunks(ctx, refs)
	}
	return r.Settle(r.All(), c.Take)
}

// ask goes through the changes with the person at the terminal.
func ask(ctx context.Context, u *ui, r *review.Review, allow map[judge.Rule]bool) ([]review.Pick, error) {
	a := review.Asker{In: bufio.NewReader(u.in), Out: u.err,
		Style: review.Style{Color: u.color, Terminal: true, Width: u.width}, Allow: allow}
	return a.Ask(ctx, r)
}

func (c *applyCmd) undo(ctx context.Context, u *ui) error {
	if len(c.Paths) > 0 || c.DryRun || c.Partial || c.Merge {
		return errors.New("--undo takes back a whole apply; it goes with no other choice")
	}
	st, done, err := openStore()
	if err != nil {
		return err
	}
	defer done()
	ledger := workspace.Ledger(st)
	recovered(ctx, u, ledger)
	a, notes, err := workspace.Undo(ctx, st, ledger, c.Sandbox)
	var changed *review.UndoError
	switch {
	case errors.As(err, &changed):
		for _, line := range changed.Changed {
			u.note("%s", line)
		}
		return blockedError{err}
	case errors.Is(err, review.ErrNoUndo):
		return blockedError{fmt.Errorf("%w from %s", review.ErrNoUndo, c.Sandbox)}
	case err != nil:
		return err
	}
	for _, n := range notes {
		u.note("%s", n)
	}
	if c.Output == "json" {
		doc := applied{Schema: appliedSchema, Sandbox: a.Sandbox, Project: a.Project, Undone: true, Applied: []appliedPath{},
			Left: []leftPath{}}
		for _, p := range a.Paths {
			doc.Applied = append(doc.Applied, appliedPath{Path: p})
		}
		return u.json(doc)
	}
	u.note("restored %s of %s to what was before the apply", count(len(a.Paths), "path"), a.Project)
	return nil
}

// recovered takes back what a dead process began to apply, and says so.
func recovered(ctx context.Context, u *ui, l *review.Ledger) int {
	list, err := l.Recover(ctx)
	if err != nil {
		u.note("%s", err)
		return 1
	}
	failed := 0
	for _, r := range list {
		if r.Err != nil {
			u.note("%s", r.Err)
			failed++
			continue
		}
		u.note("an apply to %s was interrupted; its %s are as before", r.Project, count(r.Paths, "path"))
	}
	return failed
}
