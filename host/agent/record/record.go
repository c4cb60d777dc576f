// Package record keeps what a loop of a model did: what the model was asked and answered, what tools were asked and
// answered, what was run, and through which states the loop went.
//
// A loop is recorded in the store as a run is: a directory with a definition, an event chain and a result. What was
// said lies in files below calls/, which events point at by path, size and sha256:
//
//	calls/0001.request.json   what was sent, as the messages that were added since the call before
//	calls/0001.answer.json    what the model said to that, or the error
//	calls/0001.tool-01.json   the first tool that the answer asked for: its arguments and result
//
// What the loop ran are runs of their own, which name the loop as their parent and which the loop's events name, with
// the heads of their chains. Secrets are taken out before anything is written. A killed process loses at most the step
// that it was at; [Continue] goes on after the last one.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/redact"
	"github.com/hutch-run/hutch/host/store"
)

// New is what is known when a loop begins.
type New struct {
	Kind       store.Kind // [store.KindGenerate] or [store.KindCycle]
	Name       string     // the label of the block
	File       string     // the run file; empty without one
	Definition any        // the block as evaluated; stored as JSON
	Secrets    []string   // what must not be written: the model's key, sensitive variables
}

// Loop is a loop that this process is recording. Its methods are safe for concurrent use.
type Loop struct {
	store  *store.Store
	run    *store.Run
	secret *redact.Redactor

	mu    sync.Mutex
	talk  conversation
	calls int // model calls so far
	tools int // tool calls of the last one so far
}

// Begin makes the record of a new loop.
func Begin(s *store.Store, n New) (*Loop, error) {
	if n.Kind != store.KindGenerate && n.Kind != store.KindCycle {
		return nil, fmt.Errorf("a loop of kind %.40q cannot be recorded: it is %s or %s", n.Kind, store.KindGenerate, store.KindCycle)
	}
	l := &Loop{store: s, secret: redact.New(n.Secrets...)}
	run, err := s.CreateRun(store.NewRun{
		Kind: n.Kind, Name: n.Name, File: n.File, Definition: l.secret.Value(n.Definition),
	})
	if err != nil {
		return nil, err
	}
	l.run = run
	return l, nil
}

// ID is the loop's id: what the runs of the loop have as their parent.
func (l *Loop) ID() string { return l.run.ID() }

// Dir is the directory of the record, absolute.
func (l *Loop) Dir() string { return l.run.Dir() }

// SetBackend notes which backend was chosen.
func (l *Loop) SetBackend(name string) error { return l.run.SetBackend(name) }

// SetSandbox notes the name of the persistent sandbox that the loop works in; empty when it has none any more.
func (l *Loop) SetSandbox(name string) error { return l.run.SetSandbox(name) }

// ModelCall is one request to a model and what came of it.
type ModelCall struct {
	Request model.Request
	// Shortened is how many bytes were taken out of what was said before, to make the request shorter.
	Shortened int
	Answer    model.Answer // when Err is nil
	Err       error        // why there is no answer
	Started   time.Time
	Took      time.Duration
}

// ModelCall records a call of the model after it ended and returns its number, from 1. [Loop.Client] does it for every
// call of a client.
func (l *Loop) ModelCall(c ModelCall) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.calls + 1
	talk := l.talk
	req, err := l.write(fmt.Sprintf("%04d.request.json", n), talk.ask(l.clean(c.Request)))
	if err != nil {
		return 0, err
	}
	file := answerFile{Schema: AnswerSchema}
	said := ModelCallData{N: n, Shortened: c.Shortened, Started: c.Started.UTC(), Milliseconds: c.Took.Milliseconds()}
	if c.Err != nil {
		said.Error, file.Error = l.failure(c.Err), l.failure(c.Err)
	} else {
		answer := c.Answer
		file.Answer = &answer
		said.Stop, said.Usage, said.Model, said.RequestID, said.Retries, said.Tools = answer.Stop, answer.Usage, shorten(answer.Model), shorten(answer.RequestID), answer.Retries, len(answer.Calls)
	}
	ans, err := l.write(fmt.Sprintf("%04d.answer.json", n), file)
	if err != nil {
		return 0, err
	}
	if err := l.event(store.EventModelCall, said, req, ans); err != nil {
		return 0, err
	}
	if c.Err == nil {
		talk.answer(l.clean(model.Request{Messages: []model.Message{assistant(c.Answer)}}).Messages[0])
	}
	l.talk, l.calls, l.tools = talk, n, 0
	return n, nil
}

// ToolCall is one tool that was called as a model asked, and what it answered.
type ToolCall struct {
	Call    model.ToolCall
	Result  model.ToolResult
	Run     string // the run that the call was, for a command; empty for none
	Started time.Time
	Took    time.Duration
}

// ToolCall records a tool call of the last answer after it ended.
func (l *Loop) ToolCall(c ToolCall) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == 0 {
		return errors.New("a tool was called before the model was asked")
	}
	n := l.tools + 1
	file := toolFile{Schema: ToolSchema, ID: c.Call.ID, Name: c.Call.Name, Arguments: c.Call.Arguments, Result: c.Result.Text, IsError: c.Result.IsError}
	ref, err := l.write(fmt.Sprintf("%04d.tool-%02d.json", l.calls, n), file)
	if err != nil {
		return err
	}
	said := ToolCallData{Call: l.calls, N: n, ID: shorten(c.Call.ID), Name: shorten(c.Call.Name), IsError: c.Result.IsError, Started: c.Started.UTC(), Milliseconds: c.Took.Milliseconds()}
	if said.Run, said.Head, err = l.headOf(c.Run); err != nil {
		return err
	}
	if err := l.event(store.EventToolCall, said, ref); err != nil {
		return err
	}
	l.tools = n
	return nil
}

// Attempt is one try at what the loop is for.
type Attempt struct {
	N     int    // from 1
	Run   string // the id of the run that it was; empty when there was nothing to run
	OK    bool
	Class string // what became of it, in one word: ok, syntax, timeout, …
	// Detail says more in a line; it may be empty.
	Detail string
}

// Attempt records a try after it ended.
func (l *Loop) Attempt(a Attempt) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	said := AttemptData{N: a.N, OK: a.OK, Class: a.Class, Detail: shorten(a.Detail), Call: l.calls}
	var err error
	if said.Run, said.Head, err = l.headOf(a.Run); err != nil {
		return err
	}
	return l.event(store.EventAttempt, said)
}

// State records that the loop goes on to another state, with what a process that continues it has to know: data is
// marshalled to JSON, may be nil, and must stay below [store.MaxEventData].
func (l *Loop) State(name string, data any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	said := StateData{State: name}
	if data != nil {
		b, err := json.Marshal(data)
		if err != nil {
			return fmt.Errorf("state %s: %w", name, err)
		}
		said.Data = b
	}
	return l.event(store.EventState, said)
}

// End is how a loop ended.
type End struct {
	OK    bool
	Cause string // in one word, such as done, attempts, budget, cancelled, failed
	// Result is what result.json holds, given the head of the chain, which it must have as its member `events`.
	Result func(events store.ChainRef) any
}

// End writes the result and closes the record. The loop takes nothing afterwards.
func (l *Loop) End(e End) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := store.End{OK: e.OK, Cause: e.Cause}
	return l.run.Finish(end, func(ref store.ChainRef) (any, error) { return l.secret.Value(e.Result(ref)), nil })
}

// Close lets go of the record without a result: the loop shows as interrupted once this process is gone, and can be
// continued. After [Loop.End] it does nothing.
func (l *Loop) Close() error { return l.run.Close() }

func (l *Loop) event(typ store.EventType, data any, files ...store.FileRef) error {
	return l.run.Event(typ, l.secret.Value(data), files...)
}

// write puts a value without its secrets into a file below calls/.
func (l *Loop) write(name string, v any) (store.FileRef, error) {
	b, err := encode(v)
	if err != nil {
		return store.FileRef{}, fmt.Errorf("record %s: %w", name, err)
	}
	return l.run.WriteCall(name, l.secret.JSON(b))
}

// headOf names a run and the head of its chain, which its result tells.
func (l *Loop) headOf(run string) (id, head string, err error) {
	if run == "" {
		return "", "", nil
	}
	rec, err := l.store.Load(run)
	if err != nil {
		return "", "", fmt.Errorf("record run %.60q of the loop: %w", run, err)
	}
	raw, err := rec.Result()
	if err != nil {
		return run, "", nil // it was interrupted, and has no head that would be its last
	}
	var res struct {
		Events store.ChainRef `json:"events"`
	}
	if err := json.Unmarshal(raw, &res); err != nil {
		return "", "", fmt.Errorf("record run %s of the loop: %w", run, err)
	}
	return run, res.Events.Head, nil
}
