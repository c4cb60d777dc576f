package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/term"

	"github.com/hutch-run/hutch/host/agent/generate"
	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/session"
	"github.com/hutch-run/hutch/host/terminal"
	"github.com/hutch-run/hutch/host/termsafe"
)

type generateCmd struct {
	vars
	File string `arg:"" name:"file" help:"Run file with the generate block." complete:"hcl"`
	Name string `arg:"" optional:"" name:"name" help:"Name of the block, where the file has several."`

	Attempts int64  `type:"count" placeholder:"N" help:"Try so often at most, whatever the file says."`
	Number   int    `short:"n" default:"1" placeholder:"N" help:"Generate so many programs side by side, each with the attempts and the budget of the block, and take the one that works after the fewest attempts."`
	Jobs     int    `short:"j" default:"4" placeholder:"N" help:"With -n: so many at once (default 4)."`
	Backend  string `placeholder:"NAME" help:"Use this backend instead of those that the file names." complete:"backend"`
	Dir      string `short:"d" placeholder:"DIR" help:"Copy the files of the program that works to this directory, which is missing or empty." complete:"dir"`
	Force    bool   `help:"With --dir: take a directory that is not empty, and replace files of the same names."`
	Output   string `group:"output" short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one object with the whole story, and nothing of what the programs print."`
	Quiet    bool   `group:"output" short:"q" help:"Only how it ended."`
}

// Help is the text below the synopsis.
func (*generateCmd) Help() string {
	return `Has a model write the program that a generate block describes, runs it in a sandbox, and asks again with what
went wrong, until it works or attempts or budget are used up. Each attempt that runs is a run of its own, with its
record; docs/generate.md says what is sent to the model.

The provider of the model gets the task, the names and sizes of the inputs, the programs that it wrote, and the ends
of what they printed. The exit code is

    0       a program works
    1       none does: attempts or budget are used up, or the model would not write one
    125     the model could not be asked, or the sandbox failed
    128+n   a signal ended it: 130 after ^C

    hutch generate examples/generate.hcl
    hutch generate report.hcl --var rows=10 -d report
    hutch generate report.hcl -n 4 -d report
    hutch generate report.hcl -o json`
}

func (c *generateCmd) Run(ctx context.Context, u *ui) error {
	files, _ := splitOperands([]string{c.File})
	switch {
	case isDir(c.File):
		return directory("generate", c.File)
	case len(files) == 0:
		return fmt.Errorf("no run file %q", c.File)
	case c.Number < 1 || c.Number > maxTries:
		return fmt.Errorf("-n %d: want a number from 1 to %d", c.Number, maxTries)
	case c.Jobs < 1:
		return fmt.Errorf("-j %d: want at least 1", c.Jobs)
	case c.Force && c.Dir == "":
		return errors.New("--force goes with --dir")
	case c.Dir != "":
		if err := generate.CheckTarget(c.Dir, c.Force); err != nil {
			return fmt.Errorf("--dir: %w", err)
		}
	}
	s, done, err := openFor(u, files)
	if err != nil {
		return err
	}
	defer done()
	g, err := c.block(u, s)
	if err != nil {
		return err
	}
	w := newWatch(u, c, g)
	runner, err := s.Runner("", run.Options{Progress: w.show.progress})
	if err != nil {
		return err
	}
	plan, err := runner.Plan(ctx, g.Run) // no model is paid for a program that nothing here could run
	if err != nil {
		return err
	}
	if !plan.OK {
		return plan.Diagnostics.Err()
	}
	one := func(ask func(context.Context, []string) (bool, error), watch generate.Watch) (*generate.Story, error) {
		client, err := model.Open(ctx, g.Model.Config)
		if err != nil {
			return nil, modelFailed(err)
		}
		defer client.Close()
		return generate.Run(ctx, g, generate.Options{Store: s.Store(), Client: client, Run: runner.Run, Ask: ask,
			Watch: watch})
	}
	var story *generate.Story
	if c.Number > 1 {
		story, err = c.best(ctx, u, one)
	} else {
		story, err = one(w.ask(), w.watch())
	}
	w.show.restore()
	if story == nil {
		return err
	}
	if err == nil && story.OK && c.Dir != "" {
		if err = story.Copy(c.Dir, c.Force); err != nil {
			err = hint(err, "the program is in %s", story.Final.Code)
		}
	}
	if printed := c.tell(u, story); err == nil {
		err = printed // else the exit code of the error
	}
	return err
}

// best generates several programs side by side, lists what became of them, and returns the story of the one that works
// after the fewest attempts and, among these, with the fewest tokens; of the first one when none works.
func (c *generateCmd) best(ctx context.Context, u *ui,
	one func(func(context.Context, []string) (bool, error), generate.Watch) (*generate.Story, error)) (*generate.Story,
	error) {
	stories := make([]*generate.Story, c.Number)
	var group errgroup.Group
	group.SetLimit(c.Jobs)
	for i := range stories {
		group.Go(func() (err error) {
			stories[i], err = one(nil, generate.Watch{Ended: func(a generate.Attempt) {
				if !c.Quiet && c.Output != "json" {
					u.note("program %d, %s: %s: %s", i+1, attemptName(a.N), strings.ReplaceAll(string(a.Class), "_", " "),
						termsafe.Line(a.Summary))
				}
			}})
			return err
		})
	}
	err := group.Wait()
	stories = slices.DeleteFunc(stories, func(s *generate.Story) bool { return s == nil })
	if len(stories) == 0 {
		return nil, err
	}
	tokens := func(s *generate.Story) int64 { return s.Spent.InputTokens + s.Spent.OutputTokens }
	better := func(a, b *generate.Story) int {
		return cmp.Or(cmp.Compare(len(a.Attempts), len(b.Attempts)), cmp.Compare(tokens(a), tokens(b)))
	}
	best := stories[0]
	for _, s := range stories[1:] {
		if s.OK && (!best.OK || better(s, best) < 0) {
			best = s
		}
	}
	if c.Quiet || c.Output == "json" {
		return best, err
	}
	rows := [][]string{{"", "ID", "ENDED", "ATTEMPTS", "TOKENS", "TIME", "PROGRAM"}}
	for _, s := range stories {
		mark, program := "", "-"
		if s == best && s.OK {
			mark = "*"
		}
		if n := len(s.Attempts); n > 0 && s.OK {
			size := 0
			for _, f := range s.Attempts[n-1].Files {
				size += f.Size
			}
			program = fmt.Sprintf("%s, %s", count(len(s.Attempts[n-1].Files), "file"), count(size, "byte"))
		}
		rows = append(rows, []string{mark, s.ID, string(s.Ending), fmt.Sprint(len(s.Attempts)), fmt.Sprint(tokens(s)),
			s.Wall.Duration().Round(10 * time.Millisecond).String(), program})
	}
	return best, errors.Join(err, u.table(rows))
}

// block reads the block that is meant, with what the flags say about it.
func (c *generateCmd) block(u *ui, s *session.Session) (*runfile.Generate, error) {
	g, err := loadOne(u, c.File, "generate", c.Name, "hutch run executes its run blocks",
		runOptions(s.Store(), c.Var, c.VarFile), (*runfile.Config).Generates,
		func(b *runfile.Generate) string { return b.Name })
	if err != nil {
		return nil, err
	}
	if c.Attempts > runfile.MaxAttempts {
		return nil, fmt.Errorf("--attempts %d: at most %d", c.Attempts, runfile.MaxAttempts)
	}
	if c.Attempts > 0 {
		g.Attempts = int(c.Attempts)
	}
	var o run.Overrides
	if c.Backend != "" {
		o.Backends = []string{c.Backend}
	}
	g.Run = o.Apply(g.Run)
	return g, nil
}

// modelFailed adds to an error of a provider what to do about it.
func modelFailed(err error) error {
	var e *model.Error
	if errors.As(err, &e) && e.Hint != "" {
		return hint(errors.New(e.Message), "%s", e.Hint)
	}
	return err
}

// tell says how it ended.
func (c *generateCmd) tell(u *ui, s *generate.Story) error {
	code := u.status(s.Status)
	if c.Output == "json" {
		if err := u.json(s); err != nil {
			return err
		}
		return exit(code)
	}
	spent := fmt.Sprintf("%s, %s", count(int(s.Spent.InputTokens+s.Spent.OutputTokens), "token"),
		s.Wall.Duration().Round(100*time.Millisecond))
	if !strings.Contains(s.Reason, "attempt") {
		spent = count(len(s.Attempts), "attempt") + ", " + spent
	}
	u.note("%s: %s (%s)", s.Name, termsafe.Line(s.Reason), spent)
	if f := s.Final; f != nil {
		u.note("program: %s, entrypoint %s", f.Code, termsafe.Line(f.Entrypoint))
		if f.Copied != "" {
			u.note("copied to: %s", f.Copied)
		}
		if f.Output != "" {
			u.note("outputs: %s in %s", count(len(f.Outputs), "file"), f.Output)
		}
	}
	if s.Hint != "" {
		u.note("hint: %s", s.Hint)
	}
	return exit(code)
}

// watch shows a loop while it goes on.
type watch struct {
	u    *ui
	c    *generateCmd
	g    *runfile.Generate
	show *show
	said int // characters of the answer that is coming

	noted []string // what was said about the runs
}

func newWatch(u *ui, c *generateCmd, g *runfile.Generate) *watch {
	var names []string
	for n := range g.Attempts {
		names = append(names, attemptName(n+1))
	}
	u.fence(false, c.Output == "json")
	show := bareShow(u, &runCmd{Output: c.Output, Quiet: c.Quiet || c.Output == "json"})
	show.labels = terminal.NewLabels(names, u.color && u.outTTY)
	return &watch{u: u, c: c, g: g, show: show}
}

func attemptName(n int) string { return fmt.Sprintf("attempt %d", n) }

func (w *watch) silent() bool { return w.c.Quiet || w.c.Output == "json" }

// note is a line that stays, and takes the line of progress away.
func (w *watch) note(format string, args ...any) {
	w.show.clear()
	if !w.silent() {
		w.u.note(format, args...)
	}
}

func (w *watch) watch() generate.Watch {
	return generate.Watch{
		Begun: func(id string) {
			m := w.g.Model.Config
			w.note("%s: %s, at most %s of %s", w.g.Name, id, count(w.g.Attempts, "attempt"),
				termsafe.Line(cmp.Or(m.Model, m.Name)))
		},
		Asking: func(n int) {
			w.said = 0
			w.show.step(attemptName(n), "asking "+w.g.Model.Config.Name)
		},
		Said: func(n int, text string) {
			w.said += len([]rune(text))
			w.show.step(attemptName(n), fmt.Sprintf("%s writes, %s", w.g.Model.Config.Name, count(w.said, "character")))
		},
		Running: func(a generate.Attempt) (run.Streams, func()) {
			with := ""
			if len(a.Dependencies) > 0 {
				with = " with " + termsafe.Line(strings.Join(a.Dependencies, ", "))
			}
			w.note("%s: %s, entrypoint %s%s", attemptName(a.N), count(len(a.Files), "file"), termsafe.Line(a.Entrypoint), with)
			if w.silent() {
				return run.Streams{}, func() {}
			}
			out, done1 := w.show.labelled(attemptName(a.N), w.u.out, w.u.outTTY)
			errs, done2 := w.show.labelled(attemptName(a.N), w.u.err, w.u.errTTY)
			return run.Streams{Stdout: out, Stderr: errs}, func() { all(append(done1, done2...)) }
		},
		Result: func(r *result.Result) {
			for _, n := range r.Notes { // most are about the backend, and the same for each attempt
				if !slices.Contains(w.noted, n) {
					w.noted = append(w.noted, n)
					w.note("%s", termsafe.Line(n))
				}
			}
		},
		Ended: func(a generate.Attempt) {
			at := ""
			if a.File != "" {
				at = fmt.Sprintf(" in %s:%d", termsafe.Line(a.File), a.Line)
			}
			w.note("%s: %s%s: %s", attemptName(a.N), strings.ReplaceAll(string(a.Class), "_", " "), at, termsafe.Line(a.Summary))
		},
	}
}

// ask asks at the terminal whether packages may be installed; it is nil without a terminal.
func (w *watch) ask() func(context.Context, []string) (bool, error) {
	if w.c.Output == "json" || !w.u.errTTY || !term.IsTerminal(int(w.u.in.Fd())) {
		return nil
	}
	var once sync.Once
	answers := make(chan string)
	return func(ctx context.Context, packages []string) (bool, error) {
		w.show.clear()
		once.Do(func() { // one reader for all questions: what it has read ahead is the answer to the next one
			go func() {
				defer close(answers)
				for sc := bufio.NewScanner(w.u.in); sc.Scan(); {
					answers <- sc.Text()
				}
			}()
		})
		fmt.Fprintf(w.u.err, "The program asks for %s. Install in a sandbox, from the network [y,N]? ",
			termsafe.Line(strings.Join(packages, ", ")))
		select {
		case said := <-answers:
			said = strings.ToLower(strings.TrimSpace(said))
			return said == "y" || said == "yes", nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}
