package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/hutch-run/hutch/host/agent/record"
	"github.com/hutch-run/hutch/host/report"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/store"
)

type runsCmd struct {
	watchFlag
	Name    string   `placeholder:"NAME" help:"Only runs of this name."`
	Backend string   `placeholder:"NAME" help:"Only runs on this backend." complete:"backend"`
	State   []string `enum:"running,finished,interrupted,damaged" placeholder:"STATE" help:"Only runs in this state: running, finished, interrupted or damaged. Repeatable."`
	Since   duration `placeholder:"24h" help:"Only runs that began in the last 24h."`
	Parent  string   `placeholder:"RUN" help:"Only the runs that are parts of this generate or cycle, or that repeat this run." complete:"run"`
	All     bool     `short:"a" help:"Also the runs that are parts of a generate or cycle."`
	Limit   int      `short:"n" default:"20" placeholder:"N" help:"At most so many, the newest; 0 for all (default 20)."`
	Quiet   bool     `short:"q" help:"Print only the ids."`
	Output  string   `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one object a line."`
}

// Help is the text below the synopsis.
func (*runsCmd) Help() string {
	return `Lists runs, and the generates and cycles of models, newest first. What a generate or cycle ran counts as a
part of it and is left out; RUNS says how many they are, --parent lists them, --all has them among the others.

    hutch runs
    hutch runs --parent latest
    hutch runs --watch --state running
    hutch runs --state interrupted -q`
}

func (c *runsCmd) Run(ctx context.Context, u *ui) error {
	s, done, err := openStore()
	if err != nil {
		return err
	}
	defer done()
	return c.watch(ctx, u, func() error { return c.list(u, s) })
}

func (c *runsCmd) list(u *ui, s *store.Store) error {
	f := store.Filter{Name: c.Name, Backend: c.Backend, Limit: c.Limit, Whole: !c.All && c.Parent == ""}
	for _, state := range c.State {
		f.States = append(f.States, store.State(state))
	}
	if c.Since > 0 {
		f.Since = time.Now().Add(-time.Duration(c.Since))
	}
	if c.Parent != "" {
		rec, err := loadWhole(s, c.Parent)
		if err != nil {
			return err
		}
		f.Parent = rec.ID
	}
	runs, err := s.List(f)
	if err != nil {
		return err
	}
	if !c.Quiet && c.Output == "text" {
		return c.table(u, s, runs)
	}
	return printEach(u, c.Output, runs, func(r store.Info) string { return r.ID })
}

// table has a column for what is not said of most runs only when one of those it lists says it.
func (c *runsCmd) table(u *ui, s *store.Store, runs []store.Info) error {
	if len(runs) == 0 {
		u.note("no runs")
		return nil
	}
	rows := [][]string{{"ID", "NAME", "KIND", "BACKEND", "RESULT", "STARTED", "TOOK", "RUNS", "PARENT", "SANDBOX"}}
	for _, r := range runs {
		took, kind, parts := "", "run", ""
		switch {
		case r.Ended != nil:
			took = r.Ended.Sub(r.Started).Round(time.Millisecond).String()
		case c.Watch && !u.absolute && r.State == store.StateRunning:
			took = time.Since(r.Started).Round(time.Second).String()
		}
		if r.Kind != store.KindRun {
			list, err := s.Parts(r.ID)
			if err != nil {
				return err
			}
			kind, parts = string(r.Kind), strconv.Itoa(len(list))
		}
		rows = append(rows, []string{r.ID, r.Name, kind, r.Backend, record.Outcome(r), u.began(r.Started), took, parts,
			r.Parent, r.Sandbox})
	}
	any := func(says func(store.Info) bool) bool { return slices.ContainsFunc(runs, says) }
	loops := any(func(r store.Info) bool { return r.Kind != store.KindRun })
	wanted := map[string]bool{
		"KIND": loops, "RUNS": loops,
		"PARENT":  any(func(r store.Info) bool { return r.Parent != "" }) && c.Parent == "",
		"SANDBOX": any(func(r store.Info) bool { return r.Sandbox != "" }),
	}
	for i := len(rows[0]) - 1; i >= 0; i-- {
		if shown, optional := wanted[rows[0][i]]; optional && !shown {
			for n := range rows {
				rows[n] = slices.Delete(rows[n], i, i+1)
			}
		}
	}
	return u.table(rows)
}

type showCmd struct {
	runRef
	Tree       bool   `xor:"what" help:"Draw what was done, with what came of it, what it took and what it cost."`
	Definition bool   `xor:"what" help:"Print the run as it was evaluated, as JSON."`
	Events     bool   `xor:"what" help:"Print the event chain, one JSON object a line."`
	Fetched    bool   `xor:"what" help:"List the dependencies that were installed, with version and digest."`
	Output     string `short:"o" enum:"text,json,cyclonedx" default:"text" placeholder:"FORMAT" help:"text, json, or with --fetched cyclonedx: a bill of materials."`
}

// Help is the text below the synopsis.
func (*showCmd) Help() string {
	return `Shows how a run ended, what held its limits, what it used, what it left, and where its record lies.

With --tree it draws the steps of a run, and of a generate or cycle its states, attempts, model calls, tool calls and
runs, with their results, tokens and times; that is also what is shown of a generate or cycle without it. The latest
is then the newest that is no part of another one. Where the locale is not UTF-8 it is drawn in ASCII.

    hutch show
    hutch show 3k7q2 -o json
    hutch show latest --tree
    hutch show latest --fetched -o cyclonedx > bom.json`
}

func (c *showCmd) Run(u *ui) error {
	if c.Output == "cyclonedx" && !c.Fetched {
		return errors.New("-o cyclonedx goes with --fetched")
	}
	s, done, err := openStore()
	if err != nil {
		return err
	}
	defer done()
	find := load
	if c.Tree {
		find = loadWhole
	}
	rec, err := find(s, c.ID)
	if err != nil {
		return err
	}
	switch {
	case c.Definition:
		raw, err := rec.Definition()
		if err != nil {
			return err
		}
		return u.json(raw)
	case c.Events:
		events, err := rec.Events()
		for _, e := range events {
			if err := json.NewEncoder(u.out).Encode(e); err != nil {
				return err
			}
		}
		return err
	case c.Tree, rec.Kind != store.KindRun && c.Output == "text" && !c.Fetched:
		return c.tree(u, s, rec)
	}
	raw, err := rec.Result()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if c.Output == "json" {
			return fmt.Errorf("run %s has no result: it is %s", rec.ID, rec.State)
		}
		return u.line("%s %s: %s, started %s, record in %s", rec.ID, rec.Name, rec.State, humanize.Time(rec.Started), rec.Dir)
	case err != nil:
		return err
	case c.Output == "json" && !c.Fetched:
		return u.json(raw)
	}
	r, err := result.Decode(raw)
	switch {
	case err != nil:
		return err
	case c.Fetched && c.Output == "cyclonedx":
		return report.Materials(u.out, r)
	case c.Fetched && c.Output == "json":
		return u.json(r.Dependencies)
	case c.Fetched:
		return report.Fetched(u.out, r)
	}
	return report.Summary(u.out, r, report.Style{Color: u.outTTY && u.color, Verbose: true})
}

// tree draws the story of a run, or gives it as data.
func (c *showCmd) tree(u *ui, s *store.Store, rec *store.Record) error {
	t, err := record.Tree(s, rec.ID)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return u.json(t)
	}
	style := record.Style{Color: u.outTTY && u.color, ASCII: !drawsLines()}
	if u.outTTY {
		style.Width = u.width
	}
	return t.WriteText(u.out, style)
}

// drawsLines reports whether the locale has more than ASCII.
func drawsLines() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := os.Getenv(name); v != "" {
			v = strings.ToLower(v)
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}
