package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/hutch-run/hutch/host/report"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/session"
	"github.com/hutch-run/hutch/host/store"
)

type compareCmd struct {
	What     []string `arg:"" name:"what" help:"Two runs, or files that hutch run -o json wrote; or sandboxes of one project; or one sandbox, for all its forks." complete:"run"`
	ExitZero bool     `help:"End with 0 also when runs differ."`
	Output   string   `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one object a run, or one for all sandboxes."`
}

// Help is the text below the synopsis.
func (*compareCmd) Help() string {
	return `Compares the results of two runs, or of two calls of hutch run -o json: each run with the one of the same
name. What ended how, what it printed, its outputs and its changes are compared; ids, times, usage and the mechanisms
of limits are not. The exit code is 1 when something differs.

Sandboxes are compared by what they made of their project, such as the attempts of hutch agent -n: how each ended and
whether it passed its check, how long it took, how many files and lines it changed, which files all changed in the
same way, and which versions there are of the others. Equal letters mean equal versions.

    hutch compare 3k7q2 latest
    hutch compare before.json after.json
    hutch compare claude-shop
    hutch compare claude-shop.1 codex-shop`
}

func (c *compareCmd) Run(ctx context.Context, u *ui) error {
	if names, err := c.sandboxes(); err != nil {
		return err
	} else if names != nil {
		return withSandboxes(u, func(m *sandbox.Manager, s *session.Session) error {
			return compareBoxes(ctx, u, m, s.Store(), names, c.Output)
		})
	}
	if len(c.What) != 2 {
		return hint(fmt.Errorf("compare takes two runs or two files of results, or any number of sandboxes, and not %q", c.What),
			"hutch runs lists runs, and hutch ps sandboxes: hutch compare RUN RUN")
	}
	s, done, err := openStore()
	if err != nil {
		return err
	}
	defer done()
	var sides [2][]*result.Result
	for i, ref := range c.What {
		if sides[i], err = resultsOf(s, ref); err != nil {
			return err
		}
	}
	list := report.Sides([2]string(c.What), sides[0], sides[1])
	same := true
	for _, one := range list {
		same = same && one.Same
		if c.Output == "json" {
			if err := json.NewEncoder(u.out).Encode(one); err != nil {
				return err
			}
		}
	}
	if c.Output == "text" {
		if err := report.Comparisons(u.out, list, report.Style{Color: u.outTTY && u.color}); err != nil {
			return err
		}
	}
	if !same && !c.ExitZero {
		return exit(exitNo)
	}
	return nil
}

// sandboxes are those to compare; nil where not all operands name one, or one of them names a file.
func (c *compareCmd) sandboxes() ([]string, error) {
	s, done, err := openStore()
	if err != nil {
		return nil, err
	}
	defer done()
	var found []store.SandboxInfo
	for _, ref := range c.What {
		box, err := s.FindSandbox(ref)
		if _, serr := os.Stat(ref); err != nil || serr == nil {
			return nil, nil
		}
		found = append(found, box)
	}
	if len(found) > 1 {
		return c.What, nil
	}
	names, err := attemptsOf(s, found[0])
	if err == nil && len(names) == 0 {
		err = hint(fmt.Errorf("sandbox %s has no forks to compare", found[0].Name),
			"hutch fork %s -n 2 makes some; hutch diff %[1]s shows what changed in it", found[0].Name)
	}
	return names, err
}

// resultsOf are the results in a file, or of the run that ref means where there is no such file.
func resultsOf(s *store.Store, ref string) ([]*result.Result, error) {
	f, err := os.Open(ref)
	if err != nil {
		rec, err := load(s, ref)
		if err != nil {
			return nil, err
		}
		raw, err := rec.Result()
		if err != nil {
			return nil, fmt.Errorf("run %s has no result: it is %s", rec.ID, rec.State)
		}
		r, err := result.Decode(raw)
		return []*result.Result{r}, err
	}
	defer f.Close()
	var out []*result.Result
	for dec := json.NewDecoder(f); ; {
		var raw json.RawMessage
		switch err := dec.Decode(&raw); {
		case errors.Is(err, io.EOF) && len(out) == 0:
			return nil, fmt.Errorf("%s has no results; hutch run -o json writes them", ref)
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", ref, err)
		}
		var kind struct{ Schema string }
		if json.Unmarshal(raw, &kind) == nil && kind.Schema == report.ComparisonSchema {
			continue // what --all-backends writes after the results
		}
		r, err := result.Decode(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", ref, err)
		}
		out = append(out, r)
	}
}
