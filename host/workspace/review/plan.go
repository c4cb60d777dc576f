package review

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// Pick is a change that shall be applied, or a part of one.
type Pick struct {
	Change *Change
	// Whole takes all of it. Otherwise Mode takes the change of permissions, and Hunks those hunks of the file's text.
	Whole bool
	Mode  bool
	Hunks []*Hunk
	// Settled says that a person decided: of a change in conflict, what is picked takes the place of the project's
	// version.
	Settled bool
}

// All picks every change of the review.
func (r *Review) All() []Pick {
	picks := make([]Pick, len(r.Changes))
	for i, c := range r.Changes {
		picks[i] = Pick{Change: c, Whole: true}
	}
	return picks
}

// Policy says what a plan may hold.
type Policy struct {
	Allow map[judge.Rule]bool
	// Partial leaves out what is in conflict or refused, instead of refusing all.
	Partial bool
}

// Plan is what an apply will do: one step for each path.
type Plan struct {
	Taken []Pick    // what is applied
	Left  []*Change // what was picked and is left out: by Policy.Partial, or because it is never applied
	steps []*step
}

// Paths are those that the plan changes, in order.
func (p *Plan) Paths() []string {
	list := make([]string, len(p.steps))
	for i, s := range p.steps {
		list[i] = s.Path
	}
	return list
}

// BlockedError says that changes cannot be applied, or are not by default.
type BlockedError struct {
	Conflicts []*Change
	Refused   []*Change
	Gaps      error
}

// Error counts; the caller shows the changes themselves.
func (e *BlockedError) Error() string {
	var why []string
	if n := len(e.Conflicts); n > 0 {
		why = append(why, english.Plural(n, "conflict", ""))
	}
	if n := len(e.Refused); n > 0 {
		why = append(why, english.Plural(n, "refused change", ""))
	}
	if e.Gaps != nil {
		why = append(why, "the list of changes is not complete: "+e.Gaps.Error())
	}
	return "nothing was applied: " + strings.Join(why, ", ")
}

// Plan checks the picks and orders the steps. The error is a *[BlockedError] when something stands against it. The
// review must have been opened with Options.Keep.
func (r *Review) Plan(ctx context.Context, picks []Pick, o Policy) (*Plan, error) {
	if r.unjudged {
		return nil, errors.New("this review was opened to list only")
	}
	p := &planner{review: r, policy: o, steps: map[string]*step{}, byPath: map[string]*Change{}}
	for _, c := range r.Changes {
		for _, part := range c.parts() {
			p.byPath[part.Path] = c
		}
	}
	for _, c := range r.above {
		p.byPath[c.Path] = c
	}
	blocked := &BlockedError{}
	for _, pick := range picks {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		c := pick.Change
		switch {
		case c.Left != "" && !o.Allow[judge.Git]:
			p.left = append(p.left, c)
		case c.Conflict != "" && !pick.Settled:
			blocked.Conflicts = append(blocked.Conflicts, c)
		case len(p.against(pick)) > 0:
			blocked.Refused = append(blocked.Refused, c)
		default:
			if err := p.take(ctx, pick); err != nil {
				return nil, err
			}
		}
	}
	if r.Gaps != nil && len(picks) == len(r.Changes) && !o.Partial {
		blocked.Gaps = r.Gaps
	}
	if !o.Partial && (len(blocked.Conflicts)+len(blocked.Refused) > 0 || blocked.Gaps != nil) {
		return nil, blocked
	}
	p.left = append(append(p.left, blocked.Conflicts...), blocked.Refused...)
	if err := p.close(); err != nil {
		return nil, err
	}
	return p.plan(), nil
}

type planner struct {
	review *Review
	policy Policy
	byPath map[string]*Change
	steps  map[string]*step
	taken  []Pick
	left   []*Change
}

// Against is why a change is refused under a policy.
func (c *Change) Against(allow map[judge.Rule]bool) []judge.Finding {
	var list []judge.Finding
	for _, f := range c.Refused {
		if f.Rule.Flag() == "" || !allow[f.Rule] {
			list = append(list, f)
		}
	}
	return list
}

// against is Against for a pick: without the mode, what is wrong with the mode does not count.
func (p *planner) against(pick Pick) []judge.Finding {
	list := pick.Change.Against(p.policy.Allow)
	if !pick.Whole && !pick.Mode {
		list = slices.DeleteFunc(list, func(f judge.Finding) bool {
			return f.Rule == judge.Exec || f.Rule == judge.SetID || f.Rule == judge.WorldWritable
		})
	}
	return list
}

// take makes the steps of a pick.
func (p *planner) take(ctx context.Context, pick Pick) error {
	c := pick.Change
	if c.from != nil {
		p.steps[c.from.Path] = &step{Path: c.from.Path, Old: state{Node: c.from.Old}}
	}
	s := &step{Path: c.Path, Old: state{Node: c.Old}, New: state{Node: c.New}, Settled: c.Conflict != "" ||
		c.Merged, part: !pick.Whole || c.Merged}
	switch {
	case !pick.Whole && len(pick.Hunks) == 0 && !pick.Mode:
		return nil
	case !pick.Whole && len(pick.Hunks) == 0:
		s.New = s.Old
		s.New.Mode = c.New.Mode
	case !pick.Whole:
		if err := p.part(ctx, pick, s); err != nil {
			return err
		}
	case c.hasContent():
		if c.blob == nil {
			return fmt.Errorf("%s was not staged", Quote(c.Path))
		}
		s.content = c.blob
		s.New.Size, s.New.SHA256 = c.blob.size, c.blob.sha256
	}
	p.steps[c.Path] = s
	p.taken = append(p.taken, pick)
	return nil
}

// part composes a file of the project's version and chosen hunks.
func (p *planner) part(ctx context.Context, pick Pick, s *step) error {
	c := pick.Change
	t, err := p.review.content(ctx, c, p.review.project)
	if err != nil {
		return err
	}
	if t.text == nil || c.Old.Type != File || c.New.Type != File {
		return fmt.Errorf("%s has no hunks to choose from: %s", Quote(c.Path), cmp.Or(t.note, "it is applied as a whole"))
	}
	chosen := map[int]bool{}
	for _, h := range pick.Hunks {
		if h.last > len(t.text.spans) {
			return fmt.Errorf("%s changed while it was reviewed", Quote(c.Path))
		}
		for i := h.first; i < h.last; i++ {
			chosen[i] = true
		}
	}
	s.content = newBlob(t.text.compose(func(span int) bool { return chosen[span] }))
	s.New.Size, s.New.SHA256 = s.content.size, s.content.sha256
	if !pick.Mode {
		s.New.Mode = c.Old.Mode
	}
	return nil
}

// close adds the directories that a step needs, and takes back the removal of directories in which something stays.
func (p *planner) close() error {
	for _, at := range slices.Sorted(maps.Keys(p.steps)) {
		if p.steps[at].New.Type != Nothing {
			if err := p.needs(at); err != nil {
				return err
			}
		}
	}
	paths := slices.Sorted(maps.Keys(p.steps))
	for _, at := range slices.Backward(paths) {
		s := p.steps[at]
		if s.Old.Type != Directory || s.New.Type == Directory {
			continue
		}
		names, err := p.review.project.list(at)
		if err != nil {
			return fmt.Errorf("look into %s of the project: %w", Quote(at), err)
		}
		for _, name := range names {
			child := p.steps[path.Join(at, name)]
			if child != nil && child.New.Type == Nothing {
				continue
			}
			if s.New.Type != Nothing {
				return fmt.Errorf("%s cannot take the place of the directory of that name: %s in it stays", Quote(at), Quote(name))
			}
			p.drop(at)
			break
		}
	}
	return nil
}

func (p *planner) drop(at string) {
	delete(p.steps, at)
	p.taken = slices.DeleteFunc(p.taken, func(k Pick) bool { return k.Change.Path == at })
}

// needs makes sure that the directory which holds path will be there.
func (p *planner) needs(at string) error {
	up := parentOf(at)
	if up == "" || p.steps[up] != nil && p.steps[up].New.Type == Directory {
		return nil
	}
	n, err := p.review.project.look(up)
	if err != nil {
		return fmt.Errorf("look at %s in the project: %w", Quote(up), err)
	}
	if n.Type == Directory && (p.steps[up] == nil || p.steps[up].New.Type != Nothing) {
		return nil
	}
	c := p.byPath[up]
	if c == nil || c.New.Type != Directory || c.Conflict != "" || len(c.Against(p.policy.Allow)) > 0 {
		return fmt.Errorf("%s cannot be applied: the directory %s is not there and cannot be made", Quote(at), Quote(up))
	}
	p.steps[up] = &step{Path: up, Old: state{Node: c.Old}, New: state{Node: c.New}}
	p.taken = append(p.taken, Pick{Change: c, Whole: true})
	return p.needs(up)
}

func (p *planner) plan() *Plan {
	plan := &Plan{Taken: p.taken, Left: p.left}
	for _, at := range slices.Sorted(maps.Keys(p.steps)) {
		plan.steps = append(plan.steps, p.steps[at])
	}
	return plan
}

// errNothing says that a plan has no steps.
var errNothing = errors.New("there is nothing to apply")

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
