package record

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

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
	t := &treeBuilder{store: s, rec: rec, root: runNode(rec.Info), listed: map[string]bool{}}
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
		if !t.listed[p.ID] {
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

// treeBuilder builds a tree from events.
type treeBuilder struct {
	store  *store.Store
	rec    *store.Record
	root   *Node
	usage  model.Usage
	listed map[string]bool // runs that have a node

	state *Node // the last one; nil before
	call  *Node // the last model call
	since int   // of the children of at, those that no attempt has taken yet
}

// at is where the next node goes.
func (t *treeBuilder) at() *Node {
	if t.state != nil {
		return t.state
	}
	return t.root
}

// leave ends the last state.
func (t *treeBuilder) leave(when *time.Time) {
	if t.state == nil {
		return
	}
	if when != nil {
		t.state.took(when.Sub(t.state.Started))
	}
	t.state = nil
}

func (t *treeBuilder) event(e store.Event) {
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

func (t *treeBuilder) model(d ModelCallData) {
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

func (t *treeBuilder) tool(e store.Event, d ToolCallData) {
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
func (t *treeBuilder) attempt(d AttemptData) {
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
func (t *treeBuilder) run(id string) *Node {
	if id == "" || t.listed[id] {
		return nil
	}
	t.listed[id] = true
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

// stepData is what the events of a run say that is shown of them.
type stepData struct {
	Candidates []struct {
		Name   string
		Chosen bool
	}
	Files     int
	Language  string
	Installer string
	Cached    bool
	Cause     string
	ExitCode  *int `json:"exit_code"`
	Argv      []string
	Counts    map[string]int
	Kept      bool
}

// steps makes nodes of the events of a run. Each step took until the next one began.
func (t *treeBuilder) steps(events []store.Event) {
	var last *Node
	for _, e := range events {
		if e.Type == store.EventNetworkDecided || e.Type == store.EventNetworkOpened {
			continue // the command goes on
		}
		if last != nil {
			last.took(e.Time.Sub(last.Started))
			last = nil
		}
		var d stepData
		if len(e.Data) > 0 && json.Unmarshal(e.Data, &d) != nil {
			continue
		}
		n := &Node{Type: NodeStep, Started: e.Time}
		if n.Name, n.Detail = d.step(e.Type); n.Name != "" {
			t.root.add(n)
			last = n
		}
	}
	if last != nil && t.rec.Ended != nil {
		last.took(t.rec.Ended.Sub(last.Started))
	}
}

// step names a step and says what is worth knowing of it; "" for what is no step.
func (d *stepData) step(of store.EventType) (name, detail string) {
	switch of {
	case store.EventPlan:
		for _, c := range d.Candidates {
			if c.Chosen {
				detail = c.Name
			}
		}
		return "plan", detail
	case store.EventCode:
		return "code", english.Plural(d.Files, "file", "")
	case store.EventDependencies:
		if d.Cached {
			return "dependencies", join(d.Language, "from the cache")
		}
		return "dependencies", join(d.Language, d.Installer)
	case store.EventSandboxCreate:
		return "create", ""
	case store.EventSandboxReady:
		return "ready", ""
	case store.EventExecStart:
		return "exec", oneLine(strings.Join(d.Argv, " "))
	case store.EventExecEnd:
		if d.ExitCode != nil {
			return "ended", fmt.Sprintf("%s %d", d.Cause, *d.ExitCode)
		}
		return "ended", d.Cause
	case store.EventChanges:
		var all []string
		for _, kind := range []string{"added", "modified", "deleted", "mode", "type"} {
			if n := d.Counts[kind]; n > 0 {
				all = append(all, fmt.Sprintf("%d %s", n, kind))
			}
		}
		return "changes", strings.Join(all, ", ")
	case store.EventOutputs:
		return "outputs", english.Plural(d.Files, "file", "")
	case store.EventSandboxDestroy:
		if d.Kept {
			return "keep", ""
		}
		return "destroy", ""
	}
	return "", ""
}

// Style says how a tree is written.
type Style struct {
	Color bool
	ASCII bool // for terminals that have no lines to draw with
	Width int  // of the terminal in columns; lines are cut there. 0 cuts nothing
}

// branches are what the lines of a tree are made of.
type branches struct{ tee, corner, bar, gap, more string }

var (
	drawn = branches{"├─ ", "└─ ", "│  ", "   ", "…"}
	typed = branches{"|- ", "`- ", "|  ", "   ", "..."}
)

// row is a line of a tree: its label, outcome, tokens, time and id, each as wide as the widest, and what else there is.
type row struct {
	cells  [5]string
	color  string // of the outcome
	detail string
}

// WriteText draws the tree for a person. Text of others is escaped.
func (n *Node) WriteText(w io.Writer, s Style) error {
	b := drawn
	if s.ASCII {
		b = typed
	}
	var rows []row
	var walk func(n *Node, first, rest string)
	walk = func(n *Node, first, rest string) {
		rows = append(rows, n.row(first))
		for i, c := range n.Children {
			if i == len(n.Children)-1 {
				walk(c, rest+b.corner, rest+b.gap)
			} else {
				walk(c, rest+b.tee, rest+b.bar)
			}
		}
	}
	walk(n, "", "")
	var wide [5]int
	for _, r := range rows {
		for i, cell := range r.cells {
			wide[i] = max(wide[i], termsafe.Columns(cell))
		}
	}
	var text strings.Builder
	for _, r := range rows {
		line, used := "", 0
		for i, cell := range r.cells {
			if wide[i] == 0 {
				continue
			}
			fill := strings.Repeat(" ", wide[i]-termsafe.Columns(cell))
			if cell += fill; i == 2 || i == 3 { // numbers
				cell = fill + strings.TrimSuffix(cell, fill)
			}
			line += s.paint([5]string{1: r.color, 4: termsafe.Faint}[i], cell) + "  "
			used += wide[i] + 2
		}
		if s.Width > 0 {
			r.detail = cut(r.detail, s.Width-used, b.more)
		}
		text.WriteString(strings.TrimRight(line+r.detail, " ") + "\n")
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// row is the line of one node.
func (n *Node) row(branch string) row {
	esc := termsafe.Line
	label, tokens, took, detail := esc(n.Name), "", "", esc(n.Detail)
	switch n.Type {
	case NodeAttempt, NodeModel:
		label = fmt.Sprintf("%s %d", n.Type, n.N)
		detail = join(esc(n.Name), detail)
	case NodeState, NodeStep, NodeTool:
	default:
		label = strings.TrimSpace(n.Type + " " + label)
	}
	if u := n.Usage; u != nil && u.InputTokens+u.OutputTokens > 0 {
		tokens = fmt.Sprintf("%s in %s out", count(u.InputTokens), count(u.OutputTokens))
	}
	if n.Took != nil {
		took = span(time.Duration(*n.Took) * time.Millisecond)
	}
	r := row{cells: [5]string{branch + label, esc(n.Outcome), tokens, took, esc(n.ID)}, detail: detail}
	if n.OK != nil {
		r.color = map[bool]string{true: termsafe.Green, false: termsafe.Red}[*n.OK]
	}
	return r
}

func (s Style) paint(color, text string) string { return termsafe.Paint(s.Color, color, text) }

// cut shortens s to room columns.
func cut(s string, room int, more string) string {
	if termsafe.Columns(s) <= room {
		return s
	}
	room -= termsafe.Columns(more)
	if room <= 0 {
		return ""
	}
	used := 0
	for i, r := range s {
		w := termsafe.Columns(string(r))
		if used += w; used > room {
			return s[:i] + more
		}
	}
	return s
}

// count is a number of tokens with three digits or so: 812, 1.2k, 34k, 1.1M.
func count(n int64) string {
	unit := ""
	switch {
	case n >= 1_000_000:
		n, unit = n/100_000, "M"
	case n >= 1_000:
		n, unit = n/100, "k"
	default:
		return fmt.Sprint(n)
	}
	if n >= 100 {
		return fmt.Sprintf("%d%s", n/10, unit)
	}
	return fmt.Sprintf("%d.%d%s", n/10, n%10, unit)
}

// span is a duration with as much of it as matters: 7ms, 1.2s, 34s, 2m05s, 1h02m.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}
