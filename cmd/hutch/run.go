package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/host/config"
	"github.com/hutch-run/hutch/host/outputs"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/session"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/workspace/review"
)

// runFlags say what runs, in which sandbox.
type runFlags struct {
	Args []string `arg:"" optional:"" name:"file" help:"Run files, and after them the names of the runs wanted; without names, all of them." complete:"hcl"`

	Var     []string `group:"file" sep:"none" placeholder:"NAME=VALUE" help:"Set a variable of the run file. Repeatable."`
	VarFile []string `group:"file" sep:"none" placeholder:"FILE" help:"Read variables from a file of NAME = VALUE lines, or JSON. Repeatable." complete:"file"`

	Backend      string   `group:"sandbox" placeholder:"NAME" help:"Use this backend; in a run file, instead of those it names. Without a file: by default the one of the configuration, else the first of bwrap, podman and lima that works here." complete:"backend"`
	MinIsolation string   `group:"sandbox" enum:",none,process,namespace,container,vm,remote-vm" default:"" placeholder:"LEVEL" help:"Refuse a backend that isolates less: none, process, namespace, container, vm or remote-vm."`
	Workspace    *mount   `group:"sandbox" placeholder:"DIR[:MODE]" help:"Show DIR at /workspace. MODE private (default) keeps writes in the sandbox, shared lets them land in DIR at once, readonly refuses them." complete:"dir"`
	Project      *project `group:"sandbox" placeholder:"NAME[:MODE]" help:"Show the shared project NAME at /workspace; see hutch project." complete:"project"`
	networkFlags `group:"sandbox"`
	secretFlags  `group:"sandbox"`
	publishFlag  `group:"sandbox"`
	mountFlags   `group:"sandbox"`

	runfile.Limits `group:"limits"`

	MinAge duration `group:"file" placeholder:"3d" help:"Install no release of a dependency that is younger."`

	Language string   `group:"command" placeholder:"NAME" help:"Language of a script whose name and first line do not tell."`
	Env      []string `group:"command" short:"e" sep:"none" placeholder:"NAME[=VALUE]" help:"Set an environment variable; without a value, pass it on from here, as a secret. No record has the value. Repeatable."`
	EnvFile  []string `group:"command" sep:"none" placeholder:"FILE" help:"Read NAME=VALUE lines. Repeatable." complete:"file"`
	Workdir  string   `group:"command" short:"w" placeholder:"DIR" help:"Directory inside the sandbox to start in (default /workspace)."`
}

type runCmd struct {
	runFlags

	Jobs        int  `group:"file" short:"j" placeholder:"N" help:"Run so many at once (default: one per processor)."`
	Retry       int  `group:"file" placeholder:"N" help:"Repeat a run that is not ok up to N times. One that is ok in the end counts as ok, and is reported as flaky."`
	FailFast    bool `group:"file" help:"Start nothing more, and stop what runs, after the first run that is not ok."`
	AllBackends bool `group:"file" help:"Run each run once on every able backend that it names, or where it names none on every one installed, and mark in what the results differ."`

	Keep bool   `group:"sandbox" help:"Leave the sandbox, for hutch exec, until hutch rm removes it."`
	Name string `group:"sandbox" placeholder:"NAME" help:"With --keep: the name of the sandbox; by default one is made from that of the run."`

	Interactive bool `group:"command" short:"i" help:"Connect stdin; without it the program reads an empty one."`
	TTY         bool `group:"command" name:"tty" short:"t" help:"Give the program a terminal; with -i, this one."`

	Output  string `group:"output" short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one result object a run, and nothing of what it prints."`
	Quiet   bool   `group:"output" short:"q" xor:"loud" help:"Only what the program prints."`
	Verbose bool   `group:"output" xor:"loud" help:"Show the whole result of each run, as hutch show does: id, command, how each limit was held, every destination, notes."`
	DryRun  bool   `group:"output" help:"Print the plan and run nothing, as hutch plan does."`
	RM      bool   `name:"rm" hidden:"" help:"Nothing: sandboxes are removed after their run."`
	JUnit   string `group:"output" name:"junit" placeholder:"FILE" help:"Write the results as JUnit XML." complete:"file"`
	Outputs string `group:"output" placeholder:"DIR" help:"Copy what runs leave in their output directory to DIR/RUN." complete:"dir"`
	GitHub  bool   `group:"output" name:"github" help:"Write GitHub annotations, and a summary to GITHUB_STEP_SUMMARY."`
	Trace   string `group:"output" placeholder:"FILE" help:"Write the spans of the call as Chrome trace events, to see where the time goes." complete:"file"`

	applyFlags

	exporter *outputs.Exporter // nil without --outputs
}

// Usage replaces the synopsis, because the two ways of calling share no operand.
func (*runCmd) Usage() []string {
	return []string{"hutch run [flags] FILE... [RUN...] [-- ARG...]", "hutch run [flags] -- COMMAND [ARG...]",
		"hutch run [flags] SCRIPT|- [ARG...]", "hutch run [flags] IMAGE COMMAND [ARG...]"}
}

// Help is the text below the synopsis.
func (*runCmd) Help() string {
	return `With run files, every run in them is executed, or those that are named; what stands after -- is added to the
arguments of the program. Without a file, what stands after -- is the command: the same path, the same record, the
same result. A script is a file that is no run file, with the extension of a language, a first line with #!, or the
right to be executed, or - for stdin; an image has a tag or a registry.

Limits, --network, --allow-host, --env and --backend override the run file. The program's output is passed on as it
comes; with several runs each line carries the name of its run. The exit code is the program's own, except

    1       it ended with 0, but not as its expect block says
    124     it timed out
    125     hutch or the backend failed, or refused the run
    126     the command cannot be executed
    127     the command was not found
    128+n   a signal ended it: 130 after ^C, 137 for one that was killed or used too much

A run that ends as its expect block says counts as 0. With several runs the exit code is that of the first one that is
not ok, in the order of the files.

Examples:

    hutch run examples/hello.hcl
    hutch run ci.hcl test lint --var rev=main -j 2 --junit results.xml
    hutch run --backend bwrap --workspace . --timeout 30s -m 512m -- python3 -m pytest -q
    hutch run --backend bwrap -it -- bash
    hutch run script.py 5
    hutch run --language python - < script.txt
    hutch run debian:12 cat /etc/os-release`
}

func (c *runCmd) Run(ctx context.Context, u *ui, call *call) error {
	var trace *run.Trace
	if c.Trace != "" {
		trace = run.NewTrace(u.started)
		trace.Since(u.host.how)
	}
	if err := errors.Join(checkWritable("--junit", c.JUnit), checkWritable("--trace", c.Trace)); err != nil {
		return err
	}
	// When nobody reads on, the write fails and ends that stream alone; the program then learns it as it would without
	// hutch, and the run has a result. Catching and not ignoring it, because what is ignored stays so in children.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	c.Args = runFileOf(c.Args)
	files, _ := splitOperands(c.Args)
	s, done, err := openFor(u, files)
	if err != nil {
		return err
	}
	defer done()
	if c.Backend != "" {
		s.Start(c.Backend) // it comes up while the files are read
	} else {
		s.StartFor(files)
	}
	end := trace.Span("read run files")
	u.reading.Store(true)
	defs, err := c.definitions(s, call)
	u.reading.Store(false)
	end()
	if err != nil {
		return err
	}
	if c.TTY && len(defs) > 1 {
		return errors.New("-t is for one run, and this call has " + count(len(defs), "run") + "; name the one that is meant")
	}
	if err := c.check(u, defs, c.AllBackends); err != nil {
		return err
	}
	if err := errors.Join(c.checkKeep(defs), c.checkRetry()); err != nil {
		return err
	}
	if c.Outputs != "" && !c.DryRun {
		if c.exporter, err = outputs.NewExporter(c.Outputs); err != nil {
			return fmt.Errorf("--outputs: %s", plain(err))
		}
		defer c.exporter.Close()
	}
	conf, err := c.apply(s, defs)
	if err != nil {
		return err
	}
	planner, err := s.Runner(c.MinIsolation, run.Options{Keep: c.wanted() || c.Keep})
	if err != nil {
		return err
	}
	if c.DryRun {
		return dryRun(ctx, u, planner, defs, c.Output)
	}
	if c.AllBackends {
		pool, err := s.Pool()
		if err != nil {
			return err
		}
		var unable []run.Unable
		if defs, unable, err = planner.OnEach(ctx, defs, pool.Names()); err != nil {
			return err
		}
		for _, n := range unable {
			u.note("%s: not on %s: %s", n.Run, n.Backend, strings.Join(n.Reasons, "; "))
		}
		if conf, err = c.apply(s, defs); err != nil {
			return err
		}
	}
	show, err := newShow(u, c, defs)
	if err != nil {
		return err
	}
	defer show.restore()
	idle := retire(u, s)
	if c.wanted() {
		idle = nil // the backends are needed again
	}
	if !c.Quiet && c.Output != "json" {
		sayDefault(u, s, c.MinIsolation, defs)
	}
	runner, err := s.Runner(c.MinIsolation, run.Options{
		Ahead: u.host.boxes, Progress: show.progress, Processes: show.table != nil, Trace: trace, TakeBase: review.WriteBase,
		Keep: c.wanted() || c.Keep, Name: c.Name,
	})
	if err != nil {
		return err
	}
	every := progressEvery
	if show.table != nil {
		every = drawEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	unwatch := show.watch(ticker.C)
	results, err := runner.RunAll(ctx, defs, run.Many{
		Jobs: conf.Jobs, Retry: c.Retry, FailFast: c.FailFast, Streams: show.streams, Again: show.again, Each: show.result,
		InOrder: show.inOrder, Idle: idle,
	})
	unwatch()
	show.restore()
	if !c.Quiet && c.Output != "json" {
		sayWeaker(u, s, results)
	}
	unrecorded := func(r *result.Result) bool { return r != nil && r.Error != nil && r.Error.Phase == "record" }
	if err != nil && c.Output == "text" && !c.wanted() && slices.ContainsFunc(results, unrecorded) {
		err = exit(exitFailure) // what happened to the record was said with the result
	}
	if c.wanted() {
		err = errors.Join(err, c.after(ctx, u, s, results, c.Keep))
	}
	if reportErr := c.report(ctx, u, show, results, trace); err == nil {
		err = reportErr
	}
	if err == nil {
		err = show.whole()
	}
	if err != nil {
		return err
	}
	return exit(u.status(result.ExitCode(slices.DeleteFunc(results, func(r *result.Result) bool { return r == nil })...)))
}

// definitions are the runs of this call, from files or from the command after --. For each says that a command is meant
// for every backend.
func (c *runFlags) definitions(s *session.Session, call *call) ([]*runfile.Definition, error) {
	files, names := splitOperands(c.Args)
	if len(files) == 0 {
		return c.direct(s, call, names)
	}
	if c.Workspace != nil || c.Project != nil || c.Workdir != "" {
		return nil,
			errors.New("--workspace, --project and --workdir are for a command without a run file; a run file says them itself")
	}
	conf, ds := runfile.Load(files, runOptions(s.Store(), c.Var, c.VarFile))
	if ds.HasErrors() {
		return nil, ds.Err()
	}
	defs, err := choose(conf.Runs(), names)
	if err != nil && slices.ContainsFunc(conf.Generates(),
		func(g *runfile.Generate) bool { return len(names) == 0 || slices.Contains(names, g.Name) }) {
		return nil, hint(err, "hutch generate %s executes the generate block", files[0])
	}
	if err != nil && slices.ContainsFunc(conf.Cycles(),
		func(b *runfile.Cycle) bool { return len(names) == 0 || slices.Contains(names, b.Name) }) {
		return nil, hint(err, "hutch cycle %s works the cycle block", files[0])
	}
	if err != nil {
		return nil, err
	}
	if len(call.tail) > 0 && len(defs) > 1 {
		return nil, fmt.Errorf("arguments after -- are for one run, and this call has %d; name the one that is meant",
			len(defs))
	}
	o, err := c.overrides()
	if err != nil {
		return nil, err
	}
	o.Args = call.tail
	if c.Backend != "" {
		o.Backends = []string{c.Backend}
	}
	var out []*runfile.Definition
	for _, d := range defs {
		out = append(out, o.Apply(d))
	}
	return out, nil
}

// checkKeep refuses what could not be kept, or not named, before anything runs.
func (c *runCmd) checkKeep(defs []*runfile.Definition) error {
	switch {
	case c.Name != "" && !c.Keep:
		return errors.New("--name is the name of the sandbox that --keep leaves")
	case c.Name != "" && len(defs) > 1:
		return errors.New("--name is for one run, and this call has " + count(len(defs), "run") +
			"; name the one that is meant")
	case c.Name != "":
		return store.CheckName(c.Name)
	}
	return nil
}

// checkRetry refuses what cannot be repeated.
func (c *runCmd) checkRetry() error {
	switch {
	case c.Retry < 0:
		return fmt.Errorf("--retry %d: at least 0", c.Retry)
	case c.Retry == 0:
		return nil
	case c.Keep || c.wanted():
		return errors.New("--retry removes the sandbox of each attempt; it does not go with --keep and --apply")
	case c.Interactive || c.TTY:
		return errors.New("--retry reads no stdin and has no terminal, for an attempt uses them up; leave out -i and -t")
	}
	return nil
}

// apply puts together what flags and configuration say about the whole call.
func (c *runCmd) apply(s *session.Session, defs []*runfile.Definition) (*config.Config, error) {
	if c.Jobs < 0 {
		return nil, fmt.Errorf("--jobs %d: at least one run at a time", c.Jobs)
	}
	conf, err := s.ConfigFor(c.MinIsolation)
	if err != nil {
		return nil, err
	}
	if c.Jobs > 0 {
		conf.Jobs = c.Jobs
	}
	if conf.Jobs == 0 {
		conf.Jobs = runtime.NumCPU()
	}
	conf.Jobs = min(conf.Jobs, len(defs))
	return conf, nil
}

// overrides are what the flags say about limits, mounts, environment and network.
func (c *runFlags) overrides() (o run.Overrides, err error) {
	o = run.Overrides{Limits: c.Limits, Mounts: c.mounts(), MinAge: c.MinAge}
	if o.Env, o.Passed, err = c.environment(); err != nil {
		return o, err
	}
	if o.Network, err = c.network(); err == nil {
		o.Network, err = o.Network.WithSecrets(c.Secret)
	}
	if err == nil {
		o.Network, err = c.publish(o.Network)
	}
	return o, err
}

// environment is what --env-file and --env add to the environment; the latter is stronger, and so is the last of a
// name. passed are the names whose values are those that they have here.
func (c *runFlags) environment() (env map[string]string, passed []string, err error) {
	env = map[string]string{}
	for _, file := range c.EnvFile {
		src, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, fmt.Errorf("--env-file: %s", plain(err))
		}
		if err := addEnvFile(env, &passed, file, string(src)); err != nil {
			return nil, nil, err
		}
	}
	for _, e := range c.Env {
		if err := setEnv(env, &passed, e); err != nil {
			name, _, _ := strings.Cut(e, "=")
			return nil, nil, fmt.Errorf("--env %s: %w", name, err)
		}
	}
	return env, passed, nil
}

// addEnvFile adds the variables of a file, one a line; empty lines and comments count for nothing.
func addEnvFile(env map[string]string, passed *[]string, file, src string) error {
	for n, line := range strings.Split(src, "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := setEnv(env, passed, line); err != nil {
			return fmt.Errorf("%s:%d: %w", file, n+1, err)
		}
	}
	return nil
}

// setEnv adds NAME=VALUE, or NAME with the value it has here; one that is not set here stays unset.
func setEnv(env map[string]string, passed *[]string, s string) error {
	name, value, ok := strings.Cut(s, "=")
	if name == "" || strings.ContainsAny(name, " \t\x00") || strings.ContainsRune(value, 0) {
		return errors.New("not of the form NAME=VALUE")
	}
	if !ok {
		if value, ok = os.LookupEnv(name); !ok {
			return nil
		}
		*passed = append(*passed, name)
	} else {
		*passed = slices.DeleteFunc(*passed, func(n string) bool { return n == name })
	}
	env[name] = value
	return nil
}

// report writes what is to be written once all runs have ended.
func (c *runCmd) report(ctx context.Context, u *ui, show *show, results []*result.Result, trace *run.Trace) error {
	var ended []*result.Result
	for _, r := range results {
		if r != nil {
			ended = append(ended, r)
		}
	}
	u.asked.answered = true
	err := show.finish(ended, len(results)-len(ended))
	for _, step := range []func() error{
		func() error { return c.export(ctx, ended) },
		func() error { return c.junit(ended) },
		func() error { return c.github(u, ended) },
		func() error {
			return writeTo(c.Trace, func(w io.Writer) error { _, err := trace.WriteTo(w); return err })
		},
	} {
		if e := step(); err == nil {
			err = e
		}
	}
	return err
}

// export copies what the runs left to the directory of --outputs, also after an interruption.
func (c *runCmd) export(ctx context.Context, rs []*result.Result) error {
	if c.exporter == nil {
		return nil
	}
	var errs []error
	for _, r := range rs {
		errs = append(errs, c.exporter.Export(context.WithoutCancel(ctx), r.Name, filepath.Join(r.Dir, "output"), r.Outputs))
	}
	return errors.Join(errs...)
}
