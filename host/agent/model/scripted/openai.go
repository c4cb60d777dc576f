package scripted

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/hutch-run/hutch/host/agent/model"
)

// openaiWire is chat completions.
type openaiWire struct{}

type object = map[string]any

func (openaiWire) key(h http.Header) string {
	key, _ := strings.CutPrefix(h.Get("authorization"), "Bearer ")
	return key
}

func (openaiWire) fail(typ, message string) any {
	return object{"error": object{"message": message, "type": typ, "code": nil, "param": nil}}
}

func (openaiWire) read(body []byte) (*request, error) {
	var in struct {
		Model    string
		Stream   bool
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
		Tools []struct{ Function struct{ Name string } }
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	if len(in.Messages) == 0 {
		return nil, errors.New("the request has no messages")
	}
	q := &request{Model: in.Model, Stream: in.Stream, Size: len(body), Turn: len(in.Messages)}
	for _, m := range in.Messages {
		text := contentText(m.Content)
		switch m.Role {
		case "system", "developer":
			q.System += text
		case "assistant":
			q.Last = ""
		default:
			q.Last += text + "\n"
		}
	}
	for _, t := range in.Tools {
		q.Tools = append(q.Tools, t.Function.Name)
	}
	return q, nil
}

// contentText is a string, or the texts of a list of parts, also of parts in parts.
func contentText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []struct {
		Text    string
		Content json.RawMessage
	}
	if json.Unmarshal(raw, &parts) != nil {
		return ""
	}
	var all []string
	for _, p := range parts {
		if p.Text != "" {
			all = append(all, p.Text)
		}
		if len(p.Content) > 0 {
			all = append(all, contentText(p.Content))
		}
	}
	return strings.Join(all, "\n")
}

var openaiStops = map[model.Stop]string{model.StopEnd: "stop", model.StopTools: "tool_calls", model.StopLength: "length", model.StopRefused: "content_filter"}

func openaiUsage(u *model.Usage) object {
	return object{"prompt_tokens": u.InputTokens, "completion_tokens": u.OutputTokens, "total_tokens": u.InputTokens + u.OutputTokens,
		"prompt_tokens_details": object{"cached_tokens": u.CachedTokens}}
}

func (openaiWire) whole(a *reply) any {
	m := object{"role": "assistant", "content": a.Text}
	if a.Thought != "" {
		m["reasoning_content"] = a.Thought
	}
	var calls []object
	for _, c := range a.Calls {
		calls = append(calls, object{"id": c.ID, "type": "function", "function": object{"name": c.Name, "arguments": c.text()}})
	}
	if calls != nil {
		m["tool_calls"] = calls
	}
	out := object{"id": a.id, "object": "chat.completion", "created": 1, "model": a.model,
		"choices": []object{{"index": 0, "message": m, "finish_reason": openaiStops[a.Stop]}}}
	if !a.Fault.NoUsage {
		out["usage"] = openaiUsage(a.Usage)
	}
	return out
}

func (openaiWire) events(a *reply) []event {
	var all []event
	chunk := func(delta object, finish any) {
		all = append(all, event{"", object{"id": a.id, "object": "chat.completion.chunk", "created": 1, "model": a.model,
			"choices": []object{{"index": 0, "delta": delta, "finish_reason": finish}}}})
	}
	chunk(object{"role": "assistant", "content": ""}, nil)
	for _, p := range pieces(a.Thought, 16) {
		chunk(object{"reasoning_content": p}, nil)
	}
	for _, p := range pieces(a.Text, 16) {
		chunk(object{"content": p}, nil)
	}
	for i, c := range a.Calls {
		if a.Fault.SameIndex {
			i = 0
		}
		parts := pieces(c.text(), 7)
		if len(parts) == 0 { // a model may write no arguments at all
			parts = []string{""}
		}
		first := object{"index": i, "type": "function", "function": object{"name": c.Name, "arguments": parts[0]}}
		if c.ID != "" {
			first["id"] = c.ID
		}
		chunk(object{"tool_calls": []object{first}}, nil)
		for _, p := range parts[1:] {
			chunk(object{"tool_calls": []object{{"index": i, "function": object{"arguments": p}}}}, nil)
		}
	}
	if !a.Fault.NoStop {
		chunk(object{}, openaiStops[a.Stop])
	}
	if !a.Fault.NoUsage {
		all = append(all, event{"", object{"id": a.id, "object": "chat.completion.chunk", "created": 1, "model": a.model, "choices": []object{}, "usage": openaiUsage(a.Usage)}})
	}
	if !a.Fault.NoDone {
		all = append(all, event{"", "[DONE]"})
	}
	return all
}

func (openaiWire) streamError(message string) event {
	return event{"", object{"error": object{"message": message, "type": "server_error", "code": 500}}}
}
