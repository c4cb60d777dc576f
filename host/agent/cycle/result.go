package cycle

import (
	"time"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/agent/record"
	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/workspace/review"
)

// Schema is the schema of [Result].
const Schema = "hutch.cycle/v1"

// Result is what came of a cycle: what `hutch cycle -o json` prints, and result.json of its record. Text of the model
// and the sandbox in it is not escaped.
type Result struct {
	Schema string `json:"schema"`
	ID     string `json:"id"`    // of the record
	Cycle  string `json:"cycle"` // the id that the user gave
	Name   string `json:"name"`  // of the block
	File   string `json:"file,omitempty"`
	Spec   string `json:"spec"`

	OK      bool   `json:"ok"`
	State   string `json:"state"`   // the last one that was gone to
	Outcome string `json:"outcome"` // done, blocked, budget, refused, model_error, setup_failed, failed or interrupted
	Reason  string `json:"reason,omitempty"`
	Summary string `json:"summary,omitempty"` // the model's last words
	Budget  *Bound `json:"budget,omitempty"`  // the bound that ended it

	Model     string   `json:"model"` // provider and name
	Backend   string   `json:"backend,omitempty"`
	Workspace string   `json:"workspace"`
	Sandbox   *Sandbox `json:"sandbox,omitempty"` // nil when none was made

	Turns      int         `json:"turns"`
	Usage      model.Usage `json:"usage"`
	ToolCalls  int         `json:"tool_calls"`
	ToolErrors int         `json:"tool_errors"`         // of those
	Shortened  int         `json:"shortened,omitempty"` // how often long answers of tools were taken out of the conversation
	Setup      *Check      `json:"setup,omitempty"`
	Checks     []Check     `json:"checks"`

	ChangesKnown bool          `json:"changes_known"`
	Changes      []review.Item `json:"changes"` // the first 10000
	ChangesTotal int           `json:"changes_total"`
	Apply        Apply         `json:"apply"`

	Resumed bool      `json:"resumed,omitempty"` // it was gone on with after its host had died
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
	// Dir is the directory of the record.
	Dir         string           `json:"dir"`
	Diagnostics diag.Diagnostics `json:"diagnostics,omitempty"` // of a sandbox that could not be made
	Events      store.ChainRef   `json:"events,omitzero"`

	applyErr error
}

// ApplyError is what [Options.Apply] said.
func (r *Result) ApplyError() error { return r.applyErr }

// Sandbox is the sandbox that a cycle worked in.
type Sandbox struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Kept bool   `json:"kept"` // it is still there
}

// Check is a command of the user's that was run in the sandbox.
type Check struct {
	Run      string  `json:"run,omitempty"` // its record
	OK       bool    `json:"ok"`
	ExitCode *int    `json:"exit_code,omitempty"`
	Cause    string  `json:"cause,omitempty"`
	Ended    string  `json:"ended"` // how, in words
	Seconds  float64 `json:"seconds"`
}

// Apply is what became of the changes.
type Apply struct {
	When    When   `json:"when"`
	Done    bool   `json:"done"`              // nothing of what the user wants brought back is left in the sandbox
	Problem string `json:"problem,omitempty"` // why something is
}

func newResult(o Options, w Work, loop *record.Loop, past *record.Past) *Result {
	b := w.Block
	r := &Result{
		Schema: Schema, ID: loop.ID(), Cycle: w.ID, Name: b.Name, File: b.Box.File, Spec: w.Spec.Path,
		Model: b.Model.Config.Provider + " " + b.Model.Config.Model, Workspace: b.Box.Workspace.Source,
		Checks: []Check{}, Changes: []review.Item{}, Apply: Apply{When: o.When}, Started: time.Now().UTC(), Dir: loop.Dir(),
	}
	if r.Apply.When == "" {
		r.Apply.When = Never
	}
	if past == nil {
		return r
	}
	r.Resumed, r.Started, r.State = true, past.Info.Started, past.State
	r.Usage, r.Turns = past.Usage, len(past.Calls)
	for _, call := range past.Calls {
		if call.Shortened > 0 {
			r.Shortened++
		}
		for _, t := range call.Tools {
			r.ToolCalls++
			if t.IsError {
				r.ToolErrors++
			}
		}
	}
	for _, a := range past.Attempts {
		r.Checks = append(r.Checks, Check{Run: a.Run, OK: a.OK, Cause: a.Class, Ended: a.Detail})
	}
	return r
}

// take takes in how coding ended.
func (r *Result) take(o outcome) {
	r.Outcome, r.Reason, r.Summary, r.Budget, r.OK = o.Word, o.Reason, o.Summary, o.Budget, o.Word == Done
}

// sync takes in what became of the changes.
func (r *Result) sync(s *synced) {
	if s == nil {
		return
	}
	r.ChangesKnown, r.ChangesTotal, r.Apply.Done, r.Apply.Problem = s.Known, s.Total, s.Applied, s.Problem
	r.Changes = append([]review.Item{}, s.Changes[:min(len(s.Changes), maxChanges)]...)
}

// end writes the result and closes the record.
func (c *cycle) end() (err error) {
	r := c.res
	r.Ended = time.Now().UTC()
	r.Events, err = c.loop.End(store.End{OK: r.OK, Cause: r.Outcome, Result: r})
	return err
}

// Outcomes of a cycle, in a word.
const (
	Done        = "done"         // the model says so, and the check agrees where there is one
	Blocked     = "blocked"      // the model says that it cannot go on
	OverBudget  = "budget"       // tokens, turns, time or tool calls are used up
	Refused     = "refused"      // the model, or its provider, would not answer
	ModelFailed = "model_error"  // the model could not be asked
	SetupFailed = "setup_failed" // the user's command before it all failed
	Failed      = "failed"       // the sandbox failed, or hutch did
	Interrupted = "interrupted"  // the user ended it
)

// outcome is how coding ended. It is recorded with the states after it, so that those can be gone on with.
type outcome struct {
	Word    string  `json:"outcome"`
	Reason  string  `json:"reason,omitempty"`  // in a sentence, of hutch's
	Summary string  `json:"summary,omitempty"` // of the model's
	Budget  *Bound  `json:"budget,omitempty"`
	Sync    *synced `json:"sync,omitempty"` // with tear-down
}

// Bound is one that was reached.
type Bound struct {
	What  string `json:"what"` // tokens, turns, time or tool_calls
	Used  string `json:"used"`
	Limit string `json:"limit"`
}

// synced is what became of the changes.
type synced struct {
	Known   bool          `json:"known"`   // the changes could be listed
	Changes []review.Item `json:"changes"` // the first of them
	Total   int           `json:"total"`
	Applied bool          `json:"applied"` // the user's policy was followed to its end: nothing waits for a review
	Problem string        `json:"problem,omitempty"`
}

// maxSummary bounds what is kept of the model's last words, in bytes.
const maxSummary = 8 << 10
