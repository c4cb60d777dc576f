package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/term"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/session"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/workspace"
	"github.com/hutch-run/hutch/host/workspace/review"
)

// applyFlags are what `hutch run` has of apply.
type applyFlags struct {
	Apply string `group:"sandbox" enum:"never,ask,on-success" default:"never" placeholder:"WHEN" help:"Bring what a run changed in its private workspace back to the directory: never (default); ask, at the terminal, when it has ended; on-success. What cannot be applied stays in the sandbox, as with --keep."`

	keeps bool // what is not applied stays

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
	m, err := s.Sandboxes(nil)
	if err != nil {
		return err
	}
	ledger := workspace.Ledger(s.Store())
	recovered(ctx, u, ledger)
	var failed error
	for _, r := range results {
		if r == nil || r.Sandbox == nil {
			continue
		}
		if a.Apply == "ask" || r.OK {
			err := inReview(ctx, u, s, r.Sandbox.ID, sandbox.Exclusive, review.Options{Keep: ledger.Dir()},
				func(v *workspace.Review) error {
					return a.bring(ctx, u, v, ledger)
				})
			if err != nil {
				u.note("the changes of %s are still in its sandbox: hutch diff %s, hutch apply %s", r.Name, r.Sandbox.Name,
					r.Sandbox.Name)
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
		fmt.Fprintf(u.err, "Apply this to %s [y,n,d,p,e,?]? ", review.Quote(v.Subject.Project))
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
		case "e":
			return edited(ctx, u, v)
		}
		if err != nil {
			fmt.Fprintln(u.err)
			return nil, errors.New("nobody answered: nothing was applied")
		}
		drop := ", and drop it"
		if a.keeps {
			drop = ""
		}
		fmt.Fprintf(u.err,
			"y - apply all\nn - apply nothing%s\nd - show the difference\np - choose, hunk by hunk\ne - choose in your "+
				"editor\n? - show this help\n", drop)
	}
	return nil, errors.New("no answer was understood: nothing was applied")
}

// edited lets the user choose in an editor: of a list of the changes, with their differences as comments, the lines
// that are left are picked.
func edited(ctx context.Context, u *ui, v *review.Review) ([]review.Pick, error) {
	var diff, text strings.Builder
	if err := v.Unified(ctx, &diff, review.Style{}); err != nil {
		return nil, err
	}
	byLine := map[string]*review.Change{}
	for _, c := range v.Changes {
		byLine[review.Quote(c.Path)] = c
		fmt.Fprintln(&text, review.Quote(c.Path))
	}
	text.WriteString("\n# What is left of these lines is applied. FILE:1,3 takes these hunks of a file only.\n#\n")
	for line := range strings.Lines(diff.String()) {
		text.WriteString("# " + line)
	}
	file := store.TempName("review")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		return nil, err
	}
	defer os.Remove(file)
	cmd := exec.CommandContext(ctx, "sh", "-c", `eval "${VISUAL:-${EDITOR:-vi}} \"\$1\""`, "sh", file)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = u.in, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, errors.New("the editor failed, nothing was applied: " + err.Error()) // its exit code is not hutch's
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	picks := []review.Pick{}
	var parts []review.HunkRef
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		c := byLine[line]
		switch {
		case c != nil:
			picks = append(picks, review.Pick{Change: c, Whole: true})
		case line != "" && !strings.HasPrefix(line, "# ") && line != "#":
			ref, err := review.ParseHunks(line)
			if err != nil {
				return nil, fmt.Errorf("nothing was applied: %w", err)
			}
			parts = append(parts, ref)
		}
	}
	more, err := v.PickHunks(ctx, parts)
	if err != nil {
		return nil, fmt.Errorf("nothing was applied: %w", err)
	}
	return append(picks, more...), nil
}
