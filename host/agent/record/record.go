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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/redact"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/termsafe"
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
		return nil, fmt.Errorf("a loop of kind %.40q cannot be recorded: it is %s or %s", n.Kind, store.KindGenerate,
			store.KindCycle)
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
		said.Stop, said.Usage, said.Model, said.RequestID, said.Retries, said.Tools = answer.Stop, answer.Usage,
			shorten(answer.Model), shorten(answer.RequestID), answer.Retries, len(answer.Calls)
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
	file := toolFile{Schema: ToolSchema, ID: c.Call.ID, Name: c.Call.Name, Arguments: c.Call.Arguments,
		Result: c.Result.Text, IsError: c.Result.IsError}
	ref, err := l.write(fmt.Sprintf("%04d.tool-%02d.json", l.calls, n), file)
	if err != nil {
		return err
	}
	said := ToolCallData{Call: l.calls, N: n, ID: shorten(c.Call.ID), Name: shorten(c.Call.Name),
		IsError: c.Result.IsError, Started: c.Started.UTC(), Milliseconds: c.Took.Milliseconds()}
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

// End writes the result and closes the record. The loop takes nothing afterwards. See [store.Run.Finish]; Cause is one
// word, such as done, attempts, budget, cancelled, failed.
func (l *Loop) End(e store.End) (store.ChainRef, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.Result = l.secret.Value(e.Result)
	return l.run.Finish(e)
}

// Close lets go of the record without a result: the loop shows as interrupted once this process is gone, and can be
// continued. After [Loop.End] it does nothing.
func (l *Loop) Close() error { return l.run.Close() }

func (l *Loop) event(typ store.EventType, data any, files ...store.FileRef) error {
	return l.run.Event(typ, l.secret.Value(data), files...)
}

// write puts a value without its secrets into a file below calls/.
func (l *Loop) write(name string, v any) (store.FileRef, error) {
	b, err := store.MarshalIndent(v)
	if err != nil {
		return store.FileRef{}, fmt.Errorf("record %s: %w", name, err)
	}
	return l.run.WriteCall(name, l.secret.JSON(b))
}

// headOf names a run and the head of its chain, which its result has.
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

// Client is a client of which every call is recorded, those that fail too. An error of the record is returned with the
// answer: a loop whose record cannot be written must end.
type Client struct {
	model.Client
	Loop      *Loop
	Shortened int   // bytes that were taken out of the conversation before the next call
	Err       error // of the record, of the last call
}

// Answer implements [model.Client].
func (c *Client) Answer(ctx context.Context, req model.Request, delta func(string)) (model.Answer, error) {
	began := time.Now()
	answer, err := c.Client.Answer(ctx, req, delta)
	_, c.Err = c.Loop.ModelCall(ModelCall{Request: req, Shortened: c.Shortened, Answer: answer, Err: err, Started: began,
		Took: time.Since(began)})
	return answer, errors.Join(err, c.Err)
}

// conversation follows what is said, without secrets: as it is written and as it can be read again.
type conversation struct {
	system   string
	tools    []model.Tool
	messages []model.Message
	begun    bool // there was a request
}

// ask goes on to a request and returns what of it is new.
func (c *conversation) ask(r model.Request) requestFile {
	f := requestFile{Schema: RequestSchema, Messages: []model.Message{}}
	for f.Keep < len(c.messages) && f.Keep < len(r.Messages) && reflect.DeepEqual(c.messages[f.Keep], r.Messages[f.Keep]) {
		f.Keep++
	}
	f.Messages = append(f.Messages, r.Messages[f.Keep:]...)
	if !c.begun || r.System != c.system {
		f.System = &r.System
	}
	if tools := append([]model.Tool{}, r.Tools...); !c.begun || !reflect.DeepEqual(tools, c.tools) {
		f.Tools = &tools
		c.tools = tools
	}
	c.system, c.messages, c.begun = r.System, r.Messages, true
	return f
}

// answer adds what the model said.
func (c *conversation) answer(m model.Message) {
	c.messages = append(c.messages[:len(c.messages):len(c.messages)], m)
}

// read goes on to a request as it was written.
func (c *conversation) read(f requestFile) bool {
	if f.Keep < 0 || f.Keep > len(c.messages) {
		return false
	}
	c.messages = append(c.messages[:f.Keep:f.Keep], f.Messages...)
	if f.System != nil {
		c.system = *f.System
	}
	if f.Tools != nil {
		c.tools = *f.Tools
	}
	c.begun = true
	return true
}

// assistant is the message that an answer is in the conversation.
func assistant(a model.Answer) model.Message {
	return model.Message{Role: model.RoleAssistant, Text: a.Text, Calls: a.Calls}
}

// clean is a request without its secrets, and with nothing in it that JSON would not give back.
func (l *Loop) clean(r model.Request) model.Request {
	out := model.Request{System: l.text(r.System)}
	for _, m := range r.Messages {
		m.Text = l.text(m.Text)
		m.Calls = mapped(m.Calls, func(c model.ToolCall) model.ToolCall {
			return model.ToolCall{ID: l.text(c.ID), Name: l.text(c.Name), Arguments: l.text(c.Arguments)}
		})
		m.Results = mapped(m.Results, func(t model.ToolResult) model.ToolResult {
			return model.ToolResult{ID: l.text(t.ID), Text: l.text(t.Text), IsError: t.IsError}
		})
		out.Messages = append(out.Messages, m)
	}
	out.Tools = mapped(r.Tools, func(t model.Tool) model.Tool {
		return model.Tool{Name: t.Name, Description: l.text(t.Description), Schema: l.secret.JSON(t.Schema)}
	})
	return out
}

// mapped is a list of what f makes of each one; nil of an empty one.
func mapped[T any](list []T, f func(T) T) (out []T) {
	for _, x := range list {
		out = append(out, f(x))
	}
	return out
}

// text is s without secrets and as JSON gives it back.
func (l *Loop) text(s string) string { return l.secret.Text(strings.ToValidUTF8(s, "\ufffd")) }

// The schemas of the files below calls/.
const (
	RequestSchema = "hutch.request/v1"
	AnswerSchema  = "hutch.answer/v1"
	ToolSchema    = "hutch.tool/v1"
)

// requestFile is what was sent to a model. A loop sends its whole conversation with every request; what is written is
// what it was prolonged by: the messages so far are those of the request before and the answer to it, of which Keep are
// kept.
type requestFile struct {
	Schema   string          `json:"schema"`
	Keep     int             `json:"keep"`             // of the messages so far
	Messages []model.Message `json:"messages"`         // after those
	System   *string         `json:"system,omitempty"` // absent: as in the request before
	Tools    *[]model.Tool   `json:"tools,omitempty"`  // absent: as in the request before
}

// answerFile is what a model said, or why it said nothing.
type answerFile struct {
	Schema string        `json:"schema"`
	Answer *model.Answer `json:"answer,omitempty"`
	Error  *Failure      `json:"error,omitempty"`
}

// toolFile is one tool call with its result.
type toolFile struct {
	Schema    string `json:"schema"`
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // as the model wrote them
	Result    string `json:"result"`
	IsError   bool   `json:"is_error"`
}

// Failure is why a model did not answer.
type Failure struct {
	Kind    string `json:"kind"`             // of a [model.Error]; "budget" for a [model.BudgetError], else "other"
	Status  int    `json:"status,omitempty"` // of HTTP; 0 when there was none
	Message string `json:"message"`
}

// The data of the events.
type (
	// ModelCallData is the data of [store.EventModelCall], whose files are the request and the answer.
	ModelCallData struct {
		N            int         `json:"n"`
		Started      time.Time   `json:"started"`
		Milliseconds int64       `json:"ms"`
		Stop         model.Stop  `json:"stop,omitempty"`
		Usage        model.Usage `json:"usage"`
		Tools        int         `json:"tools,omitempty"` // calls that the answer asks for
		Model        string      `json:"model,omitempty"`
		RequestID    string      `json:"request_id,omitempty"`
		Retries      int         `json:"retries,omitempty"`
		Shortened    int         `json:"shortened,omitempty"` // bytes that were taken out of the conversation for this request
		Error        *Failure    `json:"error,omitempty"`
	}
	// ToolCallData is the data of [store.EventToolCall], whose file has arguments and result.
	ToolCallData struct {
		Call         int       `json:"call"` // the model call that asked for it
		N            int       `json:"n"`    // among the tools of that, from 1
		ID           string    `json:"id"`
		Name         string    `json:"name"`
		IsError      bool      `json:"is_error,omitempty"`
		Started      time.Time `json:"started"`
		Milliseconds int64     `json:"ms"`
		Run          string    `json:"run,omitempty"`
		Head         string    `json:"head,omitempty"` // of that run's chain
	}
	// AttemptData is the data of [store.EventAttempt].
	AttemptData struct {
		N      int    `json:"n"`
		Run    string `json:"run,omitempty"`
		Head   string `json:"head,omitempty"` // of that run's chain
		OK     bool   `json:"ok"`
		Class  string `json:"class"`
		Detail string `json:"detail,omitempty"`
		Call   int    `json:"call,omitempty"` // the model call whose answer it tried
	}
	// StateData is the data of [store.EventState].
	StateData struct {
		State string          `json:"state"`
		Data  json.RawMessage `json:"data,omitempty"`
	}
)

// maxLine bounds, in bytes, a text of somebody else's in an event. Files have it whole.
const maxLine = 1 << 10

func shorten(s string) string { return termsafe.Clip(s, maxLine) }

func (l *Loop) failure(err error) *Failure {
	f := &Failure{Kind: "other", Message: shorten(l.secret.Text(err.Error()))}
	var e *model.Error
	var b *model.BudgetError
	switch {
	case errors.As(err, &e):
		f.Kind, f.Status = string(e.Kind), e.Status
	case errors.As(err, &b):
		f.Kind = "budget"
	}
	return f
}
