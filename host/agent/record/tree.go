package record

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/termsafe"
)

// TreeSchema identifies the JSON of a [Node] that is the root of a tree.
const TreeSchema = "hutch.tree/v1"

// The types of nodes besides the kinds of loops.
const (
	NodeRun     = "run"     // an execution, or one that repeats it
	NodeState   = "state"   // a state of a loop, over what was done in it
	NodeAttempt = "attempt" // a try of a loop, over the calls that led to it and the run that it was
	NodeModel   = "model"   // a model call, over the tools that were called for it
	NodeTool    = "tool"    // a tool call, over the run that it was
	NodeStep    = "step"    // a step of a run
)

// Node is one thing in the story of a loop or run.
type Node struct {
	Schema   string       `json:"schema,omitempty"` // of the root
	Type     string       `json:"type"`
	ID       string       `json:"id,omitempty"` // of a loop or run
	N        int          `json:"n,omitempty"`  // of an attempt or model call, from 1
	Name     string       `json:"name,omitempty"`
	Outcome  string       `json:"outcome,omitempty"` // in a word or two
	OK       *bool        `json:"ok,omitempty"`      // absent where there is no good or bad, and while it goes on
	Usage    *model.Usage `json:"usage,omitempty"`   // tokens, of all below it
	Started  time.Time    `json:"started,omitzero"`
	Took     *int64       `json:"ms,omitempty"` // absent where nobody knows
	Detail   string       `json:"detail,omitempty"`
	Children []*Node      `json:"children,omitempty"`
}

// Tree reports the story of a loop or run as its chain has it, also while it goes on. It checks nothing: that is what
// [store.Store.Verify] is for. What cannot be read is left out.
func Tree(s *store.Store, id string) (*Node, error) {
	rec, err := s.Load(id)
	if err != nil {
		return nil, err
	}
	events, err := rec.Events()
	if err != nil {
		return nil, err
	}
	parts, err := s.Parts(id)
	if err != nil {
		return nil, err
	}
	t := &teller{store: s, rec: rec, root: runNode(rec.Info), told: map[string]bool{}}
	t.root.Schema = TreeSchema
	if rec.Kind == store.KindRun {
		t.steps(events)
	} else {
		for _, e := range events {
			t.event(e)
		}
		t.leave(rec.Ended)
		t.root.Usage = &t.usage
	}
	for _, p := range parts {
		if !t.told[p.ID] {
			t.root.Children = append(t.root.Children, runNode(p))
		}
	}
	return t.root, nil
}

// Outcome says in a few words what became of a run or loop.
func Outcome(r store.Info) string {
	switch {
	case r.State != store.StateFinished:
		return string(r.State)
	case r.OK:
		return "ok"
	case r.Cause == "exited" && r.ExitCode != nil:
		return fmt.Sprintf("exit %d", *r.ExitCode)
	}
	return strings.ReplaceAll(r.Cause, "_", " ")
}

// runNode is a node of what the short record says.
func runNode(i store.Info) *Node {
	n := &Node{Type: NodeRun, ID: i.ID, Name: i.Name, Outcome: Outcome(i), Started: i.Started}
	if i.Kind != store.KindRun {
		n.Type = string(i.Kind)
	}
	if i.State == store.StateFinished {
		n.OK = &i.OK
	}
	if i.Ended != nil {
		n.took(i.Ended.Sub(i.Started))
	}
	return n
}

func (n *Node) took(d time.Duration) {
	ms := max(d, 0).Milliseconds()
	n.Took = &ms
}

func (n *Node) add(c *Node) { n.Children = append(n.Children, c) }

// teller makes a tree of events.
type teller struct {
	store *store.Store
	rec   *store.Record
	root  *Node
	usage model.Usage
	told  map[string]bool // runs that have a node

	state *Node // the last one; nil before
	call  *Node // the last model call
	since int   // of the children of at, those that no attempt has taken yet
}

// at is where the next node goes.
func (t *teller) at() *Node {
	if t.state != nil {
		return t.state
	}
	return t.root
}

// leave ends the last state.
func (t *teller) leave(when *time.Time) {
	if t.state == nil {
		return
	}
	if when != nil {
		t.state.took(when.Sub(t.state.Started))
	}
	t.state = nil
}

func (t *teller) event(e store.Event) {
	switch e.Type {
	case store.EventState:
		decoded(e, func(d StateData) {
			t.leave(&e.Time)
			t.state, t.call, t.since = &Node{Type: NodeState, Name: d.State, Started: e.Time}, nil, 0
			t.root.add(t.state)
		})
	case store.EventModelCall:
		decoded(e, t.model)
	case store.EventToolCall:
		decoded(e, func(d ToolCallData) { t.tool(e, d) })
	case store.EventAttempt:
		decoded(e, t.attempt)
	case store.EventResume:
		decoded(e, func(d struct{ Host store.Process }) {
			t.at().add(&Node{Type: NodeStep, Name: "resumed", Started: e.Time, Detail: fmt.Sprintf("by process %d", d.Host.PID)})
		})
	}
}

// decoded calls fn with the data of an event, if that can be read.
func decoded[T any](e store.Event, fn func(d T)) {
	var d T
	if json.Unmarshal(e.Data, &d) == nil {
		fn(d)
	}
}

func (t *teller) model(d ModelCallData) {
	n := &Node{Type: NodeModel, N: d.N, Name: d.Model, Outcome: string(d.Stop), Usage: &d.Usage, Started: d.Started}
	n.took(time.Duration(d.Milliseconds) * time.Millisecond)
	if d.Retries > 0 {
		n.Detail = fmt.Sprintf("after %d retries", d.Retries)
	}
	if d.Shortened > 0 {
		n.Detail = join(n.Detail, fmt.Sprintf("the conversation was shortened by %d bytes", d.Shortened))
	}
	if d.Error != nil {
		n.OK, n.Outcome, n.Detail, n.Usage = new(bool), d.Error.Kind, d.Error.Message, nil
	}
	t.usage.Add(d.Usage)
	t.call = n
	t.at().add(n)
}

func (t *teller) tool(e store.Event, d ToolCallData) {
	ok := !d.IsError
	n := &Node{Type: NodeTool, Name: d.Name, Outcome: "ok", OK: &ok, Started: d.Started}
	n.took(time.Duration(d.Milliseconds) * time.Millisecond)
	var f toolFile
	if len(e.Files) == 1 {
		if b, err := t.rec.ReadRef(e.Files[0], maxFile); err == nil && json.Unmarshal(b, &f) == nil {
			n.Detail = Gist(f.Arguments)
		}
	}
	if d.IsError {
		n.Outcome = "error"
		if n.Detail = join(n.Detail, firstLine(f.Result)); n.Detail == "" {
			n.Detail = "its file cannot be read"
		}
	}
	if r := t.run(d.Run); r != nil {
		n.add(r)
	}
	if t.call != nil && t.call.N == d.Call {
		t.call.add(n)
		return
	}
	t.at().add(n)
}

// attempt puts what led to a try below it.
func (t *teller) attempt(d AttemptData) {
	ok := d.OK
	n := &Node{Type: NodeAttempt, N: d.N, Outcome: d.Class, OK: &ok, Detail: d.Detail}
	at := t.at()
	n.Children = append(n.Children, at.Children[t.since:]...)
	at.Children = append(at.Children[:t.since:t.since], n)
	t.since = len(at.Children)
	if r := t.run(d.Run); r != nil {
		n.add(r)
	}
	var used model.Usage
	var took int64
	for _, c := range n.Children {
		if n.Started.IsZero() {
			n.Started = c.Started
		}
		if c.Took != nil {
			took += *c.Took
		}
		if c.Usage != nil {
			used.Add(*c.Usage)
		}
	}
	n.Usage, n.Took = &used, &took
}

// run is the node of a run that an event names; one that hutch removed since is said to be.
func (t *teller) run(id string) *Node {
	if id == "" || t.told[id] {
		return nil
	}
	t.told[id] = true
	rec, err := t.store.Load(id)
	if err != nil {
		return &Node{Type: NodeRun, ID: id, Outcome: "removed"}
	}
	return runNode(rec.Info)
}

// Gist is what the arguments of a tool are about, in a line: what is run, else where, else all of them.
func Gist(arguments string) string {
	var args map[string]json.RawMessage
	if json.Unmarshal([]byte(arguments), &args) != nil {
		return oneLine(arguments)
	}
	for _, name := range []string{"command", "argv", "cmd", "path", "pattern", "file_path", "job"} {
		var one string
		var list []string
		switch raw := args[name]; {
		case raw == nil:
		case json.Unmarshal(raw, &one) == nil:
			return oneLine(one)
		case json.Unmarshal(raw, &list) == nil:
			return oneLine(strings.Join(list, " "))
		}
	}
	var patch string
	switch {
	case len(args) == 0:
		return ""
	case json.Unmarshal(args["patch"], &patch) == nil:
		return fmt.Sprintf("%d lines", strings.Count(patch, "\n")+1)
	}
	return oneLine(arguments)
}

// oneLine bounds a text for a line of a tree.
func oneLine(s string) string { return termsafe.Clip(strings.Join(strings.Fields(s), " "), 200) }

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return oneLine(line)
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ": " + b
}
