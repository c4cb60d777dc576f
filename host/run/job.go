package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
)

// patience is how long is waited for each step of what has to be done after a command ended: collecting with listing
// changes, and destroying.
type patience struct {
	// whatever happens; 0 means a minute more than the backend has for one call, of which collecting takes many
	step     time.Duration
	finished time.Duration // once the caller has given up: a user who interrupts hutch wants to be gone
}

var usualPatience = patience{finished: 20 * time.Second}

// job is one run on its way through the steps.
type job struct {
	r    *Runner
	d    *runfile.Definition
	s    Streams
	id   string
	rec  *store.Run           // nil when a sandbox is made and nothing run
	box  *store.SandboxRecord // of the persistent sandbox that is being made, or that the command runs in; else nil
	user string               // whom the command runs as; "" for the backend's choice
	res  *result.Result
	code int // the backend's code of the command
	span *span

	chosen  *choice
	unmade  *sdk.Error // why the chosen backend could not make the sandbox, if that is a matter of this machine
	coded   chronicle  // where the declared files are
	secrets *redactor
	said    *backendLog
	input   string            // directory that is mounted as input, "" for none
	runtime *store.RuntimeDir // of what must not lie in the store, or nil
	mounts  []sdk.Mount       // dependencies
	values  []string          // of the secrets of the network, in their order
	wall    *wall             // nil without secrets
	budget  *sdk.Budget       // nil without one
	allow   []string          // rules for this command alone

	requests [][]sdk.HTTPRequest // of each destination in the result
	trust    []sdk.Mount         // what commands then have to trust
	deps     []*store.DepsEntry
	from     *sdk.Handle // of the sandbox that the one that is being made is a fork of, or nil

	published []*network.Published
}

// Run runs one definition and returns when nothing of it is left but its record. The result is never nil: what went
// wrong is in it. The error says only that the record itself could not be written, and is store.ErrFull when that is
// why.
//
// When ctx ends the command is stopped (SIGTERM, then SIGKILL), what it left is collected, and the sandbox is destroyed
// all the same.
func (r *Runner) Run(ctx context.Context, d *runfile.Definition, s Streams) (*result.Result, error) {
	return r.run(ctx, r.WithBackends(d), s, func() {})
}

// run is Run; it calls leave once nothing of the run exists any more but its record, which is yet to be completed.
func (r *Runner) run(ctx context.Context, d *runfile.Definition, s Streams, leave func()) (*result.Result, error) {
	j := r.newJob(d, s)
	defer j.span.end()

	// The plugin starts while the record is made.
	type chosen struct {
		c   *choice
		err error
	}
	found := make(chan chosen, 1)
	go func() {
		sp := j.span.child("plan")
		defer sp.end()
		c, err := r.choose(ctx, d, s.TTY != nil, false)
		if err == nil {
			j.takeAhead(ctx, c)
		}
		found <- chosen{c, err}
	}()
	sp := j.span.child("record")
	rec, err := r.opt.Store.CreateRun(store.NewRun{ID: j.id, Name: d.Instance, File: d.File, Parent: d.Parent,
		Definition: d})
	sp.end()
	f := <-found
	defer func() { j.dropAhead(f.c) }()
	if err != nil {
		j.fail("record", err)
		j.seal()
		return j.res, err
	}
	j.rec = rec
	j.res.Dir = rec.Dir()

	j.steps(ctx, f.c, f.err)

	for _, e := range j.deps {
		j.note(e.Release(), "release the dependencies")
	}
	if j.runtime != nil {
		j.note(j.runtime.Close(), "remove the run's private directory")
	}
	leave()
	return j.res, j.finish()
}

// steps does all between the record's beginning and its end. What fails is in j.res. Without a record a persistent
// sandbox is made and nothing run in it.
func (j *job) steps(ctx context.Context, c *choice, err error) {
	if err != nil {
		j.fail("plan", err)
		return
	}
	j.chosen = c
	for again := true; again; again = j.fallBack(ctx) {
		j.secrets.add(c)
		if c.backend == nil {
			j.event(store.EventPlan, c.planned())
			j.refuse(c)
			return
		}
		j.attempt(ctx, c)
	}
}

// fallBack chooses the next backend when the chosen one could not make the sandbox, and takes back what was prepared
// for it. It reports false when the outcome stands.
func (j *job) fallBack(ctx context.Context) bool {
	c, why := j.chosen, j.unmade
	if why == nil || len(j.d.Backends) == 1 {
		return false
	}
	failed := c.backend.Facts.Name
	c.failed(j.d, why)
	if err := j.r.goOn(ctx, j.d, c, j.s.TTY != nil, false); err != nil {
		j.fail("plan", err)
		return false
	}
	if j.runtime != nil {
		j.note(j.runtime.Close(), "remove the run's private directory")
	}
	j.unmade, j.runtime, j.input, j.mounts, j.trust, j.wall = nil, nil, "", nil, nil, nil
	j.res.Error, j.res.Cause, j.res.Notes, j.res.Dependencies, j.res.Backend = nil, "", nil, nil, result.Backend{}
	if c.backend != nil {
		j.res.Notes = []string{fmt.Sprintf("backend %q could not make the sandbox, so it ran on %q: %s", failed,
			c.backend.Facts.Name, oneLine(why))}
	}
	return true
}

// attempt does what follows the choice of a backend.
func (j *job) attempt(ctx context.Context, c *choice) {
	b := c.backend
	j.res.Backend = result.Backend{Name: b.Facts.Name, Version: b.Facts.Version, Isolation: string(b.Facts.Isolation),
		Path: b.Path, SHA256: b.SHA256}
	j.res.Notes = append(j.res.Notes, c.notes...)
	for _, w := range c.warnings {
		j.res.Notes = append(j.res.Notes, noteOf(w))
	}
	if r := j.r; r.opt.Keep {
		if err := j.beginBox(r.opt.Name); err != nil {
			j.fail("record", err)
			return
		}
		defer j.endBox()
	}
	j.event(store.EventPlan, c.planned())
	if j.rec != nil {
		if err := j.rec.SetBackend(b.Facts.Name); err != nil {
			j.fail("record", err)
			return
		}
		if err := j.takeSecrets(ctx); err != nil {
			j.fail("secrets", err)
			return
		}
		defer j.listen(b)()
		if err := j.publish(b, len(j.d.Network.Publish)); err != nil {
			j.fail("publish", err)
			return
		}
		defer j.unpublish()
	}
	if err := j.writeCode(); err != nil {
		j.fail("code", err)
		return
	}
	if err := j.dependencies(ctx); err != nil {
		j.fail("dependencies", err)
		return
	}
	if err := j.secure(); err != nil {
		j.fail("secrets", err)
		return
	}
	j.sandboxed(ctx)
}

// sandboxed does what needs the sandbox of the run.
func (j *job) sandboxed(ctx context.Context) {
	spec := specOf(j.d, j.chosen.config, j.s.TTY != nil)
	spec.Input, spec.Mounts = j.input, slices.Concat(spec.Mounts, j.mounts, j.trust)
	sb, err := j.create(ctx, j.id, spec, j.r.opt.Keep)
	if err != nil {
		j.fail("create", err)
		return
	}
	defer func() { // whatever happens, also a panic of ours
		after, cancel := j.afterwards(ctx)
		defer cancel()
		j.destroy(after, sb)
	}()
	if err := j.checkHolds(sb.Ready()); err != nil {
		j.fail("create", err)
		return
	}
	if err := j.furnish(ctx, sb); err != nil {
		j.fail("home", err)
		return
	}
	if j.rec == nil || !j.exec(ctx, sb) {
		return
	}
	after, cancel := j.afterwards(ctx)
	defer cancel()
	changed := j.listChanges(after, sb) // while the outputs are collected
	j.collect(after, sb)
	changed()
	j.expect()
}

// afterwards is the context of one step that has to be done even when ctx has ended, or ends meanwhile. A caller that
// has no patience for it at all kills the backends and itself; the intents tell the next hutch gc what is left.
func (j *job) afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	p := j.r.patience
	if p.step == 0 {
		p.step = time.Minute + backend.DefaultCallTimeout
		if j.chosen != nil && j.chosen.backend != nil {
			p.step = time.Minute + j.chosen.backend.CallTimeout()
		}
	}
	after, end := context.WithTimeoutCause(context.WithoutCancel(ctx), p.step, fmt.Errorf("no answer within %s", p.step))
	after, give := context.WithCancelCause(after)
	stop := context.AfterFunc(ctx, func() {
		t := time.AfterFunc(p.finished, func() {
			give(&sdk.Error{Reason: sdk.ReasonUnavailable, Summary: fmt.Sprintf("no answer within %s after it was cancelled",
				p.finished), Err: context.DeadlineExceeded})
		})
		context.AfterFunc(after, func() { t.Stop() })
	})
	return after, func() {
		stop()
		give(nil)
		end()
	}
}

// refuse ends a run for which there is no able backend.
func (j *job) refuse(c *choice) {
	f := &result.Failure{Phase: "plan", Reason: sdk.ReasonLimit, Diagnostics: c.diags, Summary: badFile}
	if len(c.diags) == 0 {
		f.Summary = "no backend of this run is able to run it"
		if len(c.candidates) == 1 {
			f.Summary = fmt.Sprintf("backend %q is not able to run it", c.candidates[0].Name)
		}
		for _, cand := range c.candidates {
			f.Diagnostics = append(f.Diagnostics, cand.Problems...)
		}
	} else {
		f.Reason = sdk.ReasonConfig
		if !slices.ContainsFunc(c.diags, func(d diag.Diagnostic) bool { return d.Range != nil }) {
			f.Summary = "the request has errors" // flags and variables of the environment, and no file
		}
	}
	j.res.Cause, j.res.Error = sdk.CauseSetupFailed, f
}

// fail ends the run with an error of a step. A run that was cancelled says so.
func (j *job) fail(phase string, err error) {
	j.res.Error = j.failure(phase, err)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, sdk.ErrCancelled):
		j.res.Cause, j.res.Evidence = sdk.CauseCancelled, "cancelled while hutch was busy with: "+phase
	case backendBroke(err):
		j.res.Cause = sdk.CauseBackend
	default:
		j.res.Cause = sdk.CauseSetupFailed
	}
}

// oneLine is what an error says, on one line: joined errors have one for each.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// badFile is what a result says of a run whose definition is wrong; the diagnostics say the rest.
const badFile = "the run file has errors"

// failure puts an error into the words of a result, at the line of the run file that it is about.
func (j *job) failure(phase string, err error) *result.Failure {
	f := &result.Failure{Phase: phase, Summary: oneLine(err)}
	var e *sdk.Error
	var have *result.Failure
	var ds diag.Diagnostics
	switch {
	case errors.As(err, &have):
		return have
	case errors.As(err, &ds):
		f.Diagnostics = ds
		if len(ds) > 0 && ds[0].Range != nil {
			f.Summary = badFile // what is wrong is said at its line
		}
	case errors.As(err, &e):
		// What stands before the backend's words says what hutch was about.
		before, _ := strings.CutSuffix(err.Error(), e.Error())
		if before == err.Error() {
			before = ""
		}
		f.Summary, f.Detail, f.Fix, f.Reason = strings.ReplaceAll(before+e.Summary, "\n", "; "), e.Detail, e.Fix, e.Reason
		switch {
		case e.Limit != "":
			f.Diagnostics = diag.Diagnostics{j.d.Diagnose("limits."+string(e.Limit), e.Summary, e.Detail, e.Fix)}
		case e.Path != "":
			if b := j.block(); b != nil {
				f.Diagnostics = b.Diagnose([]sdk.Diagnostic{sdk.DiagnosticOf(e)})
			}
		}
	}
	return f
}

// block is the backend block that was chosen.
func (j *job) block() *runfile.Backend {
	if j.chosen == nil {
		return nil
	}
	for i, c := range j.chosen.candidates {
		if c.Chosen {
			return j.d.Backends[i]
		}
	}
	return nil
}

// note keeps an error that changes nothing about how the run ended.
func (j *job) note(err error, doing string) {
	if err != nil {
		j.res.Notes = append(j.res.Notes, fmt.Sprintf("%s: %s", doing, oneLine(err)))
	}
}

// event appends to the chain. A chain that cannot be written to shows again, and for good, when the record is finished.
func (j *job) event(typ store.EventType, data any, files ...store.FileRef) {
	if j.rec == nil && j.box == nil {
		return // a persistent sandbox that failed to be made has taken its record back, and the chain with it
	}
	if err := j.chronicle().Event(typ, j.secrets.Value(data), files...); err != nil && j.res.Error == nil {
		j.note(err, "write event "+string(typ))
	}
}

func (j *job) progress(step string, done, total int64) {
	if p := j.r.opt.Progress; p != nil {
		p(Progress{Run: j.id, Name: j.d.Instance, Step: step, Done: done, Total: total})
	}
}

// finish seals the result and the record.
func (j *job) finish() error {
	sp := j.span.child("finish")
	defer sp.end()
	if j.said != nil {
		j.said.close()
	}
	j.seal()
	end := store.End{OK: j.res.OK, Cause: string(j.res.Cause), ExitCode: j.res.ExitCode, Result: j.res, Sandbox: j.box}
	var err error
	if j.res.Events, err = j.rec.Finish(end); err != nil {
		err = fmt.Errorf("the record of run %s is incomplete: %w", j.id, err)
		if j.res.Error == nil {
			j.res.Error = j.failure("record", err)
			if j.res.Cause == sdk.CauseExited {
				j.res.Cause = sdk.CauseBackend
			}
			j.res.Seal(j.code)
		}
		j.note(j.rec.Close(), "close the record")
	}
	return err
}

// seal completes the result; it is called once nothing changes any more but the head of the chain.
func (j *job) seal() {
	j.res.Ended = time.Now().UTC()
	j.secrets.result(j.res)
	j.res.Seal(j.code)
}

func workspaceOf(d *runfile.Definition) result.Workspace {
	w := result.Workspace{Mode: string(sdk.WorkspacePrivate)}
	if d.Workspace != nil {
		w.Source, w.Mode = d.Workspace.Source, d.Workspace.Mode
	}
	return w
}
