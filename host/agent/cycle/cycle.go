// Package cycle lets a model work a specification with tools, inside of a sandbox and nowhere else.
//
// A cycle is a loop with visible states, each of which is in its record before it begins:
//
//	set-up      a persistent sandbox is made on the project, privately, and prepared
//	coding      the model works with the tools of host/agent/tools, until it says that it is done and the check, a
//	            command of the user's, agrees; until it gives up; or until a bound is reached
//	sync-back   what changed is listed, and brought back through a review where the user wants that
//	tear-down   the sandbox is removed, unless something in it is still to be reviewed
//
// Whatever happens in coding, an interrupt and an error of the model included, the last two follow. A host that dies
// leaves a record from which [Resume] goes on: the conversation is in it, the sandbox is still there.
//
// Nothing that the model says is run or written on this host. Its calls go to tools that work in the sandbox; a call
// that cannot be done is answered with an error that the model can act on, whatever is wrong with it.
package cycle

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/agent/record"
	"github.com/hutch-run/hutch/host/agent/tools"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/workspace"
	"github.com/hutch-run/hutch/host/workspace/review"
)

// The states of a cycle, in order.
const (
	StateSetUp    = "set-up"
	StateCoding   = "coding"
	StateSyncBack = "sync-back"
	StateTearDown = "tear-down"
)

// Work is what a cycle is to do.
type Work struct {
	ID   string // of the cycle, from the user; see [CheckID]
	Spec Spec
	// Block says where and with what: the sandbox, the model, the commands, the bounds.
	Block *runfile.Cycle
}

// Spec is a specification.
type Spec struct {
	Path string // as it is shown to the user
	At   string // where commands in the sandbox see it; relative to the workspace, or absolute
	Text string
}

// Options are what a cycle works with.
type Options struct {
	Store   *store.Store
	Manager *sandbox.Manager
	// Open starts a model; nil is [model.Open].
	Open func(ctx context.Context, c model.Config) (model.Client, error)
	// Apply brings back what changed in a sandbox, as the user wants it: through a review, all of it or what was chosen.
	// Its error says why not all that the user wants was brought back; the sandbox is then kept. Nil brings nothing back.
	Apply func(ctx context.Context, sandbox string) error
	// When is the policy that Apply follows: never, ask or on-success.
	When When
	// Keep leaves the sandbox in any case.
	Keep bool
	// Progress is called with what happens, on one goroutine; it may be nil.
	Progress func(Progress)
}

// When says when changes are brought back.
type When string

// The policies.
const (
	Never     When = "never"
	Ask       When = "ask"        // whatever came of it, unless it was interrupted
	OnSuccess When = "on-success" // when the model is done and the check agrees
)

// Progress is one thing that happened. All texts but State are the model's, or the sandbox's: escape them.
type Progress struct {
	State   string // a state was gone to
	Sandbox string // with the first one: the name that the sandbox has, or gets
	Record  string // with the first one: the id of the record
	Said    string // the model said something
	// Shortened is how many bytes were taken out of the conversation, which became too long for the model.
	Shortened int
	Tool      *ToolProgress
	Check     *Check // a command of the user's was run: the check, or with Setup the one before it all
	Setup     bool
}

// ToolProgress is a tool call that has ended.
type ToolProgress struct {
	N     int // from 1
	Name  string
	About string // what it was about: a path, a command, a pattern
	Error string // why it could not be done; empty when it was
	Took  time.Duration
	// Of a command: how it ended.
	Ended string
}

// CheckID refuses what cannot be the id of a cycle: it is part of the name of a directory and of a sandbox.
func CheckID(id string) error {
	if id == "" || len(id) > 40 ||
		strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") != "" ||
		strings.Trim(id, ".") == "" {
		return fmt.Errorf("%.60q cannot be the id of a cycle: up to 40 letters, digits, '_', '.' and '-'", id)
	}
	return nil
}

// cycle is one that runs.
type cycle struct {
	o    Options
	w    Work
	loop *record.Loop
	res  *Result
	past *record.Past // what was done before; nil for a new one
	jobs *tools.Jobs
	name string // of the sandbox
}

// definition is what is recorded of the work.
type definition struct {
	Schema string         `json:"schema"` // hutch.cycle-definition/v1
	Cycle  string         `json:"cycle"`  // the id
	Spec   string         `json:"spec"`
	Block  *runfile.Cycle `json:"block"`
}

const definitionSchema = "hutch.cycle-definition/v1"

// Run works a specification. The error is for what kept it from being recorded; everything else is in the result, which
// is nil only when there is not even the beginning of a record.
func Run(ctx context.Context, o Options, w Work) (*Result, error) {
	if err := CheckID(w.ID); err != nil {
		return nil, err
	}
	loop, err := record.Begin(o.Store, record.New{
		Kind: store.KindCycle, Name: w.Block.Name, File: w.Block.Box.File, Secrets: w.Block.Secrets(),
		Definition: definition{Schema: definitionSchema, Cycle: w.ID, Spec: w.Spec.Path, Block: w.Block},
	})
	if err != nil {
		return nil, err
	}
	return start(ctx, o, w, loop, nil)
}

// Resume goes on with a cycle whose host died.
func Resume(ctx context.Context, o Options, id string, w Work) (*Result, error) {
	loop, past, err := record.Continue(o.Store, id, w.Block.Secrets())
	if err != nil {
		return nil, err
	}
	return start(ctx, o, w, loop, past)
}

// Recorded reports which work a record is: the id that the user gave, and the short record, which has the run file and
// the name of the block, empty where there was none, and whether the cycle has ended.
func Recorded(s *store.Store, id string) (cycle string, info store.Info, err error) {
	rec, err := s.Load(id)
	if err != nil {
		return "", info, err
	}
	if k := rec.Kind; rec.State != store.StateDamaged && k != store.KindCycle {
		return "", info, fmt.Errorf("%s is the record of a %s and not of a cycle", id, cmp.Or(string(k), "run"))
	}
	past, err := record.Open(s, id)
	if err != nil {
		return "", info, err
	}
	var d struct {
		Cycle string `json:"cycle"`
	}
	if err := json.Unmarshal(past.Definition, &d); err != nil {
		return "", info, fmt.Errorf("the definition of %s: %w", id, err)
	}
	return d.Cycle, past.Info, nil
}

func start(ctx context.Context, o Options, w Work, loop *record.Loop, past *record.Past) (*Result, error) {
	if o.Open == nil {
		o.Open = model.Open
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	c := &cycle{o: o, w: w, loop: loop, past: past, jobs: tools.NewJobs(context.WithoutCancel(ctx)),
		res: newResult(o, w, loop, past)}
	c.jobs.Keep = keptOutputs
	defer loop.Close()
	c.name = "cycle-" + w.ID + "-" + tail(loop.ID())
	if err := c.run(ctx); err != nil {
		return c.res, err // the record does not take anything more; what is there says how far it came
	}
	return c.res, c.end()
}

// keptOutputs is of how many commands the output is kept for the model to read on in.
const keptOutputs = 10

// tail is the part of an id after its last dash.
func tail(id string) string { return id[strings.LastIndexByte(id, '-')+1:] }

// run goes through the states, from the one that a past came to. Its errors are those of the record.
func (c *cycle) run(ctx context.Context) error {
	at, out := "", outcome{}
	if c.past != nil {
		at = c.past.State
		if at == StateSyncBack || at == StateTearDown {
			if err := json.Unmarshal(c.past.StateData, &out); err != nil {
				return fmt.Errorf("what is recorded of state %s: %w", at, err)
			}
		}
	}
	if at == "" || at == StateSetUp {
		var err error
		if out, err = c.setUp(ctx); err != nil {
			return err
		}
		at = StateCoding
		if out.Word == "" {
			if err := c.enter(StateCoding, nil); err != nil {
				return err
			}
		}
	} else {
		c.attach()
		c.o.Progress(Progress{State: at, Sandbox: c.name, Record: c.loop.ID()})
	}
	if at == StateCoding {
		if out.Word == "" {
			var err error
			if out, err = c.code(ctx); err != nil {
				return err
			}
		}
		if err := c.enter(StateSyncBack, out); err != nil {
			return err
		}
		at = StateSyncBack
	}
	c.res.take(out)
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterTime)
	defer cancel()
	c.jobs.Close(after)
	if at == StateSyncBack {
		out.Sync = c.syncBack(ctx, after)
		if err := c.enter(StateTearDown, out.event()); err != nil {
			return err
		}
	}
	c.res.sync(out.Sync)
	c.tearDown(after, out)
	return nil
}

// afterTime bounds what is done after the model has ended, but for what a person is asked.
const afterTime = 10 * time.Minute

// enter records a state, and then reports it.
func (c *cycle) enter(state string, data any) error {
	if err := c.loop.State(state, data); err != nil {
		return err
	}
	c.res.State = state
	p := Progress{State: state}
	if state == StateSetUp {
		p.Sandbox, p.Record = c.name, c.loop.ID()
	}
	c.o.Progress(p)
	return nil
}

// box is the sandbox for its tools.
func (c *cycle) box() *tools.Box {
	return &tools.Box{Manager: c.o.Manager, Name: c.name, Jobs: c.jobs, Parent: c.loop.ID(),
		MaxTimeout: c.w.Block.CommandTime()}
}

// setUp makes the sandbox and prepares it. What goes wrong is an outcome; the error is that of the record.
func (c *cycle) setUp(ctx context.Context) (outcome, error) {
	if c.past != nil && c.past.State == StateSetUp {
		// Nothing of it is worth keeping, and it may be half made.
		if err := c.o.Manager.Remove(ctx, c.name, true); err != nil && !errors.Is(err, store.ErrNoSandbox) {
			return outcome{Word: Failed, Reason: "the sandbox that was begun before cannot be removed: " + err.Error()}, nil
		}
	}
	if err := c.enter(StateSetUp, map[string]string{"sandbox": c.name}); err != nil {
		return outcome{}, err
	}
	info, err := c.o.Manager.Create(ctx, c.w.Block.Box, c.name)
	if err != nil {
		reason := err.Error()
		var fail *result.Failure
		if errors.As(err, &fail) && len(fail.Diagnostics) > 0 { // they tell place and mend
			reason, c.res.Diagnostics = fail.Summary, slices.Clone(fail.Diagnostics)
			if last := &c.res.Diagnostics[len(c.res.Diagnostics)-1]; last.Fix == "" {
				last.Fix = fail.Fix
			}
		}
		return c.ended(ctx, outcome{Word: Failed, Reason: "the sandbox could not be made: " + reason}), nil
	}
	c.res.Sandbox = &Sandbox{ID: info.ID, Name: info.Name, Kept: true}
	c.res.Backend = info.Backend
	if err := errors.Join(c.loop.SetBackend(info.Backend), c.loop.SetSandbox(info.Name)); err != nil {
		return outcome{}, err
	}
	if len(c.w.Block.Setup) == 0 {
		return outcome{}, nil
	}
	check, _, err := c.command(ctx, c.w.Block.Setup)
	c.res.Setup = check
	c.o.Progress(Progress{Check: check, Setup: true})
	switch {
	case err != nil:
		return c.ended(ctx, outcome{Word: Failed, Reason: "the setup command could not be run: " + err.Error()}), nil
	case !check.OK:
		return outcome{Word: SetupFailed,
				Reason: fmt.Sprintf("the setup command failed: %s; hutch logs %s shows what it printed", check.Ended, check.Run)},
			nil
	}
	return outcome{}, nil
}

// attach takes the sandbox of a cycle that is gone on with into the result.
func (c *cycle) attach() {
	if info, err := c.o.Store.FindSandbox(c.name); err == nil {
		c.res.Sandbox = &Sandbox{ID: info.ID, Name: info.Name, Kept: true}
		c.res.Backend = info.Backend
	}
}

// ended is an outcome, or the interrupt that it came from.
func (c *cycle) ended(ctx context.Context, o outcome) outcome {
	if ctx.Err() != nil {
		return outcome{Word: Interrupted, Reason: "it was interrupted"}
	}
	return o
}

// command runs a command of the user's in the sandbox.
func (c *cycle) command(ctx context.Context, argv []string) (*Check, tools.ExecOut, error) {
	began := time.Now()
	out, err := c.box().Run(ctx, tools.RunIn{Argv: argv})
	check := &Check{Run: out.Run, OK: err == nil && out.OK, ExitCode: out.ExitCode, Cause: out.Cause, Ended: out.Ended(),
		Seconds: time.Since(began).Seconds()}
	return check, out, err
}

const (
	maxChanges  = 10000    // in the result
	maxRecorded = 24 << 10 // bytes of changes in an event
)

// syncBack lists what changed, and brings it back where the user wants that. ctx is that of the caller, who may have
// ended it; after goes on.
func (c *cycle) syncBack(ctx, after context.Context) *synced {
	s := &synced{}
	if c.res.Sandbox == nil {
		s.Known, s.Applied = true, true // there was nothing to change
		return s
	}
	changes, gaps, err := c.changes(after)
	if err != nil {
		s.Problem = "cannot list what changed: " + err.Error()
		return s
	}
	s.Known, s.Total, s.Changes = gaps == nil, len(changes), changes
	if gaps != nil {
		s.Problem = "there may be more changes: " + gaps.Error()
	}
	switch {
	case s.Total == 0 && gaps == nil:
		s.Applied = true
	case c.o.Apply == nil || c.o.When == Never || c.o.When == "":
	case c.o.When == OnSuccess && !c.res.OK, ctx.Err() != nil:
	default:
		if err := c.o.Apply(ctx, c.res.Sandbox.ID); err != nil {
			c.res.applyErr, s.Problem = err, err.Error()
		} else {
			s.Applied = gaps == nil
		}
	}
	return s
}

// event is o as it is recorded: an event has room for the first changes only, the result has them all.
func (o outcome) event() outcome {
	if o.Sync == nil {
		return o
	}
	short := *o.Sync
	room := maxRecorded
	for i, x := range short.Changes {
		for _, text := range slices.Concat([]string{x.Path, x.From, x.Conflict}, x.Refused, x.Marks) {
			room -= 2*len(text) + 30 // JSON may make more of it
		}
		if room < 0 {
			short.Changes = short.Changes[:i]
			break
		}
	}
	o.Sync = &short
	return o
}

// changes are what differs from the project.
func (c *cycle) changes(ctx context.Context) (list []review.Item, gaps, err error) {
	r, err := workspace.OpenReview(ctx, c.o.Manager, c.res.Sandbox.ID, sandbox.Shared, review.Options{})
	if err != nil {
		return nil, nil, err
	}
	for _, x := range r.Changes {
		list = append(list, x.Item(nil))
	}
	return list, r.Gaps, r.Close()
}

// tearDown removes the sandbox, unless something in it is still to be reviewed, or the user wants it.
func (c *cycle) tearDown(ctx context.Context, o outcome) {
	b := c.res.Sandbox
	if b == nil {
		return
	}
	if c.o.Keep || o.Sync == nil || !o.Sync.Applied {
		return
	}
	err := c.o.Manager.Remove(ctx, b.ID, true)
	if err != nil && !errors.Is(err, store.ErrNoSandbox) {
		c.res.Reason = strings.TrimPrefix(c.res.Reason+"; the sandbox cannot be removed: "+err.Error(), "; ")
		return
	}
	b.Kept = false
	_ = c.loop.SetSandbox("") // the record of the sandbox says the same
}
