package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/term"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/session"
	"github.com/hutch-run/hutch/host/workspace"
	"github.com/hutch-run/hutch/host/workspace/review"
)

// applyFlags are what `hutch run` has of apply.
type applyFlags struct {
	Apply string `group:"sandbox" enum:"never,ask,on-success" default:"never" placeholder:"WHEN" help:"Bring what a run changed in its private workspace back to the directory: never (default); ask, at the terminal, when it has ended; on-success. What cannot be applied stays in the sandbox, as with --keep."`

	allowFlags
}

// wanted reports whether anything is to be applied.
func (a *applyFlags) wanted() bool { return a.Apply != "" && a.Apply != "never" }

// check refuses what could not be applied, before anything runs.
func (a *applyFlags) check(u *ui, defs []*runfile.Definition, allBackends bool) error {
	switch {
	case !a.wanted():
		return nil
	case allBackends:
		return errors.New("--apply brings back what one backend did; it does not go with --all-backends")
	case a.Apply == "ask" && !term.IsTerminal(int(u.in.Fd())):
		return errors.New("--apply=ask needs a terminal to ask at")
	}
	for _, d := range defs {
		if d.Workspace == nil || d.Workspace.Mode != "" && d.Workspace.Mode != "private" {
			return hint(fmt.Errorf("--apply is for runs with a private workspace, and %s has none", runName(d)),
				"workspace { source = \".\" } in the run file gives it one, or --workspace DIR without a file")
		}
	}
	return nil
}

func runName(d *runfile.Definition) string {
	if d.File == "" {
		return "this command"
	}
	return "run " + d.Instance
}

// after brings back what the runs changed, one after the other in the order of the files. The sandboxes that the runs
// left are removed afterwards, unless keep is set or something in one could not be applied.
func (a *applyFlags) after(ctx context.Context, u *ui, s *session.Session, results []*result.Result, keep bool) error {
	pool, err := s.Pool()
	if err != nil {
		return err
	}
	m := sandbox.New(sandbox.Options{Run: run.Options{Store: s.Store(), Backends: pool}, Destroy: s.Destroy})
	ledger := workspace.Ledger(s.Store())
	recovered(ctx, u, ledger)
	var failed error
	for _, r := range results {
		if r == nil || r.Sandbox == nil {
			continue
		}
		if a.Apply == "ask" || r.OK {
			err := inReview(ctx, u, s, r.Sandbox.ID, sandbox.Exclusive, review.Options{Keep: ledger.Dir()}, func(v *workspace.Review) error {
				return a.bring(ctx, u, v, ledger)
			})
			if err != nil {
				u.note("the changes of %s are still in its sandbox: hutch diff %s, hutch apply %s", r.Name, r.Sandbox.Name, r.Sandbox.Name)
				if failed == nil {
					failed = err
				} else {
					failed = errors.Join(failed, err)
				}
				continue
			}
		} else {
			if !keep {
				r.ChangesDropped = len(r.Changes) + r.ChangesMore
			}
			u.note("%s did not succeed: nothing of it is applied", r.Name)
		}
		if !keep {
			if err := m.Remove(ctx, r.Sandbox.ID, false); err != nil {
				failed = errors.Join(failed, err)
			} else {
				r.Kept, r.Sandbox = false, nil
			}
		}
	}
	return failed
}

// bring applies one review, after asking where that is wanted.
func (a *applyFlags) bring(ctx context.Context, u *ui, v *workspace.Review, ledger *review.Ledger) error {
	job := applying{
		Review: v, picks: v.All(), policy: a.policy(false), ledger: ledger, quiet: true,
	}
	if a.Apply == "ask" && len(v.Changes) > 0 {
		picks, err := a.decide(ctx, u, v.Review)
		if err != nil || picks == nil {
			return err
		}
		job.picks = picks
	}
	return applyPicks(ctx, u, job)
}

// decide asks what to do with the changes of a run; nil applies none.
func (a *applyFlags) decide(ctx context.Context, u *ui, v *review.Review) ([]review.Pick, error) {
	style := review.Style{Color: u.color, Terminal: true, Width: u.width}
	if err := v.Stat(ctx, u.err, style); err != nil {
		return nil, err
	}
	in := bufio.NewReader(u.in)
	for range 100 {
		fmt.Fprintf(u.err, "Apply this to %s [y,n,d,p,?]? ", review.Quote(v.Subject.Project))
		line, err := in.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		switch strings.TrimSpace(line) {
		case "y":
			return v.All(), nil
		case "n":
			return nil, nil
		case "d":
			if err := v.Unified(ctx, u.err, style); err != nil {
				return nil, err
			}
			continue
		case "p":
			asker := review.Asker{In: in, Out: u.err, Style: style, Allow: a.policy(false).Allow}
			picks, err := asker.Ask(ctx, v)
			if picks == nil {
				picks = []review.Pick{}
			}
			return picks, err
		}
		if err != nil {
			fmt.Fprintln(u.err)
			return nil, errors.New("nobody answered: nothing was applied")
		}
		fmt.Fprint(u.err, "y - apply all\nn - apply nothing, and drop it\nd - show the difference\np - choose, hunk by hunk\n? - show this help\n")
	}
	return nil, errors.New("no answer was understood: nothing was applied")
}
