package record

import (
	"reflect"
	"strings"

	"github.com/hutch-run/hutch/host/agent/model"
)

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
