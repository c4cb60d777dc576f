package cycle

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/agent/record"
	"github.com/hutch-run/hutch/host/agent/tools"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
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
	if id == "" || len(id) > 40 || strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") != "" || strings.Trim(id, ".") == "" {
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
	c := &cycle{o: o, w: w, loop: loop, past: past, jobs: tools.NewJobs(context.WithoutCancel(ctx)), res: newResult(o, w, loop, past)}
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
	return &tools.Box{Manager: c.o.Manager, Name: c.name, Jobs: c.jobs, Parent: c.loop.ID(), MaxTimeout: c.w.Block.CommandTime()}
}
