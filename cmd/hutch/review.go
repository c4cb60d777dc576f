package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/pull"
	"github.com/hutch-run/hutch/host/review"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/session"
	"github.com/hutch-run/hutch/host/store"
)

type diffCmd struct {
	sandboxArg
	Paths    []string `arg:"" optional:"" name:"path" help:"Only what changed at and below these: relative to the project, or absolute." complete:"file"`
	Stat     bool     `xor:"form" help:"A line for each path, with the number of lines that changed."`
	NameOnly bool     `xor:"form" help:"Only the paths."`
	Output   string   `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one object, with the hunks and with what stands against applying each change."`
	Color    string   `enum:"auto,always,never" default:"auto" placeholder:"WHEN" help:"auto (default): on a terminal, unless NO_COLOR is set; always; never."`
	ExitCode bool     `help:"Exit with 1 when there are changes, with 0 when there are none."`
}

// Help is the text below the synopsis.
func (*diffCmd) Help() string {
	return `Compares the sandbox's workspace with the project as it is now, with git or without. Untracked, ignored and nested repositories' files are in it. The text is a patch for git apply and patch; on a terminal, control characters in it are shown and not sent.

What keeps a change from being applied is told on stderr, and in the JSON: a path that the project's side changed as well since the sandbox was made, and what hutch apply refuses by default.

    hutch diff box
    hutch diff box --stat
    hutch diff box --name-only src docs/guide.md
    hutch diff box -o json`
}

func (c *diffCmd) Run(ctx context.Context, u *ui) error {
	o := review.Options{Paths: c.Paths, Unjudged: c.NameOnly && c.Output == "text"}
	return reviewed(ctx, u, c.Sandbox, sandbox.Shared, o, func(r reviewing) error {
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

// obstacles says in two lines what an apply would meet.
func obstacles(u *ui, r *review.Review) {
	conflicts, refused, flags := 0, 0, []string{}
	for _, c := range r.Changes {
		switch {
		case c.Left != "":
		case c.Conflict != "":
			conflicts++
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
		text := count(refused, "change") + " would be refused by hutch apply"
		if len(flags) > 0 {
			text += " without " + strings.Join(flags, " ")
		}
		u.note("%s", text)
	}
}

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
	return review.Policy{Partial: partial, Allow: map[review.Rule]bool{
		review.RuleGit: a.AllowGit, review.RuleTools: a.AllowTools, review.RuleExec: a.AllowExec, review.RuleSetID: a.AllowSetid,
		review.RuleLinks: a.AllowLinks, review.RuleWorldWritable: a.AllowWorldWritable, review.RuleCollisions: a.AllowCollisions,
	}}
}

type applyCmd struct {
	sandboxArg
	Paths       []string `arg:"" optional:"" name:"path" help:"Only what changed at and below these: relative to the project, or absolute." complete:"file"`
	Interactive bool     `short:"i" xor:"which" help:"Ask about each hunk, as git add -p does."`
	Hunks       []string `xor:"which" sep:"none" placeholder:"FILE:1,3-5" help:"Only these hunks of a file, as diff counts them; 0 is the change of its mode. Repeatable."`
	Take        []string `sep:"none" placeholder:"PATH" help:"Settle conflicts at and below PATH: take the sandbox's version in the place of the project's, which --undo brings back. Repeatable." complete:"file"`
	Partial     bool     `help:"Leave out what is in conflict or refused, instead of refusing all."`
	DryRun      bool     `help:"Say what would be done, and do nothing."`
	Undo        bool     `xor:"which" help:"Take back the last apply from the sandbox. It may be removed by now."`
	Output      string   `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one object."`

	allowFlags
}

// Help is the text below the synopsis.
func (*applyCmd) Help() string {
	return `Brings what changed in the sandbox's workspace back to its project: everything, chosen paths, or chosen hunks; all of it or nothing. A path that the project's side changed as well since the sandbox was made is a conflict and never overwritten, unless you decide: -i and --hunks choose hunks, which lead from the project's version to the sandbox's, --take takes the sandbox's version, --partial leaves it out. What was replaced is kept for 30 days, and --undo brings it back where the project was not changed since.

Refused by default, each with a flag that allows it: what touches .git or files that tools run without being asked, new execute and set-id bits, links that lead out of the project, names that collide. FIFOs and devices are always refused. The exit code is 1 when something stands against it.

    hutch apply box --dry-run
    hutch apply box
    hutch apply box src docs/guide.md
    hutch apply box -i
    hutch apply box --hunks src/main.go:1,3-5
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
	st, done, err := openStore()
	if err != nil {
		return err
	}
	ledger := review.NewLedger(st.Paths().Applies())
	done()
	recovered(ctx, u, ledger)
	return reviewed(ctx, u, c.Sandbox, sandbox.Exclusive, review.Options{Paths: c.Paths, Keep: ledger.Dir()}, func(v reviewing) error {
		r := v.Review
		picks, err := c.pick(ctx, u, r)
		if err != nil {
			return err
		}
		return applyPicks(ctx, u, applying{
			reviewing: v, picks: picks, policy: c.policy(c.Partial), ledger: ledger, dryRun: c.DryRun, json: c.Output == "json",
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
func ask(ctx context.Context, u *ui, r *review.Review, allow map[review.Rule]bool) ([]review.Pick, error) {
	a := review.Asker{In: bufio.NewReader(u.in), Out: u.err, Style: review.Style{Color: u.color, Terminal: true, Width: u.width}, Allow: allow}
	return a.Ask(ctx, r)
}

// applying is one apply that is about to happen.
type applying struct {
	reviewing
	picks  []review.Pick
	policy review.Policy
	ledger *review.Ledger
	dryRun bool
	json   bool
	quiet  bool // says nothing on stdout
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
	Path string      `json:"path"`
	From string      `json:"from,omitempty"`
	Kind review.Kind `json:"kind,omitempty"`
	Part bool        `json:"part,omitempty"` // chosen hunks, not all of it
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
	doc := applied{Schema: appliedSchema, Sandbox: r.Subject.Name, Project: r.Subject.Project, DryRun: a.dryRun, Applied: []appliedPath{}, Left: []leftPath{}}
	p, err := r.Plan(ctx, a.picks, a.policy)
	var blocked *review.BlockedError
	if errors.As(err, &blocked) {
		if doc.Left, err = leftOut(ctx, u, slices.Concat(blocked.Conflicts, blocked.Refused), a); err != nil {
			return err
		}
		if a.json {
			if err := u.json(doc); err != nil {
				return err
			}
		}
		if a.sandbox == nil { // nothing that could be applied in part
			return blockedError{blocked}
		}
		hints := []string{"name the paths that you want, or leave these out with --partial"}
		if len(blocked.Conflicts) > 0 {
			at, name := review.Quote(blocked.Conflicts[0].Path), r.Subject.Name
			hints = append(hints, fmt.Sprintf("settle a conflict: hutch apply %s -i %s chooses hunk by hunk, hutch apply %s %s --take %s takes the sandbox's version", name, at, name, at, at))
		}
		return &hinted{blockedError{blocked}, hints}
	}
	if err != nil {
		return err
	}
	if doc.Left, err = leftOut(ctx, u, p.Left, a); err != nil {
		return err
	}
	if !a.dryRun && len(p.Paths()) > 0 {
		done, err := a.ledger.Apply(ctx, r, p)
		if err != nil {
			return err
		}
		if a.sandbox != nil {
			if err := a.sandbox.Applied(done); err != nil {
				u.note("the apply cannot be recorded in the sandbox's event chain: %s", err)
			}
			if err := review.RefreshFile(a.sandbox.Base, r.Subject.Project, done.Common, a.sandbox.PlaceBase); err != nil {
				u.note("the sandbox's base could not be written, so what was applied counts as changed in the project: %s", err)
			}
		}
		if !done.Until.IsZero() {
			doc.UndoUntil = &done.Until
		}
		defer func() {
			if done.Until.IsZero() {
				u.note("this apply cannot be undone: %s", done.NoUndo)
				return
			}
			u.note("hutch apply --undo %s takes it back, until %s", r.Subject.Name, done.Until.Local().Format("2 January"))
		}()
	}
	for _, pick := range p.Taken {
		c := pick.Change
		doc.Applied = append(doc.Applied, appliedPath{c.Path, c.From, c.Kind, !pick.Whole})
		if a.json || a.quiet {
			continue
		}
		line := letter(c.Kind) + " " + review.Quote(c.Path)
		if c.From != "" {
			line = letter(c.Kind) + " " + review.Quote(c.From) + " => " + review.Quote(c.Path)
		}
		if !pick.Whole {
			line += " (in part)"
		}
		if err := u.line("%s", line); err != nil {
			return err
		}
	}
	if a.json {
		if err := u.json(doc); err != nil {
			return err
		}
	}
	switch {
	case len(p.Taken) == 0:
		u.note("nothing to apply to %s", r.Subject.Project)
	case a.dryRun:
		u.note("would apply %s to %s", count(len(p.Taken), "change"), r.Subject.Project)
	default:
		u.note("applied %s to %s", count(len(p.Taken), "change"), r.Subject.Project)
	}
	return nil
}

// blockedError is a no, not a failure.
type blockedError struct{ error }

// ExitCode tells the two apart.
func (blockedError) ExitCode() int { return 1 }

// Unwrap returns the error underneath.
func (e blockedError) Unwrap() error { return e.error }

// mostLeft is how many changes are named one by one when they are left out; of more, the number is told.
const mostLeft = 30

// mostExplained is of how many conflicts both sides are told.
const mostExplained = 10

// leftOut says why changes are left out.
func leftOut(ctx context.Context, u *ui, list []*review.Change, a applying) ([]leftPath, error) {
	out := []leftPath{}
	for i, c := range list {
		l := leftPath{Path: c.Path, Conflict: c.Conflict, Sides: c.Sides.Document()}
		var lines []string
		switch {
		case c.Conflict != "":
			lines = append(lines, fmt.Sprintf("conflict: %s: %s", review.Quote(c.Path), c.Conflict))
			if i < mostExplained {
				more, err := a.Explain(ctx, c)
				if err != nil {
					return nil, err
				}
				for _, m := range more {
					lines = append(lines, "  "+m)
				}
			}
		case c.Left != "":
			lines = append(lines, fmt.Sprintf("left out: %s: %s (--allow-git)", review.Quote(c.Path), c.Left))
			l.Refused = append(l.Refused, review.DocumentRule{Refusal: review.Refusal{Rule: review.RuleGit, Detail: c.Left}, Flag: review.RuleGit.Flag()})
		default:
			for _, f := range c.Against(a.policy.Allow) {
				text := fmt.Sprintf("refused: %s: %s", review.Quote(c.Path), f.Detail)
				if flag := f.Rule.Flag(); flag != "" {
					text += " (" + flag + ")"
				}
				lines = append(lines, text)
				l.Refused = append(l.Refused, review.DocumentRule{Refusal: f, Flag: f.Rule.Flag()})
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

// letter is how git's status calls a kind of change.
func letter(k review.Kind) string {
	switch k {
	case review.Added:
		return "A"
	case review.Deleted:
		return "D"
	case review.Renamed:
		return "R"
	case review.Retyped:
		return "T"
	}
	return "M"
}

func (c *applyCmd) undo(ctx context.Context, u *ui) error {
	if len(c.Paths) > 0 || c.DryRun || c.Partial {
		return errors.New("--undo takes back a whole apply; it goes with no other choice")
	}
	st, done, err := openStore()
	if err != nil {
		return err
	}
	defer done()
	ledger := review.NewLedger(st.Paths().Applies())
	recovered(ctx, u, ledger)
	ref := c.Sandbox
	info, err := st.FindSandbox(ref)
	switch {
	case err == nil:
		ref = info.ID
	case !errors.Is(err, store.ErrNoSandbox):
		return err
	}
	a, err := ledger.Undo(ctx, ref)
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
	if info.ID != "" {
		if err := sandbox.Undone(ctx, st, info.ID, a); err != nil {
			u.note("the undo cannot be recorded in the sandbox's event chain: %s", err)
		}
		if err := review.RefreshFile(st.Paths().SandboxBase(info.ID), a.Project, a.Common, func() error { return st.PlaceSandboxBase(info.ID) }); err != nil {
			u.note("the sandbox's base could not be written, so what was undone counts as changed in the project: %s", err)
		}
	}
	if c.Output == "json" {
		doc := applied{Schema: appliedSchema, Sandbox: a.Sandbox, Project: a.Project, Undone: true, Applied: []appliedPath{}, Left: []leftPath{}}
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

// reviewing is a review, and the sandbox of it where that may be changed.
type reviewing struct {
	*review.Review
	sandbox *sandbox.Sandbox // nil with a shared lock, and for a model's answer, of which there is none
}

// reviewed opens a sandbox and the review of it, and closes both.
func reviewed(ctx context.Context, u *ui, ref string, lock sandbox.Lock, o review.Options, fn func(reviewing) error) error {
	s, done, err := open(u)
	if err != nil {
		return err
	}
	defer done()
	return inReview(ctx, s, ref, lock, o, fn)
}

func inReview(ctx context.Context, s *session.Session, ref string, lock sandbox.Lock, o review.Options, fn func(reviewing) error) error {
	m, err := sandboxes(s, nil)
	if err != nil {
		return err
	}
	var sb interface {
		Subject() (review.Subject, error)
		Close() error
	}
	var whole *sandbox.Sandbox
	if lock == sandbox.Shared { // nothing will be changed, so the backend need not know
		sb, err = m.Look(ctx, ref)
	} else {
		whole, err = m.Open(ctx, ref, lock)
		sb = whole
	}
	if err != nil {
		return err
	}
	defer func() { _ = sb.Close() }()
	info, err := s.Store().FindSandbox(ref)
	if err != nil {
		return err
	}
	var subject review.Subject
	if info.Push != nil { // its workspace is a clone, and what waits for a review is what was pulled from it
		subject, err = pull.Subject(ctx, info, s.Store().Paths().SandboxBase(info.ID))
	} else {
		subject, err = sb.Subject()
	}
	if err != nil {
		return pullError(err)
	}
	r, err := review.Open(ctx, subject, o)
	if err != nil {
		return err
	}
	defer r.Close()
	return fn(reviewing{r, whole})
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
