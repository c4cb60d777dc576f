package cycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/agent/record"
	"github.com/hutch-run/hutch/host/agent/tools"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/termsafe"
)

// coding is the conversation with the model.
type coding struct {
	*cycle
	box   *tools.Box
	set   []tools.Tool
	req   model.Request
	seen  map[string]bool // ids of calls
	room  room
	words int // answers in a row that called nothing, and whose check failed
	spare int // answers in a row of which no call could be made, because there are no calls left
}

// spareTurns is how many answers a model gets to finish once its tool calls are used up.
const spareTurns = 3

// code lets the model work. What goes wrong is an outcome; the error is that of the record.
func (c *cycle) code(ctx context.Context) (outcome, error) {
	w := &coding{cycle: c, box: c.box(), set: tools.Set(), seen: map[string]bool{}}
	w.req = model.Request{System: c.system(), Messages: []model.Message{c.task()}, Tools: offered(w.set)}
	cfg := c.w.Block.Model.Config
	w.room = room{window: cfg.ContextWindow, answer: cfg.WithDefaults().MaxTokens}
	client, err := c.o.Open(ctx, cfg)
	if err != nil {
		return c.failed(ctx, err), nil
	}
	defer client.Close()
	recorded := &record.Client{Client: client, Loop: c.loop}
	meter := model.Metered(recorded, cfg.Budget)
	meter.Resume(c.spent())
	return w.converse(ctx, meter, recorded)
}

// spent is what was used before.
func (c *cycle) spent() (s model.Spent, took time.Duration) {
	if c.past == nil {
		return s, 0
	}
	for _, call := range c.past.Calls {
		took += time.Duration(call.Milliseconds) * time.Millisecond
		for _, t := range call.Tools {
			took += time.Duration(t.Milliseconds) * time.Millisecond
		}
	}
	return model.Spent{Usage: c.past.Usage, Turns: len(c.past.Calls)}, took
}

// converse asks the model and does what it asks for, until an outcome.
func (w *coding) converse(ctx context.Context, client model.Client, recorded *record.Client) (outcome, error) {
	if w.past != nil && len(w.past.Calls) > 0 {
		if done, err := w.recall(ctx); done != nil || err != nil {
			return *orEmpty(done), err
		}
	}
	for {
		if recorded.Shortened = w.fit(); recorded.Shortened > 0 {
			w.res.Shortened++
			w.o.Progress(Progress{Shortened: recorded.Shortened})
		}
		answer, err := client.Answer(ctx, w.req, nil)
		switch {
		case recorded.Err != nil:
			return outcome{}, recorded.Err
		case err != nil && w.tooLong(err):
			continue
		case err != nil:
			return w.failed(ctx, err), nil
		}
		w.room.measure(w.req, answer.Usage)
		w.res.Turns++
		w.res.Usage.Add(answer.Usage)
		if done, err := w.answered(ctx, answer, nil, false); done != nil || err != nil {
			return *orEmpty(done), err
		}
	}
}

func orEmpty(o *outcome) *outcome {
	if o == nil {
		return &outcome{}
	}
	return o
}

// failed is the outcome of an error of the model.
func (c *cycle) failed(ctx context.Context, err error) outcome {
	var budget *model.BudgetError
	var e *model.Error
	switch {
	case ctx.Err() != nil:
		return outcome{Word: Interrupted, Reason: "it was interrupted"}
	case errors.As(err, &budget):
		return outcome{Word: OverBudget, Reason: budget.Error(), Budget: &Bound{budget.What, budget.Used, budget.Limit}}
	case errors.As(err, &e) && e.Kind == model.KindRefused:
		return outcome{Word: Refused, Reason: e.Error()}
	case errors.As(err, &e) && e.Kind == model.KindTooLong:
		return outcome{Word: ModelFailed, Reason: e.Error() +
			"; nothing is left in the conversation that could be taken out: take a model with a larger context window, a " +
			"lower max_tokens, or a shorter specification"}
	}
	return outcome{Word: ModelFailed, Reason: err.Error()}
}

// recall takes up the conversation where the record ends.
func (w *coding) recall(ctx context.Context) (*outcome, error) {
	p := w.past
	last := p.Calls[len(p.Calls)-1]
	messages := p.Request.Messages
	if last.Answer != nil {
		messages = messages[:len(messages)-1] // the answer, which is taken in again below
	}
	for _, m := range messages {
		for _, call := range m.Calls {
			w.seen[call.ID] = true
		}
	}
	w.req.Messages = append([]model.Message{}, messages...)
	if last.Answer == nil {
		return nil, nil
	}
	return w.answered(ctx, *last.Answer, last.Tools, true)
}

// answered takes in an answer of the model: what it says, and the tools that it asks for, of which some may have been
// called before the host died: before are their results, where the answer is taken in again.
func (w *coding) answered(ctx context.Context, a model.Answer, before []record.PastTool, again bool) (*outcome, error) {
	if a.Text != "" && !again {
		w.o.Progress(Progress{Said: a.Text})
	}
	calls, repeated := w.identify(a.Calls)
	w.req.Messages = append(w.req.Messages, model.Message{Role: model.RoleAssistant, Text: a.Text, Calls: calls})
	if len(calls) > 0 {
		w.words = 0
		return w.calls(ctx, calls, repeated, before, again)
	}
	switch {
	case a.Stop == model.StopRefused:
		return &outcome{Word: Refused, Reason: "the model would not go on", Summary: termsafe.Clip(a.Text, maxSummary)}, nil
	case a.Stop == model.StopLength:
		w.say("Your answer was cut off, because it was too long. Go on in smaller steps.")
		return nil, nil
	case strings.TrimSpace(a.Text) == "":
		// An assistant's message of nothing is refused by some providers.
		w.req.Messages[len(w.req.Messages)-1].Text = "(nothing)"
		w.say("Your answer was empty. Go on, or call finish.")
		return nil, nil
	}
	// A plain answer is the end as well.
	done, text, err := w.finished(ctx, Done, a.Text)
	if done == nil && err == nil {
		if w.words++; w.words == 2 { // it would say the same to the end of the budget
			return &outcome{Word: Blocked, Reason: "the model answers in words and does nothing, and the check does not succeed",
				Summary: termsafe.Clip(a.Text, maxSummary)}, nil
		}
		w.say(text)
	}
	return done, err
}

func (w *coding) say(text string) {
	w.req.Messages = append(w.req.Messages, model.Message{Role: model.RoleUser, Text: text})
}

// identify gives every call its own id: providers refuse a conversation in which two have the same. It says which
// ids were there before.
func (w *coding) identify(asked []model.ToolCall) (calls []model.ToolCall, repeated []bool) {
	for i, call := range asked {
		again := call.ID != "" && w.seen[call.ID]
		base := call.ID
		if base == "" {
			base = fmt.Sprintf("call-%d-%d", len(w.req.Messages), i+1)
		}
		for n := 2; call.ID == "" || w.seen[call.ID]; n++ {
			if call.ID = base; w.seen[base] {
				call.ID = fmt.Sprintf("%s-%d", base, n)
			}
		}
		w.seen[call.ID] = true
		calls, repeated = append(calls, call), append(repeated, again)
	}
	return calls, repeated
}

// calls does what the model asks for, one call after the other, and adds the results to the conversation.
func (w *coding) calls(ctx context.Context, calls []model.ToolCall, repeated []bool, before []record.PastTool,
	again bool) (*outcome, error) {
	message := model.Message{Role: model.RoleTool}
	var done *outcome
	left := w.w.Block.ToolCalls - w.res.ToolCalls + len(before)
	made := false
	for i, call := range calls {
		if i < len(before) { // its result is recorded
			message.Results = append(message.Results, model.ToolResult{ID: call.ID, Text: before[i].Result,
				IsError: before[i].IsError})
			if call.Name == finishTool && !before[i].IsError && done == nil {
				done = ending(call.Arguments)
			}
			continue
		}
		began := time.Now()
		t := ToolProgress{N: w.res.ToolCalls + 1, Name: call.Name}
		var r tools.Result
		switch {
		case done != nil:
			r = refuse("the work was ended by a call before this one in the same answer")
		case repeated[i]:
			r = refuse("the id of this call was used by one before, so it was not done; every call has an id of its own")
		case again && i == len(before) && !w.harmless(call.Name):
			r = refuse("hutch was interrupted while this call was made, or just before; whether it was done is not known: " +
				"look before you do it again")
		case i >= maxAtOnce:
			r = refuse(fmt.Sprintf("one answer may ask for %d calls, and this one is beyond that; ask again", maxAtOnce))
		case call.Name == finishTool:
			made = true
			var err error
			if done, r, err = w.finish(ctx, call.Arguments); err != nil {
				return nil, err
			}
		case left-i <= 0:
			r = refuse(fmt.Sprintf("all of your %d tool calls are used up; call finish, and say what is done and what is not",
				w.w.Block.ToolCalls))
		default:
			made = true
			r = w.call(ctx, call, &t)
		}
		result := model.ToolResult{ID: call.ID, Text: r.Text, IsError: r.Err != nil}
		if err := w.loop.ToolCall(record.ToolCall{Call: call, Result: result, Run: r.Run, Started: began,
			Took: time.Since(began)}); err != nil {
			return nil, err
		}
		message.Results = append(message.Results, result)
		w.res.ToolCalls++
		if t.Took = time.Since(began); r.Err != nil {
			w.res.ToolErrors++
			t.Error = r.Text
		}
		w.o.Progress(Progress{Tool: &t})
		if ctx.Err() != nil {
			return &outcome{Word: Interrupted, Reason: "it was interrupted"}, nil
		}
	}
	w.req.Messages = append(w.req.Messages, message)
	if done != nil {
		return done, nil
	}
	if w.spare++; made {
		w.spare = 0
	}
	if left-len(calls) <= 0 && w.spare > spareTurns {
		most := strconv.Itoa(w.w.Block.ToolCalls)
		return &outcome{Word: OverBudget, Reason: "all of the " + most +
			" tool calls are used up, and the model does not finish", Budget: &Bound{"tool_calls", most, most}}, nil
	}
	return nil, nil
}

// harmless reports whether a call may be made twice: it only looks at something, or ends the work.
func (w *coding) harmless(name string) bool {
	return name == finishTool || !slices.ContainsFunc(w.set,
		func(t tools.Tool) bool { return t.Name == name && t.Effect != tools.Reads })
}

// maxAtOnce is how many calls of one answer are made.
const maxAtOnce = 64

func refuse(text string) tools.Result { return tools.Result{Text: text, Err: errors.New(text)} }

// fileTime bounds a tool that is no command.
const fileTime = 5 * time.Minute

// call makes one call.
func (w *coding) call(ctx context.Context, call model.ToolCall, t *ToolProgress) tools.Result {
	var names []string
	for i := range w.set {
		tool := &w.set[i]
		names = append(names, tool.Name)
		if tool.Name != call.Name {
			continue
		}
		t.About = record.Gist(call.Arguments)
		if tool.Name != "run_command" {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, fileTime, fmt.Errorf("it took more than %s", fileTime))
			defer cancel()
		}
		r := tool.Call(ctx, w.box, call.Arguments)
		t.Ended = r.Ended
		if errors.Is(r.Err, store.ErrNoSandbox) {
			r.Text += "; there is nothing to work in any more: call finish with outcome \"blocked\""
		}
		return r
	}
	return refuse(fmt.Sprintf("there is no tool %q; the tools are %s and %s", tools.Clip(call.Name),
		strings.Join(names, ", "), finishTool))
}

// finish is the call with which the model ends its work.
func (w *coding) finish(ctx context.Context, args string) (*outcome, tools.Result, error) {
	var in finishIn
	if err := tools.Decode(args, finish.Schema, &in); err != nil {
		return nil, refuse(err.Error()), nil
	}
	word := Done
	switch in.Outcome {
	case "done":
	case "blocked":
		word = Blocked
	default:
		return nil, refuse(fmt.Sprintf("the outcome %q is neither done nor blocked", tools.Clip(in.Outcome))), nil
	}
	done, text, err := w.finished(ctx, word, in.Summary)
	if done == nil {
		return nil, refuse(text), err
	}
	return done, tools.Result{Text: "the work is ended"}, err
}

// ending is the outcome of a finish that was accepted before; nil for one that could not have been.
func ending(args string) *outcome {
	var in finishIn
	if tools.Decode(args, finish.Schema, &in) != nil {
		return nil
	}
	o := &outcome{Word: Done, Summary: termsafe.Clip(strings.TrimSpace(in.Summary), maxSummary)}
	if in.Outcome == "blocked" {
		o.Word, o.Reason = Blocked, gaveUp
	}
	return o
}

// gaveUp is the reason of an end that the model chose without being done.
const gaveUp = "the model says that it cannot go on"

// finished is the end of the work, unless the check does not agree; then it is what the model is shown.
func (w *coding) finished(ctx context.Context, word, summary string) (*outcome, string, error) {
	o := &outcome{Word: word, Summary: termsafe.Clip(strings.TrimSpace(summary), maxSummary)}
	argv := w.w.Block.Check
	if word == Blocked {
		o.Reason = gaveUp
		return o, "", nil
	}
	if len(argv) == 0 {
		return o, "", nil
	}
	check, out, err := w.command(ctx, argv)
	if ctx.Err() != nil {
		return &outcome{Word: Interrupted, Reason: "it was interrupted", Summary: o.Summary}, "", nil
	}
	w.res.Checks = append(w.res.Checks, *check)
	w.o.Progress(Progress{Check: check})
	class := "ok"
	if !check.OK {
		if class = check.Cause; class == "" || class == "exited" {
			class = "failed"
		}
	}
	if rerr := w.loop.Attempt(record.Attempt{N: len(w.res.Checks), Run: check.Run, OK: check.OK, Class: class,
		Detail: check.Ended}); rerr != nil {
		return nil, "", rerr
	}
	if check.OK {
		return o, "", nil
	}
	if err != nil {
		return nil, "the check " + quoted(argv) + " could not be run: " + err.Error() + "; the work is not done", nil
	}
	return nil,
		fmt.Sprintf("the check %s did not succeed (%s), so the work is not done.\nGo on, and call finish again. The end "+
			"of what it printed:\n\nstdout:\n%s\n\nstderr:\n%s",
			quoted(argv), check.Ended, out.Stdout.Text, out.Stderr.Text), nil
}
