package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/term"

	"github.com/hutch-run/hutch/host/push"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/session"
	"github.com/hutch-run/hutch/host/store"
)

type pushCmd struct {
	Args []string `arg:"" optional:"" name:"file plan" help:"A run file, and the plan: a file of the repository." complete:"file"`

	RunName            string `name:"run" placeholder:"NAME" help:"Which run of the file; needed when it holds several."`
	Name               string `short:"n" placeholder:"NAME" help:"Name of the sandbox, which is its id in all that follows; default: push- and eight hexadecimal digits."`
	Detach             bool   `short:"d" help:"Return as soon as the command runs."`
	AllowDirty         bool   `xor:"dirty" help:"Leave out what is not committed."`
	IncludeUncommitted bool   `xor:"dirty" help:"Send along what is not committed, in a commit that no branch of yours has."`
	Depth              int    `placeholder:"N" help:"Send the last N commits of the history only; default: all of it."`
	Into               string `xor:"again" placeholder:"SANDBOX" help:"Send what is new into a sandbox that an earlier push made, and run its command again; with PLAN, without FILE." complete:"sandbox"`
	Resume             string `xor:"again" placeholder:"SANDBOX" help:"Run the command again in a sandbox that an earlier push made; without FILE and PLAN." complete:"sandbox"`

	Var          []string `group:"file" sep:"none" placeholder:"NAME=VALUE" help:"Set a variable of the run file. Repeatable."`
	VarFile      []string `group:"file" sep:"none" placeholder:"FILE" help:"Read variables from a file of NAME = VALUE lines, or JSON. Repeatable." complete:"file"`
	Backend      string   `group:"sandbox" placeholder:"NAME" help:"Use this backend instead of those that the file names." complete:"backend"`
	MinIsolation string   `group:"sandbox" enum:",none,process,namespace,container,vm,remote-vm" default:"" placeholder:"LEVEL" help:"Refuse a backend that isolates less: none, process, namespace, container, vm or remote-vm."`
	Timeout      duration `group:"limits" placeholder:"2h" help:"Wall time of the command; default: that of the run file, else 24 hours."`
}

// Usage replaces the synopsis, because the two ways of calling share no operand.
func (*pushCmd) Usage() []string {
	return []string{"hutch push [flags] FILE PLAN", "hutch push [flags] --into SANDBOX PLAN",
		"hutch push [flags] --resume SANDBOX"}
}

// Help is the text below the synopsis.
func (*pushCmd) Help() string {
	return `Makes a sandbox that lasts, sends the branch that is checked out into it as a git bundle, and runs there what
the run file names, in a clone of the branch. hutch pull brings the commits back. Nothing of this host's repository is
ever mounted into the sandbox.

The command finds the plan at $HUTCH_PLAN, the clone at $HUTCH_CLONE, where it starts, and instructions for coding
agents at $HUTCH_INSTRUCTIONS. It may hand its commits in itself, by writing the bundle $HUTCH_BUNDLE; when it ends
without, hutch does that.

On a terminal the command gets it, so that you can watch and step in. ^C, where the command leaves it to hutch, stops
the command and keeps the sandbox. The exit code is the command's own, as that of hutch run.

    hutch push agent.hcl docs/plan.md
    hutch push -d agent.hcl docs/plan.md
    hutch push --into push-3f9a1c20 docs/next.md
    hutch push --resume push-3f9a1c20`
}

// pulls is how the commits of a sandbox are brought back.
func pulls(name string) string { return "hutch pull " + name }

func (c *pushCmd) Run(ctx context.Context, u *ui) error {
	if err := c.check(); err != nil {
		return err
	}
	broken := make(chan os.Signal, 1) // as in run
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	s, done, err := open(u)
	if err != nil {
		return err
	}
	defer done()
	watch := &runCmd{Output: "text"}
	if !c.Detach && term.IsTerminal(int(u.in.Fd())) && u.outTTY {
		watch.Interactive, watch.TTY = true, true
	}
	d := &runfile.Definition{Instance: "push"}
	var m *sandbox.Manager
	var id, name string
	if c.Resume == "" {
		info, err := c.send(ctx, u, s, &m)
		if sig := u.interrupted.Load(); sig != 0 && err != nil {
			return exit(128 + int(sig))
		}
		if err != nil {
			return pushError(err)
		}
		id, name = info.ID, info.Name
	} else {
		if m, err = s.Sandboxes(waking(u)); err != nil {
			return err
		}
		info, err := s.Store().FindSandbox(c.Resume)
		if err != nil {
			return err
		}
		id, name = info.ID, info.Name
	}
	if c.Detach {
		return c.detach(ctx, u, s, id, name)
	}
	show, err := newShow(u, watch, []*runfile.Definition{d})
	if err != nil {
		return err
	}
	defer show.restore()
	streams, ended := show.streams(d)
	r, o, err := push.Run(ctx, m, s.Store(), id, streams, func(i store.SandboxInfo) {})
	if ended != nil {
		ended()
	}
	show.restore()
	if r != nil {
		show.result(r)
	}
	if sig := u.interrupted.Load(); sig != 0 && (r != nil || errors.Is(err, errInterrupted)) {
		u.note("the sandbox %s stays as it is\n%s brings what is committed in it\nhutch push --resume %s runs the command "+
			"again\nhutch exec -it %s -- sh goes in\nhutch rm %s removes it", name, pulls(name), name, name, name)
		return exit(128 + int(sig))
	}
	if err == nil {
		err = show.whole()
	}
	if err != nil {
		return pushError(err)
	}
	c.after(u, name, o)
	return exit(result.ExitCode(r))
}

// check refuses what cannot be meant.
func (c *pushCmd) check() error {
	made := c.RunName != "" || c.Name != "" || c.Backend != "" || c.MinIsolation != "" || c.Depth != 0 ||
		len(c.Var) > 0 || len(c.VarFile) > 0
	switch {
	case c.Resume != "" && (made || len(c.Args) > 0 || c.AllowDirty || c.IncludeUncommitted || c.Timeout != 0):
		return errors.New("--resume goes on with what was pushed; it goes with --detach and nothing else")
	case c.Resume != "":
		return nil
	case c.Into != "" && (made || len(c.Args) != 1):
		return hint(errors.New("--into sends into a sandbox that is there; it goes with a plan, --detach, --allow-dirty, "+
			"--include-uncommitted and --timeout, and nothing else"),
			"hutch push --into %s docs/next.md", c.Into)
	case c.Into != "":
		return nil
	case len(c.Args) != 2:
		return hint(errors.New("push needs a run file and a plan"), "hutch push agent.hcl docs/plan.md")
	case c.Depth < 0:
		return fmt.Errorf("--depth %d: it must be 1 or more", c.Depth)
	}
	if files, _ := splitOperands(c.Args[:1]); len(files) == 0 {
		return fmt.Errorf("there is no run file %q", c.Args[0])
	}
	if c.Name == "" {
		return nil
	}
	if err := push.CheckName(c.Name); err != nil {
		return pushError(err)
	}
	return nil
}

// send sends the work, into a sandbox that it makes unless --into names one.
func (c *pushCmd) send(ctx context.Context, u *ui, s *session.Session, m **sandbox.Manager) (*store.SandboxInfo,
	error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	d := &runfile.Definition{Instance: c.Into}
	switch {
	case c.Into != "":
		info, err := s.Store().FindSandbox(c.Into)
		if err != nil {
			return nil, err
		}
		d.Instance = info.Name
	case c.Backend != "":
		s.Start(c.Backend)
	default:
		s.StartFor(c.Args[:1])
	}
	if c.Into == "" {
		if d, err = c.definition(s); err != nil {
			return nil, err
		}
	}
	w, err := push.Prepare(ctx, push.Request{Dir: dir, Plan: c.Args[len(c.Args)-1], AllowDirty: c.AllowDirty,
		IncludeUncommitted: c.IncludeUncommitted, Depth: c.Depth})
	if err != nil {
		return nil, err
	}
	if len(w.Left) > 0 {
		u.note("left out, because it is not committed:\n%s", push.List(w.Left))
	}
	if w.Commit != w.Head {
		u.note("what is not committed is sent as a commit of its own, %.12s; your branch stays as it is", w.Commit)
	}
	show, err := newShow(u, &runCmd{Output: "text"}, []*runfile.Definition{d})
	if err != nil {
		return nil, err
	}
	defer show.restore()
	if *m, err = s.Sandboxes(show.progress); err != nil {
		return nil, err
	}
	progress := func(step string) { show.doing(d.Instance, step) }
	var info *store.SandboxInfo
	if c.Into != "" {
		info, err = push.Again(ctx, *m, c.Into, w, time.Duration(c.Timeout), progress)
	} else {
		info, err = c.make(ctx, s, *m, d, w, progress)
	}
	show.restore()
	if err != nil {
		return nil, err
	}
	u.note("%s: %s at %.12s in %s, %s sent; %s brings the commits back", info.Name, w.Branch, w.Commit, info.Push.Clone,
		humanize.IBytes(uint64(info.Push.Sent)), pulls(info.Name))
	return info, nil
}

// make makes the sandbox.
func (c *pushCmd) make(ctx context.Context, s *session.Session, m *sandbox.Manager, d *runfile.Definition,
	w *push.Work, progress func(string)) (*store.SandboxInfo, error) {
	conf, err := s.ConfigFor(c.MinIsolation)
	if err != nil {
		return nil, err
	}
	name := c.Name
	if name == "" {
		name = push.NewName()
	}
	return push.Make(ctx, m.With(func(o *run.Options) { o.MinIsolation = conf.MinIsolation }), d, w, name, progress)
}

// definition is the run that is pushed to.
func (c *pushCmd) definition(s *session.Session) (*runfile.Definition, error) {
	args := c.Args[:1:1]
	if c.RunName != "" {
		args = append(args, c.RunName)
	}
	like := &runFlags{Args: args, Var: c.Var, VarFile: c.VarFile, Backend: c.Backend,
		Limits: runfile.Limits{Timeout: c.Timeout}}
	defs, err := like.definitions(s, &call{})
	if err != nil {
		return nil, err
	}
	if len(defs) > 1 {
		var all []string
		for _, d := range defs {
			all = append(all, d.Instance)
		}
		return nil, hint(fmt.Errorf("%s holds %d runs, and push is for one", c.Args[0], len(defs)), "--run names it: %s",
			strings.Join(all, ", "))
	}
	return defs[0], push.CheckRun(defs[0])
}

// detach leaves the command to a supervisor.
func (c *pushCmd) detach(ctx context.Context, u *ui, s *session.Session, id, name string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	run, err := push.Detach(ctx, s.Store(), id, exe, "supervise")
	if err != nil {
		return pushError(err)
	}
	u.note("hutch logs -f %s follows the command", run)
	return u.line("%s", name)
}

// after says what there is to pull.
func (c *pushCmd) after(u *ui, name string, o push.Outcome) {
	if o.Uncommitted > 0 {
		u.note("%s changed in the sandbox and not committed", count(o.Uncommitted, "path"))
	}
	if o.Nothing {
		u.note("the command made no commit; hutch exec -it %s -- sh goes in, hutch push --resume %s runs it again, hutch "+
			"rm %s removes the sandbox", name, name, name)
		return
	}
	u.note("%s", pulls(name))
}

// pushError puts the hints of an error into the words of the command line.
func pushError(err error) error {
	var r *push.Refusal
	if errors.As(err, &r) {
		return &hinted{err, r.Hints}
	}
	return madeError(err)
}

// superviseCmd is the process that keeps a detached command. It is started by hutch push --detach.
type superviseCmd struct {
	Sandbox string `arg:"" name:"sandbox" help:"Id of the sandbox."`
}

// Run implements the command.
func (c *superviseCmd) Run(ctx context.Context, u *ui) error {
	return withSandboxes(u, func(m *sandbox.Manager, s *session.Session) error {
		u.note("supervisor of %s, process %d, %s", c.Sandbox, os.Getpid(), time.Now().UTC().Format(time.RFC3339))
		return push.Supervise(ctx, m, s.Store(), c.Sandbox)
	})
}
