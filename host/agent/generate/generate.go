// Package generate has a model write a program until it works: ask, take the answer apart, run it in a sandbox, tell
// from the result what went wrong, ask again.
//
// Every attempt that runs is its own run, with the loop as its parent, and is judged by its result alone. The
// model has no tools, and sees nothing but the task, the names and sizes of the inputs, its own program and the ends of
// what that printed. What a program prints is untrusted: the worst that a model can make of it is another program for
// the same sandbox.
//
// The conversation is short whatever happens: the task, the last program with what became of it, and the last answer
// that was no program. Bounds on attempts, tokens, turns and time always exist.
package generate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/agent/record"
	"github.com/hutch-run/hutch/host/outputs"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
)

// Options are what a loop needs besides its block.
type Options struct {
	Store *store.Store
	// Client asks the model. It is not closed.
	Client model.Client
	// Run runs one definition, as [run.Runner.Run] does.
	Run func(ctx context.Context, d *runfile.Definition, s run.Streams) (*result.Result, error)
	// Ask asks the user whether dependencies may be installed, for the policy "ask". Nil when nobody can be asked: they
	// are then refused.
	Ask   func(ctx context.Context, packages []string) (bool, error)
	Watch Watch
}

// Watch is called with what happens, as it happens and on the calling goroutine. Fields may be nil.
type Watch struct {
	Begun   func(id string)
	Asking  func(n int)                               // the model is about to be asked for attempt n
	Said    func(n int, text string)                  // a piece of its answer came
	Running func(a Attempt) (s run.Streams, d func()) // the program of a is about to run; d is called after it
	Result  func(r *result.Result)                    // it ran
	Ended   func(a Attempt)                           // the attempt is judged
}

// loop is one loop on its way.
type loop struct {
	g      *runfile.Generate
	o      Options
	rec    *record.Loop
	meter  *model.Meter
	client model.Client
	story  *Story

	last     *program       // the newest program
	rewrite  bool           // nothing of last can be kept: the sandbox cannot run its language
	lastText string         // what became of it
	bad      string         // the answer after that, of which no program could be made; "" for none
	badText  string         // what is wrong with it
	tried    map[string]int // the attempt of each program, by its sum
	sames    int            // how often in a row the answer was a program that had been tried
	agreed   map[string]bool
}

// Run runs a loop to its end. The story has all of it and is never nil once the loop began; the error says that there
// is no record of it, or not all of it.
func Run(ctx context.Context, g *runfile.Generate, o Options) (*Story, error) {
	rec, err := record.Begin(o.Store, record.New{Kind: store.KindGenerate, Name: g.Name, File: g.Run.File, Definition: g,
		Secrets: append(g.Run.Secrets(), g.Model.Config.APIKey)})
	if err != nil {
		return nil, err
	}
	defer rec.Close()
	c := g.Model.Config
	l := &loop{g: g, o: o, rec: rec, last: &program{}, tried: map[string]int{}, agreed: map[string]bool{}, story: &Story{
		Schema: Schema, ID: rec.ID(), Name: g.Name, File: g.Run.File,
		Model:       ModelID{Name: c.Name, Provider: c.Provider, Model: c.Model},
		MaxAttempts: g.Attempts, Attempts: []Attempt{}, Started: time.Now().UTC(), Dir: rec.Dir(),
	}}
	l.meter = model.Metered(o.Client, c.Budget)
	l.client = &record.Client{Client: l.meter, Loop: rec}
	if o.Watch.Begun != nil {
		o.Watch.Begun(rec.ID())
	}
	err = l.attempts(ctx)
	if err != nil && l.story.Ending == "" {
		l.end(Sandbox, err.Error())
	}
	return l.story, errors.Join(err, l.finish())
}

// end says how the loop ended.
func (l *loop) end(e Ending, reason string) { l.story.Ending, l.story.Reason = e, reason }

// finish completes the story and the record.
func (l *loop) finish() error {
	s := l.story
	s.OK, s.Status, s.Spent = s.Ending == Worked, s.Ending.status(), l.meter.Spent()
	s.Ended = time.Now().UTC()
	s.Wall = result.Seconds(s.Ended.Sub(s.Started))
	var err error
	s.Events, err = l.rec.End(store.End{OK: s.OK, Cause: string(s.Ending), Result: s})
	return err
}

// attempts tries until the loop ends, and says how it did. The error is one of the record.
func (l *loop) attempts(ctx context.Context) error {
	for n := 1; n <= l.g.Attempts; n++ {
		a := Attempt{N: n, Started: time.Now().UTC()}
		text, ok, err := l.ask(ctx, &a)
		if err != nil || !ok {
			return err
		}
		err = l.try(ctx, &a, text)
		l.story.Attempts = append(l.story.Attempts, a)
		if l.o.Watch.Ended != nil {
			l.o.Watch.Ended(a)
		}
		if rerr := l.rec.Attempt(record.Attempt{N: n, Run: a.Run, OK: a.Class == ClassOK, Class: string(a.Class),
			Detail: a.Summary}); err != nil || rerr != nil {
			return errors.Join(err, rerr)
		}
		if l.over(ctx, &a) {
			return nil
		}
	}
	last := l.story.Attempts[len(l.story.Attempts)-1]
	how := fmt.Sprintf("none of %d attempts works; the last one", l.g.Attempts)
	if l.g.Attempts == 1 {
		how = "the one attempt does not work"
	}
	l.end(Attempts, how+": "+place(last))
	if l.story.Hint == "" {
		l.story.Hint = "attempts in the generate block allows more; a task that says more about what is wanted helps as well"
	}
	return nil
}

// place is the summary of an attempt with the place in the program.
func place(a Attempt) string {
	if a.File != "" && !strings.Contains(a.Summary, a.File) {
		return fmt.Sprintf("%s (%s:%d)", a.Summary, a.File, a.Line)
	}
	return a.Summary
}

// over reports whether an attempt ends the loop, and says so.
func (l *loop) over(ctx context.Context, a *Attempt) bool {
	switch {
	case a.Class == ClassOK:
		l.end(Worked, fmt.Sprintf("it works after %s", english.Plural(a.N, "attempt", "")))
		l.story.Hint = ""
	case a.Class == ClassCancelled || ctx.Err() != nil:
		l.end(Cancelled, "it was cancelled")
	case a.Class == ClassSandbox:
		l.end(Sandbox, a.Summary)
	case a.Class == ClassInterpreter && l.g.Run.Language != "":
		l.end(Sandbox, a.Summary)
		l.story.Hint = "take a backend whose sandboxes have it, or another language"
	case a.Class == ClassSame && l.sames > 1:
		l.end(Same, fmt.Sprintf("the model gives the program of attempt %d again and again", a.SameAs))
		l.story.Hint = "say more in the task, or take another model"
	default:
		return false
	}
	return true
}

// ask asks the model. When there is no answer the loop has ended; the error is one of the record.
func (l *loop) ask(ctx context.Context, a *Attempt) (text string, ok bool, err error) {
	if l.o.Watch.Asking != nil {
		l.o.Watch.Asking(a.N)
	}
	var delta func(string)
	if l.o.Watch.Said != nil {
		delta = func(s string) { l.o.Watch.Said(a.N, s) }
	}
	began := time.Now()
	ans, err := l.client.Answer(ctx, l.request(), delta)
	a.Answering, a.Stop, a.Usage = result.Seconds(time.Since(began)), ans.Stop, ans.Usage
	var budget *model.BudgetError
	var failed *model.Error
	switch {
	case err == nil && ans.Stop == model.StopRefused:
		l.end(Refused, "the model would not answer")
		if said := strings.TrimSpace(ans.Text); said != "" {
			l.story.Reason += ": " + begin(said, 500)
		}
	case err == nil:
		if l.story.Model.Model == "" {
			l.story.Model.Model = ans.Model
		}
		return ans.Text, true, nil
	case ctx.Err() != nil:
		l.end(Cancelled, "it was cancelled")
	case errors.As(err, &budget):
		l.end(Budget, budget.Error())
		l.story.Hint = "budget in the model block allows more"
	case errors.As(err, &failed) && failed.Kind == model.KindRefused:
		l.end(Refused, failed.Message)
		l.story.Hint = failed.Hint
	case errors.As(err, &failed):
		l.end(Model, "no answer from the model: "+failed.Message)
		l.story.Hint = failed.Hint
	default:
		l.end(Model, err.Error())
		return "", false, err
	}
	return "", false, nil
}

// request is the conversation as it is now.
func (l *loop) request() model.Request {
	r := model.Request{System: system(l.g, l.o.Ask != nil),
		Messages: []model.Message{{Role: model.RoleUser, Text: "# The task\n\n" + strings.TrimSpace(l.g.Task)}}}
	say := func(said, text string) {
		if strings.TrimSpace(said) == "" {
			said = "(nothing)" // providers refuse messages without text
		}
		r.Messages = append(r.Messages, model.Message{Role: model.RoleAssistant, Text: said},
			model.Message{Role: model.RoleUser, Text: text})
	}
	if l.lastText != "" {
		say(shown(l.last), l.lastText+l.earlier())
	}
	if l.badText != "" {
		say(begin(l.bad, maxAnswer), l.badText)
	}
	return r
}

// earlier lists what became of the attempts so far, so that the same way is not gone twice.
func (l *loop) earlier() string {
	if len(l.story.Attempts) < 2 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\nThe attempts so far:\n")
	for _, a := range l.story.Attempts {
		fmt.Fprintf(&b, "%d. %s: %s\n", a.N, a.Class, begin(strings.ReplaceAll(place(a), "\n", " "), 200))
	}
	return b.String()
}

// try makes a program of an answer and runs it. The error is one of the record.
func (l *loop) try(ctx context.Context, a *Attempt, text string) error {
	base := l.last
	if l.rewrite {
		base = &program{}
	}
	p, err := base.take(text, l.g)
	if err != nil {
		a.Class, a.Summary = ClassAnswer, firstLine(err.Error())
		l.bad, l.badText = text, unusable(err)
		if a.Stop == model.StopLength {
			a.Class, a.Summary = ClassLength, "the answer was cut off by the bound on its tokens"
			l.badText = fmt.Sprintf("Your answer was cut off: it may have %d tokens. Write a shorter program, or change less "+
				"at once.", l.g.Model.Config.MaxTokens)
		}
		a.Advice = l.badText
		return nil
	}
	l.bad, l.badText = "", ""
	a.Entrypoint, a.Language, a.Dependencies = p.how.Entrypoint, languageOf(p.how.Language, p.how.Entrypoint),
		p.how.Dependencies
	for _, f := range p.files {
		a.Files = append(a.Files, FileSize{f.Path, len(f.Content)})
	}
	sum := p.sum()
	if before := l.tried[sum]; before > 0 {
		l.sames++
		a.Class, a.SameAs, a.Summary = ClassSame, before, fmt.Sprintf("it is the program of attempt %d again", before)
		a.Advice = fmt.Sprintf("This is exactly the program of attempt %d, which did not work and was not run again. "+
			"Change what was wrong with it.", before)
		if p.sum() == l.last.sum() {
			l.bad, l.badText = "(the same program again)", a.Advice
		} else {
			l.last, l.lastText = p, a.Advice
		}
		return nil
	}
	l.sames, l.tried[sum] = 0, a.N
	l.last, l.rewrite = p, false
	if no := l.refused(ctx, p); no != "" {
		a.Class, a.Summary, a.Advice = ClassPolicy,
			"it asks for dependencies that are not allowed: "+strings.Join(p.how.Dependencies, ", "), no
		l.lastText = happened(Verdict{Class: a.Class, Summary: a.Summary, Advice: a.Advice}, nil)
		return nil
	}
	return l.run(ctx, a, p)
}

// run runs a program and judges the result.
func (l *loop) run(ctx context.Context, a *Attempt, p *program) error {
	d := l.g.Definition(p.attempt(a.N))
	d.Parent = l.rec.ID()
	var s run.Streams
	done := func() {}
	if l.o.Watch.Running != nil {
		s, done = l.o.Watch.Running(*a)
	}
	began := time.Now()
	r, err := l.o.Run(ctx, d, s)
	a.Running = result.Seconds(time.Since(began))
	done()
	if l.o.Watch.Result != nil {
		l.o.Watch.Result(r)
	}
	v := Classify(d, r, l.installs())
	l.rewrite = v.Class == ClassInterpreter
	a.Run, a.Cause, a.ExitCode = r.ID, string(r.Cause), r.ExitCode
	a.Class, a.Summary, a.Advice, a.File, a.Line = v.Class, v.Summary, v.Advice, v.File, v.Line
	l.lastText = happened(v, r)
	l.story.program = p
	if v.Class == ClassOK {
		l.story.Final = &Final{Run: r.ID, Code: r.Dir + "/code", Entrypoint: p.how.Entrypoint,
			Outputs: slices.Clone(r.Outputs)}
		if len(r.Outputs) > 0 {
			l.story.Final.Output = r.Dir + "/output"
		}
	}
	return err
}

// installs reports whether the model may list dependencies.
func (l *loop) installs() bool {
	return l.g.Policy == runfile.DependenciesAllowed || l.g.Policy == runfile.DependenciesAsk && l.o.Ask != nil
}

// refused says why the dependencies of a program are not installed; "" when they are, or when there are none.
func (l *loop) refused(ctx context.Context, p *program) string {
	var open []string
	for _, d := range p.how.Dependencies {
		if !l.agreed[d] {
			open = append(open, d)
		}
	}
	const without = "Use the standard library instead, and list no dependencies."
	switch {
	case len(open) == 0 || l.g.Policy == runfile.DependenciesAllowed:
		return ""
	case l.g.Policy == runfile.DependenciesBlocked:
		return "No dependencies are allowed. " + without
	case l.o.Ask == nil:
		l.story.Hint = `dependency_policy = "allowed" in the generate block installs what the model asks for; where there is a terminal, "ask" asks`
		return "No dependencies are allowed. " + without
	}
	ok, err := l.o.Ask(ctx, open)
	if err != nil || !ok {
		return fmt.Sprintf("The user does not agree to %s. %s", strings.Join(open, ", "), without)
	}
	for _, d := range open {
		l.agreed[d] = true
	}
	return ""
}

func firstLine(s string) string { s, _, _ = strings.Cut(s, "\n"); return s }

// Schema identifies the JSON of a [Story].
const Schema = "hutch.generate/v1"

// Ending says why a loop ended.
type Ending string

// The endings.
const (
	Worked    Ending = "worked"    // the last attempt did what was expected
	Attempts  Ending = "attempts"  // as many as there may be did not
	Budget    Ending = "budget"    // what the model may use was used up
	Same      Ending = "same"      // the model went on giving programs that had failed already
	Refused   Ending = "refused"   // the model would not answer
	Model     Ending = "model"     // the model could not be asked
	Sandbox   Ending = "sandbox"   // no program could be run
	Cancelled Ending = "cancelled" // the user ended it
)

// Story is a whole loop: what was tried, what became of it, and what it took. It is what is printed as JSON, and the
// result of the loop's record.
type Story struct {
	Schema string  `json:"schema"`
	ID     string  `json:"id"` // of the loop, and the parent of its runs
	Name   string  `json:"name"`
	File   string  `json:"file,omitempty"`
	Model  ModelID `json:"model"`

	OK     bool   `json:"ok"`
	Ending Ending `json:"ending"`
	Reason string `json:"reason"` // in words
	Hint   string `json:"hint,omitempty"`
	Status int    `json:"status"` // the exit code of hutch generate

	MaxAttempts int         `json:"max_attempts"`
	Attempts    []Attempt   `json:"attempts"` // never null
	Spent       model.Spent `json:"spent"`    // of all attempts
	Final       *Final      `json:"final,omitempty"`

	Started time.Time      `json:"started"`
	Ended   time.Time      `json:"ended"`
	Wall    result.Seconds `json:"wall_seconds"`

	Dir    string         `json:"dir"` // of the loop's record
	Events store.ChainRef `json:"events,omitzero"`

	program *program // of the last run
}

// ModelID names the model.
type ModelID struct {
	Name     string `json:"name"` // of the block
	Provider string `json:"provider"`
	Model    string `json:"model,omitempty"`
}

// Attempt is one answer of the model and what became of it.
type Attempt struct {
	N       int    `json:"n"` // from 1
	Class   Class  `json:"class"`
	Summary string `json:"summary"`
	Advice  string `json:"advice,omitempty"` // what the model was advised
	File    string `json:"file,omitempty"`   // of the program, where it went wrong
	Line    int    `json:"line,omitempty"`

	Run          string     `json:"run,omitempty"` // id of the run; empty when nothing ran
	Files        []FileSize `json:"files,omitempty"`
	Entrypoint   string     `json:"entrypoint,omitempty"`
	Language     string     `json:"language,omitempty"`
	Dependencies []string   `json:"dependencies,omitempty"` // that it asks for
	SameAs       int        `json:"same_as,omitempty"`      // the attempt that had this program

	Cause    string `json:"cause,omitempty"` // of the run
	ExitCode *int   `json:"exit_code,omitempty"`

	Stop  model.Stop  `json:"stop,omitempty"` // why the answer ended
	Usage model.Usage `json:"usage"`

	Started   time.Time      `json:"started"`
	Answering result.Seconds `json:"answering_seconds"`
	Running   result.Seconds `json:"running_seconds"`
}

// FileSize is one file of a program.
type FileSize struct {
	Path string `json:"path"`
	Size int    `json:"size"`
}

// Final is where the program that works lies, and what it left.
type Final struct {
	Run        string           `json:"run"`
	Code       string           `json:"code"` // directory of the program and its inputs, absolute
	Entrypoint string           `json:"entrypoint"`
	Output     string           `json:"output,omitempty"` // directory of what it left, absolute; empty when that is nothing
	Outputs    []outputs.Output `json:"outputs"`          // never null
	Copied     string           `json:"copied,omitempty"` // directory that the program was copied to
}

// The exit codes of hutch generate beside 0 for a program that works.
const (
	statusNo     = 1   // none works
	statusFailed = 125 // the model or the sandbox failed, so that nobody knows
)

func (e Ending) status() int {
	switch e {
	case Worked:
		return 0
	case Attempts, Budget, Same, Refused:
		return statusNo
	case Cancelled:
		return result.CodeCancelled
	}
	return statusFailed
}
