package record

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/redact"
	"github.com/hutch-run/hutch/host/store"
)

// maxFile bounds a file below calls/ that is read, in bytes.
const maxFile = 256 << 20

// Past is a loop as recorded so far.
type Past struct {
	Info       store.Info
	Dir        string // absolute
	Definition json.RawMessage
	// State is the last state that was gone to, and StateData what was said with it.
	State     string
	StateData json.RawMessage
	// Request is the conversation: of the last call, with what the model answered. Secrets in it are redacted.
	Request model.Request

	Calls    []PastCall
	Attempts []AttemptData
	// Usage is of all calls together.
	Usage model.Usage
	// Done says that the loop has ended: there is nothing to go on with.
	Done bool
}

// PastCall is one call of the model with the tools that were called for it.
type PastCall struct {
	ModelCallData
	Asked  []model.Message // what the conversation was prolonged by for it
	Answer *model.Answer   // nil when there was an error
	Tools  []PastTool
}

// PastTool is one tool call.
type PastTool struct {
	ToolCallData
	Arguments string // as the model wrote them
	Result    string
}

// Open reads a loop. Every file is checked against the event that points at it. An id that is not one of a loop gives
// an error.
func Open(s *store.Store, id string) (*Past, error) {
	p, _, err := open(s, id)
	return p, err
}

func open(s *store.Store, id string) (*Past, *reader, error) {
	rec, err := s.Load(id)
	if err != nil {
		return nil, nil, err
	}
	if rec.State != store.StateDamaged && rec.Kind == store.KindRun {
		return nil, nil, fmt.Errorf("%s is the record of a run and not of a loop", id)
	}
	p := &Past{Info: rec.Info, Dir: rec.Dir, Done: rec.State == store.StateFinished}
	if p.Definition, err = rec.Definition(); err != nil {
		return nil, nil, err
	}
	events, err := rec.Events()
	if err != nil {
		return nil, nil, err
	}
	r := &reader{rec: rec, past: p}
	for _, e := range events {
		if err := r.event(e); err != nil {
			return nil, nil, fmt.Errorf("event %d of %s: %w", e.Seq, id, err)
		}
	}
	p.Request = model.Request{System: r.talk.system, Messages: r.talk.messages, Tools: r.talk.tools}
	return p, r, nil
}

// Continue goes on with a loop whose host died: see [store.Store.ContinueRun]. The secrets are those of [New].
func Continue(s *store.Store, id string, secrets []string) (*Loop, *Past, error) {
	run, err := s.ContinueRun(id)
	if err != nil {
		return nil, nil, err
	}
	past, r, err := open(s, id)
	if err != nil {
		_ = run.Close()
		return nil, nil, err
	}
	l := &Loop{store: s, run: run, secret: redact.New(secrets...), talk: r.talk, calls: len(past.Calls)}
	if l.calls > 0 {
		l.tools = len(past.Calls[l.calls-1].Tools)
	}
	return l, past, nil
}

// reader follows the events of a loop.
type reader struct {
	rec  *store.Record
	past *Past
	talk conversation
}

func (r *reader) event(e store.Event) error {
	switch e.Type {
	case store.EventModelCall:
		return r.call(e)
	case store.EventToolCall:
		return r.tool(e)
	case store.EventAttempt:
		var a AttemptData
		if err := json.Unmarshal(e.Data, &a); err != nil {
			return err
		}
		r.past.Attempts = append(r.past.Attempts, a)
	case store.EventState:
		var s StateData
		if err := json.Unmarshal(e.Data, &s); err != nil {
			return err
		}
		r.past.State, r.past.StateData = s.State, s.Data
	case store.EventEnd:
		r.past.Done = true
	}
	return nil
}

func (r *reader) call(e store.Event) error {
	var c PastCall
	if err := json.Unmarshal(e.Data, &c.ModelCallData); err != nil {
		return err
	}
	if len(e.Files) != 2 || c.N != len(r.past.Calls)+1 {
		return fmt.Errorf("it is not model call %d with its request and answer", len(r.past.Calls)+1)
	}
	var req requestFile
	if err := r.file(e.Files[0], RequestSchema, &req.Schema, &req); err != nil {
		return err
	}
	before := len(r.talk.messages)
	if !r.talk.read(req) {
		return fmt.Errorf("%s keeps %d messages of %d", e.Files[0].Path, req.Keep, len(r.talk.messages))
	}
	c.Asked = req.Messages
	if c.Shortened > 0 && before <= len(r.talk.messages) { // what was shortened was written once more
		c.Asked = r.talk.messages[before:]
	}
	var ans answerFile
	if err := r.file(e.Files[1], AnswerSchema, &ans.Schema, &ans); err != nil {
		return err
	}
	if c.Answer = ans.Answer; c.Answer != nil {
		r.talk.answer(assistant(*c.Answer))
	}
	r.past.Usage.Add(c.Usage)
	r.past.Calls = append(r.past.Calls, c)
	return nil
}

func (r *reader) tool(e store.Event) error {
	var t PastTool
	if err := json.Unmarshal(e.Data, &t.ToolCallData); err != nil {
		return err
	}
	calls := r.past.Calls
	if len(e.Files) != 1 || len(calls) == 0 || t.Call != len(calls) {
		return fmt.Errorf("it is not a tool call of model call %d", len(calls))
	}
	var f toolFile
	if err := r.file(e.Files[0], ToolSchema, &f.Schema, &f); err != nil {
		return err
	}
	t.ID, t.Name, t.Arguments, t.Result = f.ID, f.Name, f.Arguments, f.Result
	last := &calls[len(calls)-1]
	last.Tools = append(last.Tools, t)
	return nil
}

// file reads one file that an event points at.
func (r *reader) file(ref store.FileRef, want string, schema *string, v any) error {
	b, err := r.rec.ReadRef(ref, maxFile)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", ref.Path, err)
	}
	if *schema != want {
		return fmt.Errorf("%s: schema %.40q is not %s", ref.Path, *schema, want)
	}
	return nil
}

// WriteTranscript writes what was said in a loop, in order, as it was said: the text of others is not escaped.
func (p *Past) WriteTranscript(w io.Writer) error {
	t := transcript{w: w}
	for _, c := range p.Calls {
		for _, m := range c.Asked {
			if m.Role == model.RoleUser {
				t.section("user", m.Text)
			}
		}
		head := fmt.Sprintf("model %d", c.N)
		switch {
		case c.Error != nil:
			t.section(head, "no answer ("+c.Error.Kind+"): "+c.Error.Message)
		case c.Answer != nil:
			t.section(head, c.Answer.Text)
		}
		for _, tool := range c.Tools {
			t.section("tool "+tool.Name, tool.Arguments)
			what := "result"
			if tool.IsError {
				what = "error"
			}
			t.section(what, tool.Result)
		}
	}
	return t.err
}

type transcript struct {
	w   io.Writer
	n   int
	err error
}

// section writes a headed text, with an empty line before all but the first.
func (t *transcript) section(head, text string) {
	if t.err != nil || text == "" {
		return
	}
	before := ""
	if t.n++; t.n > 1 {
		before = "\n"
	}
	_, t.err = fmt.Fprintf(t.w, "%s--- %s ---\n%s\n", before, head, strings.TrimSuffix(text, "\n"))
}
