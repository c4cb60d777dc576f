package main

import (
	"context"
	"errors"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/replay"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
)

type replayCmd struct {
	runRef
	Backend string   `placeholder:"NAME" help:"Run it on this backend (default: the one that it ran on)." complete:"backend"`
	Var     []string `sep:"none" placeholder:"NAME=VALUE" help:"Set a variable of the run file, for what the record lacks because it was sensitive. Repeatable."`
	VarFile []string `sep:"none" placeholder:"FILE" help:"Read variables from a file. Repeatable." complete:"file"`
	Env     []string `short:"e" sep:"none" placeholder:"NAME[=VALUE]" help:"Give a variable of the environment that the record lacks; without a value, pass it on from here. Repeatable."`
	Allow   []string `name:"allow-host" sep:"none" placeholder:"RULE" help:"Let it reach RULE, too; see hutch run. Repeatable."`
	Shared  bool     `help:"Run again in a workspace in shared mode, where the run writes to your directory."`
	Output  string   `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text or json."`
}

// Help is the text below the synopsis.
func (*replayCmd) Help() string {
	return `Runs a recorded run again, as the record has it: the definition as it was evaluated, the files in code/, the
block of the backend; the record is checked against its event chain first. Then it says what differs: how it ended,
stdout and stderr, outputs, changes of the workspace, dependencies. Versions, limits' mechanisms and usage are shown
and do not count. The workspace is your directory as it is now, and hutch says whether it was touched since.

Sensitive values are not in the record: they are taken from the run file with --var, --var-file or HUTCH_VAR_NAME as
hutch run does, or for the environment from -e. On another backend, its block is that of the run file, where there is
one.

The exit code is

    0       nothing differs
    1       something differs
    125     hutch refused it, or failed

Examples:

    hutch replay
    hutch replay 3k7q2 --backend podman
    hutch replay 3k7q2 -e TOKEN -o json`
}

func (c *replayCmd) Run(ctx context.Context, u *ui) error {
	s, done, err := open(u)
	if err != nil {
		return err
	}
	defer done()
	rec, err := load(s.Store(), c.ID)
	if err != nil {
		return err
	}
	if file := replay.RunFile(rec); file != "" {
		s.UseLocks(file)
	}
	reach, err := network.FromFlags("", c.Allow)
	if err != nil {
		return err
	}
	o := replay.Options{Backend: c.Backend, Env: map[string]string{}, Shared: c.Shared, Network: reach}
	for _, e := range c.Env {
		if err := setEnv(o.Env, new([]string), e); err != nil {
			return err
		}
	}
	looked := false
	o.RunFile = func(path string) (*runfile.Config, error) {
		looked = true
		conf, ds := runfile.Load([]string{path}, runOptions(s.Store(), c.Var, c.VarFile))
		return conf, ds.Err()
	}
	r, err := replay.Prepare(ctx, s.Store(), rec.ID, o)
	var refused *replay.RefusedError
	switch {
	case errors.As(err, &refused) && refused.Fix != "":
		return hint(err, "%s", refused.Fix)
	case err != nil:
		return err
	case !looked && len(c.Var)+len(c.VarFile) > 0:
		return errors.New("--var and --var-file are for what the record lacks, and it lacks nothing")
	}
	runner, err := s.Runner("", run.Options{})
	if err != nil {
		return err
	}
	report, err := r.Run(ctx, runner, run.Streams{}, version)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		err = u.json(report)
	} else {
		err = report.WriteText(u.out, replay.Style{Color: u.outTTY && u.color})
	}
	switch {
	case err != nil:
		return err
	case !report.Same:
		return exit(exitNo)
	}
	return nil
}
