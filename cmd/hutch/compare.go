package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/hutch-run/hutch/host/report"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/store"
)

type compareCmd struct {
	A        string `arg:"" name:"a" help:"A run, or a file that hutch run -o json wrote." complete:"run"`
	B        string `arg:"" name:"b" help:"Another one." complete:"run"`
	ExitZero bool   `help:"End with 0 also when they differ."`
	Output   string `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one object a run."`
}

// Help is the text below the synopsis.
func (*compareCmd) Help() string {
	return `Compares the results of two runs, or of two calls of hutch run -o json: each run with the one of the same name. What ended how, what it printed, its outputs and its changes are compared; ids, times, usage and the mechanisms of limits are not. The exit code is 1 when something differs.

    hutch compare 3k7q2 latest
    hutch compare before.json after.json`
}

func (c *compareCmd) Run(u *ui) error {
	s, done, err := openStore()
	if err != nil {
		return err
	}
	defer done()
	var sides [2][]*result.Result
	for i, ref := range []string{c.A, c.B} {
		if sides[i], err = resultsOf(s, ref); err != nil {
			return err
		}
	}
	list := report.Sides([2]string{c.A, c.B}, sides[0], sides[1])
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
