package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hutch-run/hutch/host/report"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/session"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/workspace"
)

// maxTries is how many attempts an agent may make side by side.
const maxTries = 50

// checkAttempts refuses flags that do not go with -n, or need it.
func (c *agentStartCmd) checkAttempts() error {
	switch {
	case c.Number < 1 || c.Number > maxTries:
		return fmt.Errorf("-n %d: want a number from 1 to %d", c.Number, maxTries)
	case c.Jobs < 1:
		return fmt.Errorf("-j %d: want at least 1", c.Jobs)
	case c.Number == 1 && c.Check != "":
		return errors.New("--check judges several attempts: it needs -n")
	case c.Number == 1:
		return nil
	case c.Prompt == "":
		return errors.New("-n is for attempts that nobody watches: it needs -p")
	case c.Continue:
		return errors.New("-n and --continue exclude each other: each attempt is a new session")
	case c.Apply != "" && c.Apply != "never":
		return errors.New("-n and --apply exclude each other: hutch apply takes the attempt that you choose")
	}
	return nil
}

// attempts runs an agent several times on the same task, each time in a fork of its sandbox, and compares the results.
func (c *agentStartCmd) attempts(ctx context.Context, u *ui, m *sandbox.Manager, s *session.Session, name string,
	cmd sandbox.Command) error {
	boxes, err := forkEach(ctx, m, name, c.Number)
	if errors.Is(err, store.ErrInUse) {
		return hint(fmt.Errorf("the agent works in the sandbox %s, which the attempts begin from", name),
			"wait for it, or end it: hutch stop -f %s", name)
	} else if err != nil {
		return err
	}
	var defs []*runfile.Definition
	for _, b := range boxes {
		defs = append(defs, &runfile.Definition{Instance: b.Name,
			Backends: []*runfile.Backend{runfile.NewBackend(b.Backend)}})
	}
	show, err := newShow(u, &runCmd{Output: "text", Quiet: c.Quiet}, defs)
	if err != nil {
		return err
	}
	defer show.restore()
	every := progressEvery
	if show.table != nil {
		every = drawEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	unwatch := show.watch(ticker.C)
	var group errgroup.Group
	group.SetLimit(c.Jobs)
	var mu sync.Mutex
	good := 0
	for i, b := range boxes {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			streams, ended := show.streams(defs[i])
			cmd := cmd
			cmd.Name = b.Name
			r, checked, err := m.Attempt(ctx, b.ID, cmd, c.Check, streams)
			ended()
			if r != nil {
				show.result(r)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil && r.OK && (checked == nil || checked.OK) {
				good++
			}
			return err
		})
	}
	err = group.Wait()
	unwatch()
	show.restore()
	if err = errors.Join(err, show.whole()); err != nil {
		return err
	}
	if !c.Quiet {
		if err := compareBoxes(ctx, u, m, s.Store(), boxNames(boxes), "text"); err != nil {
			return err
		}
		u.note("hutch diff NAME shows an attempt, hutch apply NAME -i takes it, hutch agent rm --attempts %s removes them "+
			"all", name)
	}
	if good == 0 {
		return exit(exitNo)
	}
	return nil
}

// forkEach makes forks of a sandbox with the names NAME.1, NAME.2 and so on, as far as these are free.
func forkEach(ctx context.Context, m *sandbox.Manager, name string, n int) (made []store.SandboxInfo, err error) {
	list, err := m.List()
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for _, b := range list {
		taken[b.Name] = true
	}
	var names []string
	for k := 1; len(names) < n; k++ {
		if fork := fmt.Sprintf("%s.%d", name, k); !taken[fork] {
			names = append(names, fork)
		}
	}
	return m.Fork(ctx, name, names...)
}

func boxNames(boxes []store.SandboxInfo) (names []string) {
	for _, b := range boxes {
		names = append(names, b.Name)
	}
	return names
}

// compareBoxes shows what sandboxes made of one project.
func compareBoxes(ctx context.Context, u *ui, m *sandbox.Manager, st *store.Store, names []string,
	output string) error {
	var boxes []store.SandboxInfo
	for _, name := range names {
		b, err := st.FindSandbox(name)
		if err != nil {
			return err
		}
		boxes = append(boxes, b)
	}
	a, err := workspace.CompareAttempts(ctx, m, st, boxes)
	if err != nil {
		return err
	}
	if output == "json" {
		return u.json(a)
	}
	rows := [][]string{{"", "ATTEMPT", "ENDED", "CHECK", "TIME", "FILES", "LINES"}}
	for i, x := range a.Attempts {
		took := "-"
		if x.Run != nil {
			took = x.Wall.Duration().Round(10 * time.Millisecond).String()
		}
		lines := fmt.Sprintf("+%d -%d", x.Added, x.Removed)
		if x.Gaps != "" {
			lines += ", and more: " + x.Gaps
		}
		rows = append(rows, []string{fmt.Sprint(i + 1), x.Sandbox, howEnded(x.Run), howEnded(x.Check), took,
			fmt.Sprint(x.Files), lines})
	}
	if err := u.table(rows); err != nil {
		return err
	}
	if n := len(a.Agreed); n > 0 {
		if err := u.line("\nall agree on %s: %s", count(n, "file"), firstPaths(a.Agreed)); err != nil {
			return err
		}
	}
	if len(a.Differing) == 0 {
		return nil
	}
	head := []string{"VERSIONS"}
	for i := range a.Attempts {
		head = append(head, fmt.Sprint(i+1))
	}
	rows = [][]string{head}
	for _, p := range a.Differing[:min(len(a.Differing), mostLeft)] {
		rows = append(rows, append([]string{p.Path}, p.Versions...))
	}
	if err := u.line(""); err != nil {
		return err
	}
	if err := u.table(rows); err != nil {
		return err
	}
	if more := len(a.Differing) - mostLeft; more > 0 {
		u.note("and %d more files differ; -o json lists them", more)
	}
	return nil
}

// howEnded says in a few words how a run ended.
func howEnded(r *result.Result) string {
	switch {
	case r == nil:
		return "-"
	case r.OK:
		return "ok"
	}
	return report.Headline(r)
}

// firstPaths joins the first of many paths.
func firstPaths(paths []string) string {
	text := strings.Join(quoted(paths[:min(len(paths), mostLeft)]), ", ")
	if more := len(paths) - mostLeft; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// attemptsOf are the forks of a sandbox, in the order in which they were made.
func attemptsOf(st *store.Store, of store.SandboxInfo) ([]string, error) {
	list, err := st.Sandboxes()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, b := range list {
		if b.Parent == of.ID {
			names = append(names, b.Name)
		}
	}
	return names, nil
}
