package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/hutch-run/hutch/host/agent/cycle"
	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/session"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/workspace"
	"github.com/hutch-run/hutch/host/workspace/review"
)

type cycleCmd struct {
	vars
	Args   []string `arg:"" optional:"" name:"file" help:"Run file with the cycle block, and its name where the file has several. Without a file, the current directory is worked in." complete:"hcl"`
	ID     string   `name:"id" placeholder:"ID" help:"Id of the cycle. Where nothing else names the specification, it is dev_documents/CYCLE<ID>/SPEC.md in the workspace, also with zeros before a number."`
	Resume string   `placeholder:"RECORD" help:"Continue a cycle whose hutch died: the id that was printed at its start."`
	Check  string   `placeholder:"LINE" help:"A line for sh that must succeed in the sandbox when the model says that it is done; instead of the file's."`

	Backend        string `group:"sandbox" placeholder:"NAME" help:"Use this backend instead of those that the file names." complete:"backend"`
	Workspace      string `group:"sandbox" placeholder:"DIR" help:"Without a file: the project (default: the current directory)." complete:"dir"`
	networkFlags   `group:"sandbox"`
	Keep           bool `group:"sandbox" help:"Leave the sandbox in any case, until hutch rm removes it."`
	runfile.Limits `group:"limits"`

	Provider string `group:"model" enum:",openai,anthropic,scripted" default:"" placeholder:"NAME" help:"Without a file: openai, for every server that speaks its protocol, anthropic, or scripted. The key comes from OPENAI_API_KEY or ANTHROPIC_API_KEY."`
	Model    string `group:"model" placeholder:"NAME" help:"Without a file: the provider's name of the model."`
	BaseURL  string `group:"model" name:"base-url" placeholder:"URL" help:"Without a file: where the server is; no key is sent there."`
	Script   string `group:"model" placeholder:"FILE" help:"Without a file: the answers of a scripted model." complete:"file"`

	Apply  string `group:"output" enum:",never,ask,on-success" default:"" placeholder:"WHEN" help:"Bring what changed back to the project: never (default), so that hutch apply can; ask, at the terminal, when it has ended; on-success."`
	Output string `group:"output" short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one object."`
	Quiet  bool   `group:"output" short:"q" help:"Only how it ended, and what changed."`

	allowFlags
}

// Usage replaces the synopsis.
func (*cycleCmd) Usage() []string {
	return []string{"hutch cycle [flags] FILE [NAME] --id ID", "hutch cycle [flags] --id ID --provider NAME --model NAME",
		"hutch cycle [flags] --resume RECORD"}
}

// Help is the text below the synopsis.
func (*cycleCmd) Help() string {
	return `Has a model work a specification with tools, inside of a sandbox on a private copy of the project: it lists,
reads, writes, edits, patches and searches files and runs commands there, and nowhere else. When it says that it is
done, your check is run; when it fails, the model sees why and continues. What changed is brought back by the same
review as hutch apply, or stays in the sandbox for that.

Set-up, coding, sync-back and tear-down are recorded before they begin, so that --resume goes on after a crash. An
interrupt ends coding in order. The exit code is

    0       the model is done, the check passes, and what was to be brought back was
    1       it is not done (blocked, refused, a budget is used up, the setup command failed), or the apply met something
    125     hutch, the backend or the model failed
    128+n   a signal ended it: 130 after ^C

Examples:

    hutch cycle examples/cycle/cycle.hcl --id 1
    hutch cycle cycle.hcl --id 12 --apply=on-success
    hutch cycle --id 12 --provider anthropic --model NAME --check "go test ./..."
    hutch cycle --resume 261121-034512-c3k7q2`
}

func (c *cycleCmd) Run(ctx context.Context, u *ui) error {
	if err := c.recall(); err != nil {
		return err
	}
	files, names := splitOperands(c.Args)
	switch {
	case len(files) > 1:
		return errors.New("one run file at a time")
	case len(names) > 1 || len(files) == 0 && len(names) == 1:
		if isDir(names[0]) {
			return directory("cycle", names[0])
		}
		return hint(fmt.Errorf("no run file %q", names[0]), "hutch cycle FILE [NAME] --id ID")
	case c.ID == "" && len(files) == 0:
		return hint(errors.New("cycle needs --id, or --resume"), "hutch cycle --help shows how")
	}
	s, done, err := openFor(u, files)
	if err != nil {
		return err
	}
	defer done()
	block, err := c.block(u, s, files, names)
	if err != nil {
		return err
	}
	when := cycle.When(cmp.Or(c.Apply, block.Apply, string(cycle.Never)))
	if when == cycle.Ask && !term.IsTerminal(int(u.in.Fd())) {
		return errors.New("--apply=ask needs a terminal to ask at")
	}
	id := cmp.Or(c.ID, block.Name)
	if err := cycle.CheckID(id); err != nil {
		return err
	}
	work, err := cycle.Prepare(id, block)
	if err != nil {
		return hint(err,
			"write it there, name another one with spec in the cycle block, or say with --id which cycle is meant")
	}
	m, err := s.Sandboxes(nil)
	if err != nil {
		return err
	}
	ledger := workspace.Ledger(s.Store())
	recovered(ctx, u, ledger)
	show := &cycleShow{u: u, quiet: c.Quiet || c.Output == "json"}
	o := cycle.Options{
		Store: s.Store(), Manager: m, When: when, Keep: c.Keep, Progress: show.progress,
		Apply: func(ctx context.Context, ref string) error {
			a := applyFlags{Apply: string(when), allowFlags: c.allowFlags}
			return inReview(ctx, u, s, ref, sandbox.Exclusive, review.Options{Keep: ledger.Dir()},
				func(v *workspace.Review) error { return a.bring(ctx, u, v, ledger) })
		},
	}
	var r *cycle.Result
	if c.Resume != "" {
		id, rerr := s.Store().Resolve(c.Resume)
		if rerr != nil {
			return rerr
		}
		r, err = cycle.Resume(ctx, o, id, work)
	} else {
		r, err = cycle.Run(ctx, o, work)
	}
	if r == nil {
		return err
	}
	if err != nil {
		return hint(fmt.Errorf("the record of the cycle cannot be written: %w", err),
			"hutch cycle --resume %s goes on with what is there", r.ID)
	}
	return c.tell(u, r)
}

// recall takes from the record of a cycle that is gone on with what the call does not say.
func (c *cycleCmd) recall() error {
	if c.Resume == "" {
		return nil
	}
	st, done, err := openStore()
	if err != nil {
		return err
	}
	defer done()
	rec, err := load(st, c.Resume)
	if err != nil {
		return err
	}
	id, info, err := cycle.Recorded(st, rec.ID)
	switch {
	case err != nil:
		return hint(err, "hutch runs lists which are, and which were interrupted")
	case c.ID != "" && c.ID != id:
		return fmt.Errorf("%s is the record of cycle %s, not of %s", c.Resume, id, c.ID)
	case info.State == store.StateFinished:
		return ended(id, info)
	}
	c.ID = id
	if len(c.Args) == 0 && info.File != "" {
		if _, err := os.Stat(info.File); err != nil {
			return hint(fmt.Errorf("the run file of the cycle is not there: %w", err),
				"start hutch in the same directory as before, or name the file")
		}
		c.Args = []string{info.File, info.Name}
	}
	return nil
}

// ended says why a cycle is not gone on with that has ended in order, and how the work goes on all the same.
func ended(id string, i store.Info) error {
	again := "hutch cycle --id " + id
	if i.File != "" {
		again = fmt.Sprintf("hutch cycle %s %s --id %s", i.File, i.Name, id)
	}
	what := again + " begins a new cycle on the project as it is"
	if b := i.Sandbox; b != "" {
		what = fmt.Sprintf("what it did is in the sandbox %s: hutch diff %s shows it, hutch apply %s brings it back; "+
			"after that, %s goes on from there with a new cycle", b, b, b, again)
	}
	return hint(fmt.Errorf("the cycle %s has ended (%s): --resume is for one whose hutch died", i.ID,
		strings.ReplaceAll(i.Cause, "_", " ")), "%s", what)
}

// block is the cycle block that is meant, with what the flags say about it.
func (c *cycleCmd) block(u *ui, s *session.Session, files, names []string) (*runfile.Cycle, error) {
	var b *runfile.Cycle
	var err error
	if len(files) == 0 {
		b, err = c.direct()
	} else {
		b, err = c.fromFile(u, s, files[0], names)
	}
	if err != nil {
		return nil, err
	}
	net, err := c.network()
	if err != nil {
		return nil, err
	}
	o := run.Overrides{Limits: c.Limits, Network: net}
	if c.Backend != "" {
		o.Backends = []string{c.Backend}
	}
	b.Box = o.Apply(b.Box)
	if c.Check != "" {
		b.Check = []string{"sh", "-c", c.Check}
	}
	return b, nil
}

func (c *cycleCmd) fromFile(u *ui, s *session.Session, file string, names []string) (*runfile.Cycle, error) {
	if c.Workspace != "" || c.Provider != "" || c.Model != "" || c.BaseURL != "" || c.Script != "" {
		return nil,
			errors.New("--workspace, --provider, --model, --base-url and --script are for a call without a run file; a run " +
				"file says them itself")
	}
	return loadOne(u, file, "cycle", strings.Join(names, ""), "docs/cycle.md shows one",
		runOptions(s.Store(), c.Var, c.VarFile), (*runfile.Config).Cycles, func(b *runfile.Cycle) string { return b.Name })
}

// direct is the block of a call without a file.
func (c *cycleCmd) direct() (*runfile.Cycle, error) {
	if c.Provider == "" {
		return nil, hint(errors.New("a cycle without a run file needs --provider, and --model"),
			"a run file with a model block and a cycle block says it once for all; docs/cycle.md shows one")
	}
	if len(c.Var) > 0 || len(c.VarFile) > 0 {
		return nil, errors.New("--var and --var-file are for run files")
	}
	m := model.Config{Name: c.Provider, Provider: c.Provider, Model: c.Model, BaseURL: c.BaseURL,
		Retries: model.DefaultRetries}
	if c.Script != "" {
		script, err := filepath.Abs(c.Script)
		if err != nil {
			return nil, err
		}
		m.Script = script
	}
	// a key belongs to the address that it comes with
	if prefix := strings.ToUpper(c.Provider); c.BaseURL == "" && c.Provider != model.Scripted {
		m.APIKey, m.BaseURL = strings.TrimSpace(os.Getenv(prefix+"_API_KEY")), os.Getenv(prefix+"_BASE_URL")
	}
	m = m.WithDefaults()
	if err := m.Check(); err != nil {
		var e *model.Error
		if errors.As(err, &e) && e.Kind == model.KindAuth { // whose hint is for a run file
			err = hint(errors.New(e.Message), "set %s_API_KEY; a server that needs none is named by --base-url",
				strings.ToUpper(c.Provider))
		}
		return nil, err
	}
	dir, err := filepath.Abs(cmp.Or(c.Workspace, "."))
	if err != nil {
		return nil, err
	}
	if !isDir(dir) {
		return nil, fmt.Errorf("--workspace: there is no directory %s", dir)
	}
	return runfile.BareCycle(dir, m), nil
}

// tell prints what came of it.
func (c *cycleCmd) tell(u *ui, r *cycle.Result) error {
	if c.Output == "json" {
		if err := u.json(r); err != nil {
			return err
		}
	} else if err := c.text(u, r); err != nil {
		return err
	}
	switch {
	case u.interrupted.Load() != 0:
		return exit(128 + int(u.interrupted.Load()))
	case r.ApplyError() != nil:
		return r.ApplyError()
	case r.OK && r.Apply.Problem != "":
		return errors.New(r.Apply.Problem)
	case r.OK:
		return nil
	case r.Outcome == cycle.Failed, r.Outcome == cycle.ModelFailed:
		return exit(exitFailure)
	}
	return exit(exitNo)
}

// text lists what changed on stdout, and says the rest on stderr.
func (c *cycleCmd) text(u *ui, r *cycle.Result) error {
	for _, x := range r.Changes {
		line := review.Kind(x.Kind).Letter() + " " + review.Quote(x.Path)
		if x.From != "" {
			line = review.Kind(x.Kind).Letter() + " " + review.Quote(x.From) + " => " + review.Quote(x.Path)
		}
		if err := u.line("%s", line); err != nil {
			return err
		}
	}
	if more := r.ChangesTotal - len(r.Changes); more > 0 {
		u.note("and %s more", count(more, "path"))
	}
	if r.Summary != "" {
		u.note("the model: %s", r.Summary)
	}
	below := r.Diagnostics.Below(r.Reason, diag.Style{Color: u.color, Width: u.width})
	if below == "" {
		u.diagnostics(r.Diagnostics)
	}
	head := fmt.Sprintf("cycle %s: %s", r.Cycle, strings.ReplaceAll(r.Outcome, "_", " "))
	if r.Reason != "" {
		head += ": " + r.Reason
	}
	u.note("%s (%s, %s, %d tokens, %s)", head, count(r.Turns, "turn"), count(r.ToolCalls, "tool call"),
		r.Usage.InputTokens+r.Usage.OutputTokens, r.Ended.Sub(r.Started).Round(time.Second))
	fmt.Fprint(u.err, below)
	if r.Apply.Problem != "" && r.ApplyError() == nil && !r.OK {
		u.note("%s", r.Apply.Problem)
	}
	b := r.Sandbox
	switch {
	case b == nil || !b.Kept:
	case r.ChangesTotal > 0 && !r.Apply.Done:
		u.note("its changes are in the sandbox %s: hutch diff %s shows them, hutch apply %s brings them back, hutch rm %s "+
			"drops them", b.Name, b.Name, b.Name, b.Name)
	default:
		u.note("the sandbox %s is kept: hutch exec %s -- CMD works in it, hutch rm %s removes it", b.Name, b.Name, b.Name)
	}
	return nil
}

// cycleShow prints progress on stderr.
type cycleShow struct {
	u     *ui
	quiet bool
}

func (w *cycleShow) progress(p cycle.Progress) {
	if w.quiet {
		return
	}
	switch {
	case p.State != "" && p.Sandbox != "":
		w.u.note("%s: record %s, sandbox %s", p.State, p.Record, p.Sandbox)
	case p.State != "":
		w.u.note("%s", p.State)
	case p.Said != "":
		w.u.note("the model: %s", p.Said)
	case p.Shortened > 0:
		w.u.note("the conversation became too long for the model: %d bytes that tools answered or were given before were "+
			"taken out of it", p.Shortened)
	case p.Check != nil && p.Setup:
		w.u.note("the setup command: %s", p.Check.Ended)
	case p.Check != nil:
		w.u.note("the check: %s", p.Check.Ended)
	case p.Tool != nil:
		t := p.Tool
		line := fmt.Sprintf("%4d %s", t.N, t.Name)
		for _, more := range []string{t.About, t.Ended} {
			if more != "" {
				line += "  " + more
			}
		}
		if t.Took > time.Second {
			line += "  " + t.Took.Round(100*time.Millisecond).String()
		}
		if first, _, _ := strings.Cut(t.Error, "\n"); first != "" {
			line += "  error: " + first
		}
		w.u.note("%s", line)
	}
}
