package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/hutch-run/hutch/host/agent/preset"
	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/pull"
	"github.com/hutch-run/hutch/host/report"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/session"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/host/workspace"
	"github.com/hutch-run/hutch/host/workspace/review"
)

type agentCmd struct {
	Start agentStartCmd `cmd:"" default:"withargs" help:"Start an agent: what hutch agent does."`
	Ls    agentLsCmd    `cmd:"" help:"List the sandboxes of agents, and what several of them changed."`
	Rm    agentRmCmd    `cmd:"" help:"Remove sandboxes of agents, or the attempts of one."`
}

type agentStartCmd struct {
	Agent string `arg:"" optional:"" name:"agent" help:"aider, claude, codex, gemini, opencode, an agent block of a run file here, a preset of yours, or the path of one, as ./acme.hcl. Without it: list them, and the sandboxes of agents."`

	Prompt   string `short:"p" placeholder:"TEXT" help:"Work on this unattended, instead of interactively."`
	Continue bool   `short:"c" help:"Go on with the last session."`
	Forget   bool   `help:"Remove the agent's sandbox and home directory of this project, with its login and history, and start nothing. Refused while the sandbox has changes that were not applied."`
	Apply    string `enum:",never,ask,on-success" default:"" placeholder:"WHEN" help:"Bring its changes back to the project: ask (default at a terminal), never (default elsewhere), or on-success."`
	Quiet    bool   `short:"q" help:"Only what the agent prints."`

	Backend string `default:"bwrap" placeholder:"NAME" help:"bwrap: no other backend shows the programs of this machine."`

	Number int    `short:"n" default:"1" placeholder:"N" help:"With -p: make so many attempts side by side, each in its own fork of the sandbox, and compare them."`
	Jobs   int    `short:"j" default:"4" placeholder:"N" help:"Make so many attempts at once (default 4)."`
	Check  string `placeholder:"COMMAND" help:"With -n: judge each attempt by this shell command, in a copy of its sandbox."`

	networkFlags `group:"sandbox"`
	secretFlags  `group:"sandbox"`
	mountFlags   `group:"sandbox"`

	runfile.Limits `group:"limits"`
	budgetFlags    `group:"limits"`
	allowFlags
}

// Help is the text below the synopsis.
func (*agentStartCmd) Help() string {
	return `Starts a coding agent that is installed on this machine in a persistent sandbox on the current directory: it
asks for no permission, because it cannot do harm. It sees the project at /workspace and writes to a layer over it;
its home directory, with login and history, is kept for each project and agent; it reaches the hosts of its preset and
nothing else. At the end you see what it changed and take what you like: hutch diff and hutch apply do it later.

API keys stay outside: where ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY is set here, the agent has a
placeholder, which becomes the key in requests to the provider's host. Without one, log in inside; that login's token
is in the agent's home directory, where the agent can read it.

Arguments after -- go to the agent. A preset is an HCL file: those in the directory agents beside config.hcl win over
those that hutch brings.

    hutch agent claude
    hutch agent codex -p "fix the failing test" --apply on-success
    hutch agent claude --continue --allow-host registry.npmjs.org:443
    hutch agent claude -n 4 -p "fix the failing test" --check "make test"
    hutch agent`
}

// agentBackend can show a program of this machine, which needs this machine's libraries.
const agentBackend = "bwrap"

// agentTimeout is the wall time of an agent that nobody watches.
const agentTimeout = time.Hour

func (c *agentStartCmd) Run(ctx context.Context, u *ui, call *call) error {
	return withSandboxes(u, func(m *sandbox.Manager, s *session.Session) error {
		if c.Agent == "" {
			return c.list(u, s.Store())
		}
		return c.start(ctx, u, m, s, call.tail)
	})
}

// list shows presets, and the sandboxes that agents have.
func (c *agentStartCmd) list(u *ui, s *store.Store) error {
	names, err := preset.Names(s.Paths().Presets())
	if err != nil {
		return err
	}
	all, err := preset.OfProject(s.Paths().Presets(), ".")
	if err != nil {
		u.note("%v", err)
	}
	rows := [][]string{{"AGENT", "NAME", "PROGRAM", "SANDBOXES"}}
	homes, err := s.AgentHomes()
	if err != nil {
		return err
	}
	for _, name := range names {
		p, err := preset.Load(s.Paths().Presets(), "", name)
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	for _, p := range all {
		where := strings.TrimSuffix("not installed: "+p.Install, ": ")
		if prog, err := preset.Find(p.Program); err == nil {
			where = prog.Path
		} else if p.Installed() != nil {
			where = "in its sandbox: " + strings.Join(p.Dependencies, " ")
		}
		var of []string
		for _, h := range homes {
			if h.Agent == p.Name {
				of = append(of, h.Name)
			}
		}
		rows = append(rows, []string{p.Name, p.Description, where, dash(strings.Join(of, " "))})
	}
	return u.table(rows)
}

func (c *agentStartCmd) start(ctx context.Context, u *ui, m *sandbox.Manager, s *session.Session, more []string) error {
	if c.Backend != agentBackend {
		return hint(fmt.Errorf("agents do not run on %s: only %s shows programs and home directories of this machine",
			c.Backend, agentBackend), "hutch push and hutch pull bring commits to a sandbox of %s and back; hutch exec -it "+
			"starts an agent that is installed in it", c.Backend)
	}
	project, err := os.Getwd()
	if err != nil {
		return err
	}
	p, err := loadPreset(s, project, c.Agent)
	if err != nil {
		return err
	}
	if c.Forget {
		home, err := s.Store().AgentHome(p.Name, project)
		if err != nil {
			return err
		}
		switch st, err := m.Inspect(ctx, home.Name); {
		case errors.Is(err, store.ErrNoSandbox):
			return home.Remove()
		case err == nil && unapplied(st):
			return hint(fmt.Errorf("sandbox %s has changes that were not applied", home.Name), dropFirst, home.Name)
		}
		if err := m.Remove(ctx, home.Name, false); err != nil {
			return err
		}
		return home.Remove()
	}
	prog, err := findProgram(u, p, p.Program, p.Install)
	if err != nil {
		return err
	}
	argv, err := p.Command(prog, c.Prompt, c.Continue, more, os.Getenv)
	if err != nil {
		return err
	}
	if err := preset.CheckProject(project); err != nil {
		return err
	}
	if err := c.checkAttempts(); err != nil {
		return err
	}
	tty := term.IsTerminal(int(u.in.Fd())) && u.outTTY
	apply := applyFlags{Apply: c.Apply, allowFlags: c.allowFlags, keeps: true}
	switch {
	case c.Prompt == "" && !tty:
		return hint(fmt.Errorf("%s needs a terminal to work interactively", p.Description),
			"hutch agent %s -p \"TEXT\" works without one", p.Name)
	case apply.Apply == "ask" && !tty:
		return errors.New("--apply=ask needs a terminal to ask at")
	case apply.Apply == "" && tty:
		apply.Apply = "ask"
	}
	budget, err := network.ParseBudget(c.Budget, c.Price, p.SDKPrices())
	if err != nil {
		return err
	}
	home, err := c.prepare(ctx, u, m, s, p, prog, project)
	if err != nil {
		return err
	}
	timeout := c.Timeout
	if timeout == 0 && c.Prompt != "" {
		timeout = units.Duration(agentTimeout)
	}
	if c.Number > 1 {
		return c.attempts(ctx, u, m, s, home.Name, sandbox.Command{Argv: argv, Timeout: time.Duration(timeout),
			Budget: budget})
	}
	x := &execCmd{Sandbox: home.Name, Interactive: c.Prompt == "", TTY: c.Prompt == "", Timeout: timeout, Quiet: c.Quiet,
		Output: "text", budget: budget}
	r, err := x.exec(ctx, u, m, s, argv, nil)
	if err != nil {
		return err
	}
	if !c.Quiet {
		modelUse(u, r)
	}
	if err := c.commits(ctx, u, m, s, home.Name, apply, r.OK); err != nil {
		return err
	}
	if err := c.review(ctx, u, s, home.Name, apply, r.OK); err != nil {
		return err
	}
	return exit(u.status(result.ExitCode(r)))
}

// loadPreset reads a preset, or says which there are.
func loadPreset(s *session.Session, project, name string) (*preset.Preset, error) {
	p, err := preset.Load(s.Store().Paths().Presets(), project, name)
	if unknown := (*preset.UnknownError)(nil); errors.As(err, &unknown) {
		return nil, hint(err, "there are %s; an agent block of a run file here or a file %s describes another one",
			strings.Join(unknown.Known, ", "),
			filepath.Join(unknown.Dir, "NAME.hcl"))
	}
	return p, err
}

// findProgram finds a program on this machine. The agent's own may be installed in the sandbox; of another one it says
// how it is installed.
func findProgram(u *ui, p *preset.Preset, name, install string) (*preset.Program, error) {
	prog, err := preset.Find(name)
	missing := (*preset.NotFoundError)(nil)
	if in := p.Installed(); errors.As(err, &missing) && name == p.Program && in != nil {
		u.note("%s is not in PATH here: its sandbox has %s, which hutch installs once", name,
			strings.Join(p.Dependencies, " "))
		return in, nil
	}
	if missing != nil {
		return nil, hint(err, "%s", cmp.Or(install, "install it, or name its packages as dependencies of the agent"))
	}
	return prog, err
}

// prepare makes the sandbox and the home directory of an agent, unless they are there.
func (c *agentStartCmd) prepare(ctx context.Context, u *ui, m *sandbox.Manager, s *session.Session, p *preset.Preset,
	prog *preset.Program, project string) (*store.AgentHome, error) {
	net, err := c.network()
	if err == nil {
		net, err = net.WithSecrets(c.Secret)
	}
	if err != nil {
		return nil, err
	}
	home, err := s.Store().AgentHome(p.Name, project)
	if err != nil {
		return nil, err
	}
	d, unset, err := p.Definition(prog, preset.Options{
		Project: project, Home: home.Dir, Backend: agentBackend, Network: net, Environ: os.Getenv, Limits: c.Limits,
	})
	if err != nil {
		return nil, err
	}
	if len(c.Budget) > 0 {
		if err := counted(u, d.Network, p); err != nil {
			return nil, err
		}
	}
	if len(unset) > 0 && len(unset) == len(p.Keys) && !c.Quiet {
		u.note("%s is not set: %s uses the login in its own home directory", strings.Join(unset, " or "), p.Description)
	}
	d.Mounts = append(d.Mounts, c.mounts()...)
	if err := p.Fill(home.Dir); err != nil {
		return nil, hint(fmt.Errorf("fill the home directory of %s: %w", p.Description, err),
			"hutch agent %s --forget removes it", p.Name)
	}
	if err := c.ensure(ctx, u, m, d, home.Name); err != nil {
		return nil, err
	}
	return home, nil
}

// counted refuses a budget that counts nothing, and says what it does not count.
func counted(u *ui, n network.Network, p *preset.Preset) error {
	if len(n.Secrets) == 0 {
		var names []string
		for _, k := range p.Keys {
			names = append(names, k.From...)
		}
		return hint(fmt.Errorf("--budget counts requests to the hosts of a key that stays outside, and %s has none: a "+
			"login in its home directory is not seen", p.Description),
			"set %s", strings.Join(names, " or "))
	}
	var not []string
	for _, rule := range n.Allow {
		of := func(host string) bool { return host == rule || host+":443" == rule }
		if !slices.ContainsFunc(n.Secrets, func(s network.Secret) bool { return slices.ContainsFunc(s.Hosts, of) }) {
			not = append(not, rule)
		}
	}
	if len(not) > 0 {
		u.note("the budget does not count requests to %s", strings.Join(not, ", "))
	}
	return nil
}

// ensure makes the sandbox, or recreates one that was made for another network or program and has nothing to lose.
func (c *agentStartCmd) ensure(ctx context.Context, u *ui, m *sandbox.Manager, d *runfile.Definition,
	name string) error {
	st, err := m.Inspect(ctx, name)
	if errors.Is(err, store.ErrNoSandbox) {
		_, err := m.Create(ctx, d, name)
		return madeError(err)
	} else if err != nil {
		return err
	}
	var mounts []string
	for _, x := range d.Mounts {
		mounts = append(mounts, x.Source)
	}
	same := st.Network.String() == d.Network.String() && reflect.DeepEqual(st.Network.Secrets, d.Network.Secrets) &&
		!slices.ContainsFunc(mounts, func(dir string) bool { return !slices.Contains(st.Mounts, dir) })
	switch {
	case same && st.Backend == d.Backends[0].Name:
		return nil
	case unapplied(st):
		return hint(fmt.Errorf("sandbox %s was made with other rules or another program, and has changes that were not "+
			"applied", name), dropFirst, name)
	}
	u.note("recreating sandbox %s, for another network or program", name)
	if err := m.Remove(ctx, name, false); err != nil {
		return err
	}
	_, err = m.Create(ctx, d, name)
	return madeError(err)
}

// unapplied reports whether a sandbox has changes that would be lost with it.
func unapplied(st *sandbox.Status) bool {
	return st.Changes != nil && (st.Changes.Entries > 0 || st.Changes.Commits)
}

const dropFirst = "hutch diff %[1]s shows them, hutch apply %[1]s takes them, hutch pull %[1]s takes commits, hutch " +
	"rm %[1]s drops them; then run this again"

// modelUse says what the agent used of its models, where its key is outside.
func modelUse(u *ui, r *result.Result) {
	for _, t := range r.Network.Traffic {
		if t.Used != nil {
			u.note("%s: %s", network.Destination(t), report.Used(*t.Used))
		}
	}
}

// commits shows what the agent committed, and brings it to the branch where that is wanted.
func (c *agentStartCmd) commits(ctx context.Context, u *ui, m *sandbox.Manager, s *session.Session, name string,
	apply applyFlags, ok bool) error {
	w, err := pull.Commits(ctx, m, name)
	if err != nil || w == nil {
		return err
	}
	u.note("%s in sandbox %s:", count(len(w.Commits)+w.More, "commit"), name)
	for _, line := range w.Commits {
		fmt.Fprintf(u.err, "  %s\n", line)
	}
	if w.More > 0 {
		fmt.Fprintf(u.err, "  and %d more\n", w.More)
	}
	take := apply.Apply == "on-success" && ok
	if !take && (apply.Apply != "ask" || !u.yes("Take this onto the branch %s [y,n]? ", w.Branch)) {
		u.note("hutch pull %s takes them onto %s", name, w.Branch)
		return nil
	}
	p, err := pull.Pull(ctx, m, s.Store(), name, pull.Options{Allow: apply.policy(false).Allow})
	if err != nil {
		return pullError(err)
	}
	return pulled(u, p)
}

// review shows what the agent left, and brings it back where that is wanted.
func (c *agentStartCmd) review(ctx context.Context, u *ui, s *session.Session, name string, apply applyFlags,
	ok bool) error {
	ledger := workspace.Ledger(s.Store())
	lock := sandbox.Shared
	if apply.wanted() {
		recovered(ctx, u, ledger)
		lock = sandbox.Exclusive
	}
	return inReview(ctx, u, s, name, lock, review.Options{Keep: ledger.Dir()}, func(v *workspace.Review) error {
		later := "hutch diff " + name + " shows them, hutch apply " + name + " takes them"
		switch n := count(len(v.Changes), "change"); {
		case len(v.Changes) == 0:
			if !c.Quiet {
				u.note("no changes")
			}
			return nil
		case !apply.wanted() || apply.Apply == "on-success" && !ok:
			u.note("%s in sandbox %s: %s", n, name, later)
			return nil
		}
		err := apply.bring(ctx, u, v, ledger)
		if err != nil {
			u.note("the changes are still in sandbox %s: %s", name, later)
		}
		return err
	})
}

type agentLsCmd struct {
	Output string `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one object a line, as of hutch ps."`
}

// Help is the text below the synopsis.
func (*agentLsCmd) Help() string {
	return `Lists the sandboxes of agents and their attempts, with what changed in each. A file that several of them
changed is named below: applying one of them makes it a conflict for the others. The attempts of one sandbox count as
one, because one of them is taken.`
}

func (c *agentLsCmd) Run(ctx context.Context, u *ui) error {
	return withSandboxes(u, func(m *sandbox.Manager, s *session.Session) error {
		list, err := m.Survey(ctx, true)
		if err != nil {
			return err
		}
		homes, err := s.Store().AgentHomes()
		if err != nil {
			return err
		}
		agent := map[string]string{} // by the directory that is its home
		for _, h := range homes {
			agent[h.Dir] = h.Agent
		}
		rows := [][]string{{"NAME", "AGENT", "STATE", "PROJECT", "AGE", "CHANGES", "ATTEMPT"}}
		found := false
		for _, st := range list {
			i := slices.IndexFunc(st.Mounts, func(dir string) bool { return agent[dir] != "" })
			if i < 0 {
				continue
			}
			if found = true; c.Output == "json" {
				if err := json.NewEncoder(u.out).Encode(st); err != nil {
					return err
				}
				continue
			}
			attempt := ""
			if a := st.Attempt; a != nil {
				if attempt = a.Run; a.Check != "" {
					attempt += ", checked by " + a.Check
				}
			}
			rows = append(rows, []string{st.Name, agent[st.Mounts[i]], st.Condition, st.Workspace.Source, u.began(st.Created),
				dash(st.Changed()), dash(attempt)})
		}
		switch {
		case c.Output == "json":
			return nil
		case !found:
			u.note("no sandboxes of agents; hutch agent lists the agents")
			return nil
		}
		if err := u.table(rows); err != nil {
			return err
		}
		for _, o := range sandbox.Overlaps(list) {
			u.note("changed in %s: %s", strings.Join(o.Sandboxes, " and "), firstPaths(o.Paths))
		}
		return nil
	})
}

type agentRmCmd struct {
	rmCmd
	Attempts bool `help:"Remove the attempts that were made from these sandboxes, and leave the sandboxes."`
}

// Help is the text below the synopsis.
func (*agentRmCmd) Help() string {
	return `Removes sandboxes with all that was written in them, also what was not applied. The agent's home directory
with its login stays; hutch agent NAME --forget removes it.

    hutch agent rm claude-shop.2 claude-shop.3
    hutch agent rm --attempts claude-shop`
}

func (c *agentRmCmd) Run(ctx context.Context, u *ui) error {
	if c.Attempts {
		s, done, err := openStore()
		if err != nil {
			return err
		}
		defer done()
		var all []string
		for _, ref := range c.Sandboxes {
			of, err := s.FindSandbox(ref)
			if err != nil {
				return err
			}
			names, err := attemptsOf(s, of)
			if err != nil {
				return err
			}
			all = append(all, names...)
		}
		c.Sandboxes = all
	}
	return c.rmCmd.Run(ctx, u)
}
