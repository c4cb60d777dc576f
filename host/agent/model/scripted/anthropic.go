package scripted

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/hutch-run/hutch/host/agent/model"
)

// anthropicWire is messages.
type anthropicWire struct{}

func (anthropicWire) key(h http.Header) string {
	if key := h.Get("x-api-key"); key != "" {
		return key
	}
	key, _ := strings.CutPrefix(h.Get("authorization"), "Bearer ")
	return key
}

func (anthropicWire) fail(typ, message string) any {
	return object{"type": "error", "error": object{"type": typ, "message": message}}
}

func (anthropicWire) read(body []byte) (*request, error) {
	var in struct {
		Model    string
		Stream   bool
		System   json.RawMessage
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
		Tools     []struct{ Name string }
		MaxTokens int `json:"max_tokens"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	if len(in.Messages) == 0 || in.MaxTokens < 1 {
		return nil, errors.New("the request has no messages, or no max_tokens")
	}
	q := &request{Model: in.Model, Stream: in.Stream, System: contentText(in.System), Size: len(body), Turn: len(in.Messages)}
	for _, m := range in.Messages {
		if m.Role == "assistant" {
			q.Last = ""
			continue
		}
		q.Last += contentText(m.Content) + "\n"
	}
	for _, t := range in.Tools {
		q.Tools = append(q.Tools, t.Name)
	}
	return q, nil
}

var anthropicStops = map[model.Stop]string{model.StopEnd: "end_turn", model.StopTools: "tool_use", model.StopLength: "max_tokens", model.StopRefused: "refusal"}

func anthropicUsage(u *model.Usage, out int64) object {
	return object{"input_tokens": u.InputTokens - u.CachedTokens, "cache_read_input_tokens": u.CachedTokens, "cache_creation_input_tokens": 0, "output_tokens": out}
}

// input is what a call has; a model's slip is an object here, since the protocol has no other way to carry it whole.
func input(c Call) json.RawMessage {
	if text := c.text(); json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return json.RawMessage("{}")
}

func (anthropicWire) whole(a *reply) any {
	content := []object{}
	if a.Thought != "" {
		content = append(content, object{"type": "thinking", "thinking": a.Thought, "signature": "s"})
	}
	if a.Text != "" {
		content = append(content, object{"type": "text", "text": a.Text})
	}
	for _, c := range a.Calls {
		content = append(content, object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": input(c)})
	}
	u := object{}
	if !a.Fault.NoUsage {
		u = anthropicUsage(a.Usage, a.Usage.OutputTokens)
	}
	return object{"id": a.id, "type": "message", "role": "assistant", "model": a.model, "content": content,
		"stop_reason": anthropicStops[a.Stop], "stop_sequence": nil, "usage": u}
}

func (anthropicWire) events(a *reply) []event {
	var all []event
	add := func(name string, data object) {
		data["type"] = name
		all = append(all, event{name, data})
	}
	first, last := object{}, object{}
	if !a.Fault.NoUsage {
		first, last = anthropicUsage(a.Usage, 1), object{"output_tokens": a.Usage.OutputTokens}
	}
	add("message_start", object{"message": object{"id": a.id, "type": "message", "role": "assistant", "model": a.model, "content": []object{},
		"stop_reason": nil, "stop_sequence": nil, "usage": first}})
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
		block(object{"type": "thinking", "thinking": "", "signature": ""}, "thinking_delta", "thinking", pieces(a.Thought, 16))
	}
	if a.Text != "" {
		block(object{"type": "text", "text": ""}, "text_delta", "text", pieces(a.Text, 16))
	}
	for _, c := range a.Calls {
		block(object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": object{}}, "input_json_delta", "partial_json", pieces(c.text(), 7))
	}
	if !a.Fault.NoStop {
		add("message_delta", object{"delta": object{"stop_reason": anthropicStops[a.Stop], "stop_sequence": nil}, "usage": last})
	}
	if !a.Fault.NoDone && !a.Fault.NoStop {
		add("message_stop", object{})
	}
	return all
}

func (anthropicWire) streamError(message string) event {
	return event{"error", object{"type": "error", "error": object{"type": "api_error", "message": message}}}
}
