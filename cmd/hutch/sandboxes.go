package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/session"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/units"
)

type psCmd struct {
	watchFlag
	NoChanges bool   `help:"Do not look at what changed, which takes a while in large workspaces."`
	Quiet     bool   `short:"q" help:"Print only the names."`
	All       bool   `short:"a" hidden:"" help:"Nothing: all are listed."`
	Output    string `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one object a line."`
}

// Help is the text below the synopsis.
func (*psCmd) Help() string {
	return `Lists persistent sandboxes, those of one project together. STATE is ready, asleep (the next command starts
it), stopped (hutch start starts it), busy while somebody resets, applies or removes it, gone when its backend knows
nothing of it any more, unknown when the backend cannot be asked; creating means that hutch is making it; removing,
that it is to be removed, also because the process that it belongs to is gone: its name is free, and ps, create and gc
finish it. CHANGES is what differs from the directory under a private workspace; after hutch push, "1 bundle to pull"
says that commits wait for hutch pull ("to_pull": true in JSON). Sandboxes that have not answered after 15 seconds are
unknown.

    hutch ps
    hutch ps --watch
    hutch ps -o json
    hutch ps -q`
}

func (c *psCmd) Run(ctx context.Context, u *ui) error {
	if c.Quiet {
		return c.watch(ctx, u, func() error { return c.names(u) })
	}
	return withSandboxes(u, func(m *sandbox.Manager, _ *session.Session) error {
		return c.watch(ctx, u, func() error { return c.list(ctx, u, m) })
	})
}

func (c *psCmd) list(ctx context.Context, u *ui, m *sandbox.Manager) error {
	list, err := m.Survey(ctx, !c.NoChanges)
	if err != nil {
		return err
	}
	slices.SortStableFunc(list, func(a, b sandbox.Status) int { return strings.Compare(a.Project, b.Project) })
	if c.Output == "json" {
		return printEach(u, c.Output, list, nil)
	}
	if len(list) == 0 {
		u.note("no sandboxes")
		return nil
	}
	names := map[string]string{} // of sandboxes that are there, by their id
	for _, st := range list {
		names[st.ID] = st.Name
	}
	rows := [][]string{{"NAME", "ID", "STATE", "BACKEND", "PROJECT", "AGE", "CHANGES"}}
	forks := slices.ContainsFunc(list, func(st sandbox.Status) bool { return st.Parent != "" })
	if forks {
		rows[0] = append(rows[0], "FORK OF")
	}
	for _, st := range list {
		row := []string{dash(st.Name), st.ID, st.Condition, dash(st.Backend), dash(st.Project), u.began(st.Created),
			dash(st.Changed())}
		if forks {
			row = append(row, dash(cmp.Or(names[st.Parent], st.Parent)))
		}
		rows = append(rows, row)
	}
	return u.table(rows)
}

// names lists without asking any backend.
func (c *psCmd) names(u *ui) error {
	s, done, err := openStore()
	if err != nil {
		return err
	}
	defer done()
	list, err := s.Sandboxes()
	return errors.Join(err, printEach(u, "text", list, func(i store.SandboxInfo) string { return cmp.Or(i.Name, i.ID) }))
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

type inspectCmd struct {
	Sandbox string `arg:"" name:"sandbox" help:"Name or id of a sandbox, or the beginning of an id." complete:"sandbox"`
	Output  string `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text or json."`
}

// Help is the text below the synopsis.
func (*inspectCmd) Help() string {
	return `Prints its record, how it is, how each limit is held, where its files lie on this host, and what its backend
says about it.`
}

func (c *inspectCmd) Run(ctx context.Context, u *ui) error {
	return withSandboxes(u, func(m *sandbox.Manager, _ *session.Session) error {
		st, err := m.Inspect(ctx, c.Sandbox)
		if err != nil {
			return err
		}
		if c.Output == "json" {
			return u.json(st)
		}
		return c.text(u, st)
	})
}

func (c *inspectCmd) text(u *ui, st *sandbox.Status) error {
	rows := [][]string{{st.Name, st.ID + ", " + st.Condition}}
	row := func(label, format string, args ...any) {
		if text := fmt.Sprintf(format, args...); text != "" {
			rows = append(rows, []string{"  " + label, text})
		}
	}
	row("problem", "%s", st.Problem)
	row("backend", "%s %s", st.Backend, st.BackendVersion)
	if st.File != "" {
		row("made from", "%s of %s", st.Run, st.File)
	}
	row("left by", "%s", st.MadeBy)
	row("fork of", "%s", st.Parent)
	row("created", "%s", st.Created.Local().Format("2006-01-02 15:04:05"))
	if st.Started != nil {
		row("reset", "%s", st.Started.Local().Format("2006-01-02 15:04:05"))
	}
	row("project", "%s", st.Project)
	ws := "an empty directory"
	if st.Workspace.Source != "" {
		ws = st.Workspace.Source + ", " + st.Workspace.Mode
	}
	row("workspace", "%s", ws)
	row("changes", "%s", dash(st.Changed()))
	if p := st.Push; p != nil {
		row("repository", "%s, %s at %.12s", p.Repository, p.Branch, p.Base)
		row("clone", "%s", p.Clone)
		row("plan", "%s", p.PlanPath)
		row("command", "run %s", p.Run)
	}
	row("network", "%s", st.Network.String())
	for _, s := range st.Network.Secrets {
		row("secret", "%s", s.String())
	}
	row("workdir", "%s", st.Workdir)
	row("env", "%s", strings.Join(st.EnvNames, " "))
	var limits []result.Limit
	_ = json.Unmarshal(st.Limits, &limits)
	for _, l := range limits {
		row("limit", "%s", l)
	}
	if l := st.Workspace.Layers; l != nil {
		row("lower layer", "%s", l.Lower)
		row("upper layer", "%s", l.Upper)
	}
	for _, n := range st.Notes {
		row("note", "%s", n)
	}
	for _, k := range slices.Sorted(maps.Keys(st.Details)) {
		row(k, "%s", st.Details[k])
	}
	row("record", "%s", st.Dir)
	return u.table(rows)
}

type forkCmd struct {
	Sandbox string `arg:"" name:"sandbox" help:"Name or id of a sandbox, or the beginning of an id." complete:"sandbox"`
	Number  int    `short:"n" default:"1" placeholder:"N" help:"How many."`
	Name    string `placeholder:"NAME" help:"Name of the first one; those of the others begin with it. By default they are made from that of the sandbox."`
	Output  string `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text: the name of each fork; json: its record, one object a line."`
}

// Help is the text below the synopsis.
func (*forkCmd) Help() string {
	return `Makes sandboxes that begin with what the sandbox has written to its workspace and output. They have its
project, limits, network and environment, and from then on live apart: hutch diff, apply, exec and rm work with each,
and the sandbox itself stays as it is and may be removed first. /tmp and processes are not copied. A sandbox that a
command runs in is refused.

The project is not copied. What the sandbox has written is copied once on bwrap, for all forks together, and for each
on podman; on btrfs and XFS copies share their blocks. bwrap and podman can fork a private workspace.

    hutch create --workspace . --name try
    hutch exec try -- npm install
    hutch fork try -n 4
    hutch ps`
}

func (c *forkCmd) Run(ctx context.Context, u *ui) error {
	if c.Number < 1 {
		return fmt.Errorf("-n %d: want at least 1", c.Number)
	}
	return withSandboxes(u, func(m *sandbox.Manager, _ *session.Session) error {
		forks, err := m.Fork(ctx, c.Sandbox, append([]string{c.Name}, make([]string, c.Number-1)...)...)
		err = errors.Join(err, printEach(u, c.Output, forks, func(f store.SandboxInfo) string { return f.Name }))
		if errors.Is(err, store.ErrInUse) {
			return hint(fmt.Errorf("a command works in the sandbox %s, and a fork would have half of what it writes",
				c.Sandbox), "wait for it, or end it: hutch stop -f %s", c.Sandbox)
		}
		return err
	})
}

type resetCmd struct {
	Sandbox string `arg:"" name:"sandbox" help:"Name or id of a sandbox, or the beginning of an id." complete:"sandbox"`
	Hard    bool   `help:"Drop what was written to the workspace and the output, too."`
	Force   bool   `short:"f" help:"End commands that run in it."`
}

// Help is the text below the synopsis.
func (*resetCmd) Help() string {
	return `Recreates the surroundings of a sandbox: its processes, namespaces or container, and temporary directories.
What was written to the workspace stays, unless --hard. A stopped sandbox is started by it.

    hutch reset try
    hutch reset --hard -f try`
}

func (c *resetCmd) Run(ctx context.Context, u *ui) error {
	return withSandboxes(u, func(m *sandbox.Manager, _ *session.Session) error {
		if err := m.Reset(ctx, c.Sandbox, c.Hard, c.Force); err != nil {
			return err
		}
		return u.line("%s", c.Sandbox)
	})
}

type rmCmd struct {
	Sandboxes []string `arg:"" name:"sandbox" help:"Names or ids of sandboxes, or beginnings of ids." complete:"sandbox"`
	Force     bool     `short:"f" help:"End commands that run in them, and say nothing about those that are not there."`
}

// Help is the text below the synopsis.
func (*rmCmd) Help() string {
	return `Removes sandboxes with all that was written in them. The records of the commands that ran in them stay, see
hutch runs.

    hutch rm try
    hutch rm -f try other`
}

func (c *rmCmd) Run(ctx context.Context, u *ui) error {
	return withSandboxes(u, func(m *sandbox.Manager, _ *session.Session) error {
		failed := 0
		for _, ref := range c.Sandboxes {
			err := m.Remove(ctx, ref, c.Force)
			if errors.Is(err, store.ErrNoSandbox) && c.Force {
				continue
			}
			if err != nil {
				failed++
				u.note("%s", err)
				continue
			}
			if err := u.line("%s", ref); err != nil {
				return err
			}
		}
		if failed > 0 {
			return exit(exitFailure)
		}
		return nil
	})
}

type projectCmd struct {
	Create projectCreateCmd `cmd:"" help:"Make a shared project directory, and print its path."`
	Ls     projectLsCmd     `cmd:"" help:"List projects."`
	Rm     projectRmCmd     `cmd:"" help:"Remove projects with all their files."`
}

// Help is the text below the synopsis.
func (*projectCmd) Help() string {
	return `A project is a directory that hutch keeps and that any number of sandboxes share: workspace { project =
"NAME" } in a run file, or --project NAME. Each sandbox writes to its own layer, unless its mode is shared.`
}

type projectCreateCmd struct {
	Name string `arg:"" name:"name" help:"Name of the project."`
}

func (c *projectCreateCmd) Run(u *ui) error {
	s, done, err := openStore()
	if err != nil {
		return err
	}
	defer done()
	dir, err := s.CreateProject(c.Name)
	if err != nil {
		return err
	}
	return u.line("%s", dir)
}

type projectLsCmd struct {
	Quiet  bool   `short:"q" help:"Print only the names."`
	Output string `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one object a line."`
}

func (c *projectLsCmd) Run(u *ui) error {
	s, done, err := openStore()
	if err != nil {
		return err
	}
	defer done()
	list, err := s.Projects()
	if err != nil {
		return err
	}
	switch {
	case c.Quiet:
		return printEach(u, "text", list, func(p store.Project) string { return p.Name })
	case c.Output == "json":
		return printEach(u, c.Output, list, nil)
	case len(list) == 0:
		u.note("no projects")
		return nil
	}
	rows := [][]string{{"NAME", "SANDBOXES", "SIZE", "FILES"}}
	for _, p := range list {
		rows = append(rows, []string{p.Name, fmt.Sprint(len(p.Sandboxes)), units.FormatSize(p.Bytes), p.Dir})
	}
	return u.table(rows)
}

type projectRmCmd struct {
	Names []string `arg:"" name:"name" help:"Names of projects." complete:"project"`
	Force bool     `short:"f" help:"Remove the sandboxes that have it as their workspace, too."`
}

func (c *projectRmCmd) Run(ctx context.Context, u *ui) error {
	return withSandboxes(u, func(m *sandbox.Manager, _ *session.Session) error {
		for _, name := range c.Names {
			err := m.RemoveProject(ctx, name, c.Force)
			if errors.Is(err, store.ErrInUse) && !c.Force {
				return &hinted{err, []string{"hutch project rm -f " + name + " removes those sandboxes, too"}}
			}
			if err != nil {
				return err
			}
			if err := u.line("%s", name); err != nil {
				return err
			}
		}
		return nil
	})
}
