package provider

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hutch-run/hutch/host/agent/model"
)

// Bounds of one answer.
const (
	maxText  = 16 << 20 // bytes of text and arguments together
	maxCalls = 256
)

func tooLarge(bound string) *Failure {
	f := Fail(model.KindProtocol, "the answer is larger than %s", bound)
	f.Hint = "lower max_tokens"
	return f
}

// Collector puts an answer together from its pieces.
type Collector struct {
	delta    func(string)
	text     strings.Builder
	calls    []*call
	at       map[int64]*call // the one that is being written, by the provider's number of it
	size     int
	thoughts int // bytes that nobody keeps
	failure  *Failure
}

type call struct {
	id, name string
	args     strings.Builder
}

// NewCollector hands text on to delta as it comes.
func NewCollector(delta func(string)) *Collector {
	return &Collector{delta: delta, at: map[int64]*call{}}
}

// grow counts, and is false once there is too much.
func (c *Collector) grow(n int) bool {
	if c.size += n; c.size > maxText {
		c.failure = tooLarge(fmt.Sprintf("%d MiB", maxText>>20))
	}
	return c.failure == nil
}

// Text takes a piece of text.
func (c *Collector) Text(s string) {
	if s == "" || !c.grow(len(s)) {
		return
	}
	c.text.WriteString(s)
	c.delta(s)
}

// Thought takes a piece of what the model thinks aloud. It is no part of the answer, and counts where the provider does not.
func (c *Collector) Thought(s string) { c.thoughts += len(s) }

// Call takes a piece of a call. What servers send differs: an id in the first piece or in all of them or none, one number for
// each call or the same for all, arguments in many pieces or in one.
func (c *Collector) Call(number int64, id, name, args string) {
	if !c.grow(len(id) + len(name) + len(args)) {
		return
	}
	now := c.at[number]
	switch {
	case now == nil:
	case id != "" && now.id != "" && id != now.id:
		now = nil // another call that has the same number
	case id == "" && name != "" && now.name != "" && json.Valid([]byte(now.args.String())):
		now = nil // the same, of a server that gives no ids either
	}
	if now == nil {
		if len(c.calls) == maxCalls {
			c.failure = Fail(model.KindProtocol, "the answer has more than %d tool calls", maxCalls)
			return
		}
		now = &call{}
		c.calls = append(c.calls, now)
		c.at[number] = now
	}
	if now.id == "" {
		now.id = id
	}
	if now.name == "" {
		now.name = name
	}
	now.args.WriteString(args)
}

// Err is not nil once there is too much.
func (c *Collector) Err() error {
	if c.failure == nil {
		return nil
	}
	return c.failure
}

// Finish is the whole answer to r. stop is what the provider said, "" if it did not; counted says whether usage holds.
func (c *Collector) Finish(r model.Request, stop model.Stop, usage model.Usage, counted bool) model.Answer {
	a := model.Answer{Text: c.text.String(), Stop: stop, Usage: usage}
	for i, p := range c.calls {
		id := p.id
		if id == "" { // results refer to calls by it
			id = fmt.Sprintf("call_%d_%d", len(r.Messages), i+1)
		}
		args := p.args.String()
		if strings.TrimSpace(args) == "" {
			args = "{}"
		}
		a.Calls = append(a.Calls, model.ToolCall{ID: id, Name: p.name, Arguments: args})
	}
	switch {
	case len(a.Calls) > 0 && (stop == "" || stop == model.StopEnd):
		a.Stop = model.StopTools
	case len(a.Calls) == 0 && (stop == "" || stop == model.StopTools):
		a.Stop = model.StopEnd
	}
	if !counted {
		a.Usage = model.Usage{InputTokens: estimate(requestSize(r)), OutputTokens: estimate(c.size + c.thoughts), Estimated: true}
	}
	return a
}

// estimate guesses tokens from bytes: about four of English or code, and rather too many than too few.
func estimate(bytes int) int64 { return int64(bytes+3) / 4 }

func requestSize(r model.Request) int {
	n := len(r.System)
	for _, m := range r.Messages {
		n += len(m.Text)
		for _, c := range m.Calls {
			n += len(c.Name) + len(c.Arguments)
		}
		for _, t := range m.Results {
			n += len(t.Text)
		}
	}
	for _, t := range r.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Schema)
	}
	return n
}

// Arguments are those of a call as the providers take them back: a JSON object. What the model wrote and is none goes into one,
// so that the model sees what was wrong.
func Arguments(written string) json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(written), &object) == nil && object != nil {
		return json.RawMessage(written)
	}
	if strings.TrimSpace(written) == "" {
		return json.RawMessage("{}")
	}
	b, err := json.Marshal(map[string]string{"invalid_arguments": written})
	if err != nil {
		return json.RawMessage("{}") // a map of strings always encodes
	}
	return b
}
