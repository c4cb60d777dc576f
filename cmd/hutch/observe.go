package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/hutch-run/hutch/host/observe"
	"github.com/hutch-run/hutch/host/report"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/termsafe"
)

type observeCmd struct {
	runFlags
	Prove        bool `group:"output" help:"Run again with what was found, then without each rule and mount in turn, and keep only those without which the run fails."`
	MountMissing bool `group:"output" help:"Run again, read-only, with the directories of this machine that a failed run asked for, until it succeeds or asks for no others."`
	Quiet        bool `group:"output" short:"q" help:"Do not pass on what the program prints."`
}

// Usage replaces the synopsis, because the ways of calling share no operand.
func (*observeCmd) Usage() []string {
	return []string{"hutch observe [flags] FILE [RUN] [-- ARG...]", "hutch observe [flags] -- COMMAND [ARG...]",
		"hutch observe [flags] SCRIPT [ARG...]", "hutch observe [flags] IMAGE COMMAND [ARG...]"}
}

// Help is the text below the synopsis.
func (*observeCmd) Help() string {
	return `Runs a command you trust enough to run once with an open network, records the names and ports it connects to,
the files it asks for outside of what every sandbox has, its time, memory and processes, and prints what would have
sufficed: for a command a whole run file, for a run of a run file its network, mount and limits blocks. That goes to
stdout; what the program prints goes to stderr.

Every public name is reachable. Private networks, this machine and metadata services are not, unless --allow-host or
the run file names them; a destination that was denied is a comment in what is printed.

The sandbox shows the program no other files than usual. What a failed run asked for in vain becomes a mount in what
is printed; with --mount-missing it is run again with these mounts, read-only. Mounts that were not used are left out.
Only bwrap records files.

With --prove the run is repeated without each rule and each mount, and its expect block (or exit code 0) decides
whether it is needed.

The exit code is that of the observed run, as for hutch run.

Examples:

    hutch observe --workspace . -- npm ci > npm.hcl
    hutch observe --mount-missing -- /opt/sdk/bin/compile --version
    hutch observe --prove ci.hcl test`
}

func (c *observeCmd) Run(ctx context.Context, u *ui, call *call) error {
	c.Args = runFileOf(c.Args)
	files, names := splitOperands(c.Args)
	switch {
	case len(names) > 0 && names[0] == "-":
		return errors.New("observe needs a script that the run file can name, not stdin: save it to a file")
	case c.Network != "":
		return errors.New("observe opens the network itself; --allow-host adds private destinations")
	}
	s, done, err := openFor(u, files)
	if err != nil {
		return err
	}
	defer done()
	s.StartFor(files)
	u.reading.Store(true)
	defs, err := c.definitions(s, call)
	u.reading.Store(false)
	if err != nil {
		return err
	}
	if len(defs) > 1 {
		return fmt.Errorf("observe is for one run, and %s has %d; name the one that is meant", files[0], len(defs))
	}
	d := defs[0]
	if c.Prove && d.Workspace != nil && d.Workspace.Mode == "shared" {
		return hint(errors.New("--prove runs the command several times, and each would change the shared workspace"),
			`use mode = "private"`)
	}
	pool, err := s.Pool()
	if err != nil {
		return err
	}
	show := bareShow(u, &runCmd{Output: "text", Quiet: c.Quiet})
	defer show.restore()
	runner, err := s.Runner(c.MinIsolation, run.Options{Progress: show.progress})
	if err != nil {
		return err
	}
	open, err := observe.Open(ctx, runner.WithBackends(d), pool.Facts)
	if err != nil {
		return err
	}
	shown := run.Streams{Stdout: u.err, Stderr: u.err}
	if c.Quiet {
		shown = run.Streams{}
	}
	r, needs, err := c.observe(ctx, u, open, func(d *runfile.Definition) (*result.Result, error) {
		defer show.restore()
		return runner.Run(ctx, d, shown)
	})
	if err != nil {
		return err
	}
	d.Mounts = needs.Mounts
	if !r.OK {
		if err := report.Summary(u.err, r, report.Style{Color: u.color}); err != nil {
			return err
		}
		if r.Error != nil {
			return exit(u.status(result.ExitCode(r)))
		}
		u.note("the observed run failed, so what follows may not be all that it needs")
	}
	if c.Prove && r.OK {
		needs, err = needs.Prove(d, func(what string, d *runfile.Definition) (bool, error) {
			r, err := runner.Run(ctx, d, run.Streams{})
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return false, err
			}
			u.note("%s: %s", termsafe.Line(what), verdict(r))
			return r.OK, nil
		})
		show.restore()
		if err != nil {
			return err
		}
	}
	text := needs.Blocks(d)
	if len(files) == 0 {
		if text, err = c.file(d, needs, names); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(u.out, text); err != nil {
		return err
	}
	return exit(u.status(result.ExitCode(r)))
}

// mostRuns bounds how often --files runs a command.
const mostRuns = 6

// observe runs d once, or with --mount-missing until it has what it asks for.
func (c *observeCmd) observe(ctx context.Context, u *ui, d *runfile.Definition,
	run func(*runfile.Definition) (*result.Result, error)) (*result.Result, observe.Needs, error) {
	for i := 1; ; i++ {
		r, err := run(d)
		if err != nil {
			return nil, observe.Needs{}, err
		}
		needs := observe.From(d, r)
		missing := needs.Missing(d)
		if r.OK || !c.MountMissing || len(missing) == 0 || i == mostRuns || ctx.Err() != nil {
			return r, needs, nil
		}
		more := *d
		more.Mounts = slices.Clone(d.Mounts)
		for _, m := range missing {
			u.note("it failed, and had asked for %s: running it again with that, read-only", termsafe.Line(m.Source))
			more.Mounts = append(more.Mounts, m)
		}
		d = &more
	}
}

// file is the run file for a command.
func (c *observeCmd) file(d *runfile.Definition, needs observe.Needs, names []string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	script, image := "", ""
	switch {
	case len(names) > 0 && isImage().MatchString(names[0]) && d.Entrypoint == "":
		image = names[0]
	case d.Entrypoint != "":
		if script, err = filepath.Abs(names[0]); err != nil {
			return "", err
		}
		if rel, err := filepath.Rel(dir, script); err == nil && filepath.IsLocal(rel) {
			script = rel
		}
	}
	return needs.File(d, dir, script, image), nil
}

// verdict says whether a run did what is expected of it.
func verdict(r *result.Result) string {
	switch {
	case r.OK:
		return "succeeds"
	case r.Error != nil:
		return "fails: " + termsafe.Line(r.Error.Summary)
	case r.ExitCode != nil && *r.ExitCode != 0:
		return fmt.Sprintf("fails with exit code %d", *r.ExitCode)
	}
	return "fails: " + string(r.Cause)
}
