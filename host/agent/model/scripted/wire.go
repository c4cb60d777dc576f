package scripted

import (
	"encoding/json"

	"github.com/hutch-run/hutch/host/agent/model"
)

// wire is how one of the two protocols writes what a server sends.
type wire interface {
	fail(typ, message string) any // the body of an error
	whole(a *reply) any           // the body of an answer that is not streamed
	events(a *reply) []event      // a stream
	streamError(message string) event
}

// event is one piece of a stream; a name of "" is left out.
type event struct {
	name string
	data any // a string is sent as it is
}

type object = map[string]any

// pieces cuts a text as a stream does, never inside of a character.
func pieces(s string, size int) []string {
	if len(s) > 64*size { // a big one in fewer pieces
		size = len(s) / 64
	}
	var all []string
	for len(s) > size {
		n := size
		for n < len(s) && n < size+4 && s[n]&0xC0 == 0x80 {
			n++
		}
		all, s = append(all, s[:n]), s[n:]
	}
	if s != "" {
		all = append(all, s)
	}
	return all
}

// openai is chat completions.
type openai struct{}

var openaiStops = map[model.Stop]string{model.StopEnd: "stop", model.StopTools: "tool_calls",
	model.StopLength: "length", model.StopRefused: "content_filter"}

func (openai) fail(typ, message string) any {
	return object{"error": object{"message": message, "type": typ, "code": nil, "param": nil}}
}

func (openai) streamError(message string) event {
	return event{"", object{"error": object{"message": message, "type": "server_error", "code": 500}}}
}

// body is an answer, or a chunk of one. A choice or a usage of nil is left out.
func (openai) body(a *reply, kind string, choice object, usage *model.Usage) object {
	b := object{"id": a.id, "object": kind, "created": 1, "model": a.model, "choices": []object{}}
	if choice != nil {
		choice["index"] = 0
		b["choices"] = []object{choice}
	}
	if u := usage; u != nil && !a.Fault.NoUsage {
		b["usage"] = object{"prompt_tokens": u.InputTokens, "completion_tokens": u.OutputTokens,
			"total_tokens":          u.InputTokens + u.OutputTokens,
			"prompt_tokens_details": object{"cached_tokens": u.CachedTokens}}
	}
	return b
}

func (w openai) whole(a *reply) any {
	m := object{"role": "assistant", "content": a.Text}
	if a.Thought != "" {
		m["reasoning_content"] = a.Thought
	}
	var calls []object
	for _, c := range a.Calls {
		calls = append(calls, object{"id": c.ID, "type": "function",
			"function": object{"name": c.Name, "arguments": c.text()}})
	}
	if calls != nil {
		m["tool_calls"] = calls
	}
	return w.body(a, "chat.completion", object{"message": m, "finish_reason": openaiStops[a.Stop]}, a.Usage)
}

func (w openai) events(a *reply) []event {
	var all []event
	chunk := func(delta object, finish any) {
		choice := object{"delta": delta, "finish_reason": finish}
		all = append(all, event{"", w.body(a, "chat.completion.chunk", choice, nil)})
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
		for j, p := range parts {
			call := object{"index": i, "function": object{"arguments": p}}
			if j == 0 {
				call = object{"index": i, "type": "function", "function": object{"name": c.Name, "arguments": p}}
				if c.ID != "" {
					call["id"] = c.ID
				}
			}
			chunk(object{"tool_calls": []object{call}}, nil)
		}
	}
	if !a.Fault.NoStop {
		chunk(object{}, openaiStops[a.Stop])
	}
	if !a.Fault.NoUsage {
		all = append(all, event{"", w.body(a, "chat.completion.chunk", nil, a.Usage)})
	}
	if !a.Fault.NoDone {
		all = append(all, event{"", "[DONE]"})
	}
	return all
}

// anthropic is messages.
type anthropic struct{}

var anthropicStops = map[model.Stop]string{model.StopEnd: "end_turn", model.StopTools: "tool_use",
	model.StopLength: "max_tokens", model.StopRefused: "refusal"}

func (anthropic) fail(typ, message string) any {
	return object{"type": "error", "error": object{"type": typ, "message": message}}
}

func (w anthropic) streamError(message string) event {
	return event{"error", w.fail("api_error", message)}
}

// body is an answer, or the beginning of one.
func (anthropic) body(a *reply, content []object, stop any, out int64) object {
	usage := object{}
	if u := a.Usage; !a.Fault.NoUsage {
		usage = object{"input_tokens": u.InputTokens - u.CachedTokens, "cache_read_input_tokens": u.CachedTokens,
			"cache_creation_input_tokens": 0, "output_tokens": out}
	}
	return object{"id": a.id, "type": "message", "role": "assistant", "model": a.model, "content": content,
		"stop_reason": stop, "stop_sequence": nil, "usage": usage}
}

func (w anthropic) whole(a *reply) any {
	content := []object{}
	if a.Thought != "" {
		content = append(content, object{"type": "thinking", "thinking": a.Thought, "signature": "s"})
	}
	if a.Text != "" {
		content = append(content, object{"type": "text", "text": a.Text})
	}
	for _, c := range a.Calls {
		input := json.RawMessage(c.text())
		if !json.Valid(input) { // the protocol has no way to carry that
			input = json.RawMessage("{}")
		}
		content = append(content, object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": input})
	}
	return w.body(a, content, anthropicStops[a.Stop], a.Usage.OutputTokens)
}

func (w anthropic) events(a *reply) []event {
	var all []event
	add := func(name string, data object) {
		data["type"] = name
		all = append(all, event{name, data})
	}
	add("message_start", object{"message": w.body(a, []object{}, nil, 1)})
	add("ping", object{})
	index := 0
	block := func(start object, kind, field string, parts []string) {
		add("content_block_start", object{"index": index, "content_block": start})
		for _, p := range parts {
			add("content_block_delta", object{"index": index, "delta": object{"type": kind, field: p}})
		}
		add("content_block_stop", object{"index": index})
		index++
	}
	if a.Thought != "" {
		start := object{"type": "thinking", "thinking": "", "signature": ""}
		block(start, "thinking_delta", "thinking", pieces(a.Thought, 16))
	}
	if a.Text != "" {
		block(object{"type": "text", "text": ""}, "text_delta", "text", pieces(a.Text, 16))
	}
	for _, c := range a.Calls {
		start := object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": object{}}
		block(start, "input_json_delta", "partial_json", pieces(c.text(), 7))
	}
	if !a.Fault.NoStop {
		last := object{}
		if !a.Fault.NoUsage {
			last["output_tokens"] = a.Usage.OutputTokens
		}
		add("message_delta", object{"delta": object{"stop_reason": anthropicStops[a.Stop], "stop_sequence": nil},
			"usage": last})
	}
	if !a.Fault.NoDone && !a.Fault.NoStop {
		add("message_stop", object{})
	}
	return all
}
