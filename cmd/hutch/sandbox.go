package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/run/language"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/session"
	"github.com/hutch-run/hutch/host/store"
)

// withSandboxes calls fn with the manager of persistent sandboxes.
func withSandboxes(u *ui, fn func(m *sandbox.Manager, s *session.Session) error) error {
	s, done, err := open(u)
	if err != nil {
		return err
	}
	defer done()
	m, err := s.Sandboxes(waking(u))
	if err != nil {
		return err
	}
	return fn(m, s)
}

type createCmd struct {
	Args []string `arg:"" optional:"" name:"file" help:"A run file, and after it the name of the run whose sandbox is wanted; without a name it must hold one run." complete:"hcl"`

	Name    string   `short:"n" placeholder:"NAME" help:"Name of the sandbox; by default one is made from that of the run."`
	Var     []string `group:"file" sep:"none" placeholder:"NAME=VALUE" help:"Set a variable of the run file. Repeatable."`
	VarFile []string `group:"file" sep:"none" placeholder:"FILE" help:"Read variables from a file of NAME = VALUE lines, or JSON. Repeatable." complete:"file"`

	Backend      string   `group:"sandbox" placeholder:"NAME" help:"Use this backend; in a run file, instead of those it names. Without a file: by default the one of the configuration, else the first of bwrap, podman and lima that works here." complete:"backend"`
	MinIsolation string   `group:"sandbox" enum:",none,process,namespace,container,vm,remote-vm" default:"" placeholder:"LEVEL" help:"Refuse a backend that isolates less: none, process, namespace, container, vm or remote-vm."`
	Workspace    *mount   `group:"sandbox" placeholder:"DIR[:MODE]" help:"Show DIR at /workspace. MODE private (default) keeps writes in the sandbox, shared lets them land in DIR at once, readonly refuses them." complete:"dir"`
	Project      *project `group:"sandbox" placeholder:"NAME[:MODE]" help:"Show the shared project NAME at /workspace; see hutch project."`
	networkFlags `group:"sandbox"`
	secretFlags  `group:"sandbox"`
	publishFlag  `group:"sandbox"`
	mountFlags   `group:"sandbox"`
	Env          []string `group:"command" short:"e" sep:"none" placeholder:"NAME[=VALUE]" help:"Set an environment variable of every command; without a value, pass it on from here. Repeatable."`
	EnvFile      []string `group:"command" sep:"none" placeholder:"FILE" help:"Read NAME=VALUE lines. Repeatable." complete:"file"`
	Workdir      string   `group:"command" short:"w" placeholder:"DIR" help:"Directory inside the sandbox that commands start in (default /workspace)."`

	runfile.Limits `group:"limits"`

	Output string `group:"output" short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text: the name of the sandbox; json: its record."`
}

// Usage replaces the synopsis, because the two ways of calling share no operand.
func (*createCmd) Usage() []string {
	return []string{"hutch create [flags] FILE [RUN]", "hutch create [flags] --backend NAME"}
}

// Help is the text below the synopsis.
func (*createCmd) Help() string {
	return `Makes a sandbox that lasts until hutch rm removes it, with the files, dependencies and limits of a run, but
runs nothing. Commands run in it with hutch exec. Prints its name.

A private workspace is a layer over the directory: any number of sandboxes can be made on one, and none sees what
another wrote. Environment, directory and limits hold for every command. Values of the environment are kept in the
sandbox's record, in clear and readable by you alone, until it is removed.

    hutch create ci.hcl test --name ci
    hutch create --backend bwrap --workspace . -m 512m --name try
    hutch exec try -- make test`
}

func (c *createCmd) Run(ctx context.Context, u *ui) error {
	files, _ := splitOperands(c.Args)
	s, done, err := openFor(u, files)
	if err != nil {
		return err
	}
	defer done()
	if c.Backend != "" {
		s.Start(c.Backend)
	}
	d, err := c.definition(s)
	if err != nil {
		return err
	}
	show, err := newShow(u, &runCmd{}, []*runfile.Definition{d})
	if err != nil {
		return err
	}
	defer show.restore()
	m, err := s.Sandboxes(show.progress)
	if err != nil {
		return err
	}
	conf, err := s.ConfigFor(c.MinIsolation)
	if err != nil {
		return err
	}
	info, err := m.With(func(o *run.Options) { o.MinIsolation = conf.MinIsolation }).Create(ctx, d, c.Name)
	show.restore()
	switch {
	case err != nil:
		return madeError(err)
	case c.Output == "json":
		return u.json(info)
	}
	return u.line("%s", info.Name)
}

// madeError is an error of making a sandbox, in the words of the command line.
func madeError(err error) error {
	var f *result.Failure
	switch {
	case errors.As(err, &f) && len(f.Diagnostics) > 0:
		if last := &f.Diagnostics[len(f.Diagnostics)-1]; last.Fix == "" {
			last.Fix = f.Fix
		}
		return f.Diagnostics
	case errors.As(err, &f) && f.Fix != "":
		what := *f
		what.Fix = ""
		return hint(&what, "%s", f.Fix)
	}
	return err
}

// definition is the run whose sandbox is wanted.
func (c *createCmd) definition(s *session.Session) (*runfile.Definition, error) {
	like := &runFlags{Backend: c.Backend, MinIsolation: c.MinIsolation, networkFlags: c.networkFlags,
		secretFlags: c.secretFlags, publishFlag: c.publishFlag, mountFlags: c.mountFlags, Env: c.Env, EnvFile: c.EnvFile,
		Workspace: c.Workspace, Project: c.Project, Workdir: c.Workdir,
		Limits: c.Limits, Var: c.Var, VarFile: c.VarFile, Args: c.Args}
	files, names := splitOperands(c.Args)
	switch {
	case len(files) == 0 && len(names) > 0 && isDir(names[0]):
		return nil, directory("create", names[0])
	case len(files) == 0 && len(names) > 0:
		return nil, hint(fmt.Errorf("no run file %q", names[0]),
			"hutch create --backend bwrap --name %s makes a sandbox without one", names[0])
	case len(files) == 0:
		if len(c.Var) > 0 || len(c.VarFile) > 0 {
			return nil, errors.New("--var and --var-file are for run files")
		}
		d, err := like.direct(s, &call{tail: []string{"sh"}}, nil)
		if err != nil {
			return nil, err
		}
		d[0].Command, d[0].Name, d[0].Instance = nil, "", ""
		return d[0], nil
	case len(files) > 1 || len(names) > 1:
		return nil, errors.New("create makes one sandbox: name one run file, and one run in it")
	}
	defs, err := like.definitions(s, &call{})
	if err != nil {
		return nil, err
	}
	if len(defs) > 1 {
		var all []string
		for _, d := range defs {
			all = append(all, d.Instance)
		}
		return nil, hint(fmt.Errorf("%s holds %d runs, and create makes one sandbox", files[0], len(defs)),
			"name one of them: %s", strings.Join(all, ", "))
	}
	return defs[0], nil
}

// runOptions are what every reading of a run file has in common.
func runOptions(s *store.Store, vars, varFiles []string) runfile.Options {
	return runfile.Options{Vars: vars, VarFiles: varFiles, Languages: language.Names(), Project: s.ProjectDir}
}

type execCmd struct {
	Sandbox string `arg:"" name:"sandbox" help:"Name or id of a sandbox, or the beginning of an id." complete:"sandbox"`

	Timeout     duration `group:"limits" placeholder:"30s" help:"Wall time of this command; default: that of the sandbox."`
	OutputLimit size     `group:"limits" placeholder:"16m" help:"Bytes kept of each of stdout and stderr; default: that of the sandbox."`
	budgetFlags `group:"limits"`
	budget      *network.Budget // for a caller that has read the flags

	Env         []string `group:"command" short:"e" sep:"none" placeholder:"NAME[=VALUE]" help:"Set an environment variable, on top of the sandbox's; without a value, pass it on from here. Repeatable."`
	EnvFile     []string `group:"command" sep:"none" placeholder:"FILE" help:"Read NAME=VALUE lines. Repeatable." complete:"file"`
	Workdir     string   `group:"command" short:"w" placeholder:"DIR" help:"Directory inside the sandbox to start in; default: that of the sandbox."`
	publishFlag `group:"command"`
	AllowHost   []string `group:"command" sep:"none" placeholder:"RULE" help:"Let this command reach RULE, too, where the sandbox has a filtered network and the backend can: see hutch create. Repeatable."`
	User        string   `group:"command" short:"u" placeholder:"NAME" help:"User inside the sandbox, where the backend has several."`
	Interactive bool     `group:"command" short:"i" help:"Connect stdin; without it the program reads an empty one."`
	TTY         bool     `group:"command" name:"tty" short:"t" help:"Give the program a terminal; with -i, this one."`

	Output  string `group:"output" short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one result object, and nothing of what it prints."`
	Quiet   bool   `group:"output" short:"q" xor:"loud" help:"Only what the program prints."`
	Verbose bool   `group:"output" xor:"loud" help:"Show the whole result, as hutch show does."`
}

// Usage replaces the synopsis, which does not know of --.
func (*execCmd) Usage() []string { return []string{"hutch exec [flags] SANDBOX [--] COMMAND [ARG...]"} }

// Help is the text below the synopsis.
func (*execCmd) Help() string {
	return `Runs a command in a sandbox that hutch create or hutch run --keep left. Streams, signals, terminal, result
and exit code are those of hutch run; so is the record, which hutch runs, show and logs know. No outputs are collected
and no changes listed: hutch cp and hutch diff do that.

Any number of commands may run in one sandbox at once. What they leave in the workspace and in /tmp is there for the
next one; processes end with the command that started them.

    hutch exec try -- make test
    hutch exec -it try -- sh
    hutch exec -e DEBUG=1 --timeout 5m try -- ./server --once`
}

func (c *execCmd) Run(ctx context.Context, u *ui, call *call) error {
	if len(call.tail) == 0 {
		return hint(errors.New("exec needs a command"), "hutch exec %s sh -c '…'", c.Sandbox)
	}
	return withSandboxes(u, func(m *sandbox.Manager, s *session.Session) error {
		r, err := c.exec(ctx, u, m, s, call.tail, retire(u, s))
		if err != nil {
			return err
		}
		return exit(u.status(result.ExitCode(r)))
	})
}

// exec runs argv and shows its result. over is called when it has ended, before its record is complete.
func (c *execCmd) exec(ctx context.Context, u *ui, m *sandbox.Manager, s *session.Session, argv []string,
	over func()) (*result.Result, error) {
	like := &runCmd{Interactive: c.Interactive, TTY: c.TTY, Output: c.Output, Quiet: c.Quiet, Verbose: c.Verbose,
		runFlags: runFlags{Env: c.Env, EnvFile: c.EnvFile}}
	env, passed, err := like.environment()
	if err == nil {
		_, err = c.publish(network.Network{})
	}
	if err != nil {
		return nil, err
	}
	budget, err := network.ParseBudget(c.Budget, c.Price, nil)
	if err != nil {
		return nil, err
	}
	budget = cmp.Or(budget, c.budget)
	broken := make(chan os.Signal, 1) // as in run
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	if info, err := s.Store().FindSandbox(c.Sandbox); err == nil {
		s.StartMaker(info.Backend, info.Binary, info.BinarySHA256) // it comes up while the lock is taken
	}
	sb, err := m.Open(ctx, c.Sandbox, sandbox.Shared)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sb.Close() }()
	d := &runfile.Definition{Instance: filepath.Base(argv[0])}
	show, err := newShow(u, like, []*runfile.Definition{d})
	if err != nil {
		return nil, err
	}
	defer show.restore()
	streams, ended := show.streams(d)
	r, err := sb.Run(ctx, sandbox.Command{
		Argv: argv, Env: env, Passed: passed, Workdir: c.Workdir, User: c.User, Timeout: time.Duration(c.Timeout),
		Output: int64(c.OutputLimit), Publish: c.Publish,
		Over: over, Budget: budget, Allow: c.AllowHost,
	}, streams)
	if ended != nil {
		ended()
	}
	show.restore()
	if r != nil {
		show.result(r)
		err = errors.Join(err, show.finish([]*result.Result{r}, 0))
	}
	if err == nil {
		err = show.whole()
	}
	return r, err
}
