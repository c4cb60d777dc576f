// Package anthropic asks models by Anthropic's messages. It is linked into hutch-agent alone.
package anthropic

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/agent/model/provider"
)

// defaultURL is Anthropic's own address.
const defaultURL = "https://api.anthropic.com/"

// Client asks one model. It is safe for concurrent use.
type Client struct {
	client anthropic.Client
	config model.Config
}

// New is a client for c, by way of h.
func New(c model.Config, h *http.Client) *Client {
	url := c.BaseURL
	if url == "" {
		url = defaultURL
	}
	// The library adds v1 itself; servers of others show their address with it.
	url = strings.TrimSuffix(strings.TrimSuffix(url, "/"), "/v1") + "/"
	options := []option.RequestOption{option.WithoutEnvironmentDefaults(), option.WithBaseURL(url), option.WithHTTPClient(h), option.WithMaxRetries(0)}
	if c.APIKey != "" {
		options = append(options, option.WithAPIKey(c.APIKey))
	}
	return &Client{client: anthropic.NewClient(options...), config: c}
}

// Try implements [provider.Provider].
func (o *Client) Try(ctx context.Context, r model.Request, delta func(string)) (model.Answer, error) {
	var res *http.Response
	err := o.client.Post(ctx, "v1/messages", o.params(r), &res, option.WithJSONSet("stream", true), option.WithHeader("accept", "text/event-stream, application/json"))
	if err != nil {
		return model.Answer{}, provider.FromError(ctx, err)
	}
	defer res.Body.Close()
	d := ssestream.NewDecoder(res)
	events := func(yield func(string, []byte) bool) {
		for d.Next() && yield(d.Event().Type, d.Event().Data) {
		}
	}
	s := &stream{&provider.Stream{Collector: provider.NewCollector(delta), Protocol: protocol}}
	return s.Read(ctx, r, res, provider.Events{All: events, Err: d.Err}, s)
}

var protocol = provider.Protocol{Name: "Anthropic", Hint: "look at base_url", ID: "request-id"}

// stream takes an answer apart.
type stream struct{ *provider.Stream }

// Event takes one event; its name is in its data too.
func (s *stream) Event(name string, data []byte) error {
	if name == "error" {
		return provider.FromStream(data)
	}
	var e anthropic.MessageStreamEventUnion
	if err := json.Unmarshal(data, &e); err != nil {
		return protocol.Foreign("a piece of its stream is no JSON object")
	}
	switch e.Type {
	case "error":
		return provider.FromStream(data)
	case "message_start":
		s.Model, s.Answer = e.Message.Model, e.Message.ID
		s.count(e.Message.Usage.InputTokens, e.Message.Usage.CacheCreationInputTokens, e.Message.Usage.CacheReadInputTokens, e.Message.Usage.OutputTokens)
	case "content_block_start":
		switch b := e.ContentBlock; b.Type {
		case "text":
			s.Text(b.Text)
		case "tool_use":
			s.Call(e.Index, b.ID, b.Name, given(b.Input))
		}
	case "content_block_delta":
		s.Text(e.Delta.Text)
		s.Thought(e.Delta.Thinking)
		if e.Delta.PartialJSON != "" {
			s.Call(e.Index, "", "", e.Delta.PartialJSON)
		}
	case "message_delta":
		s.end(string(e.Delta.StopReason))
		u := e.Usage // counts are of the whole answer so far; older servers tell the output alone
		if u.InputTokens+u.CacheCreationInputTokens+u.CacheReadInputTokens > 0 {
			s.count(u.InputTokens, u.CacheCreationInputTokens, u.CacheReadInputTokens, u.OutputTokens)
		} else if u.OutputTokens > 0 {
			s.Usage.OutputTokens = u.OutputTokens
		}
	case "message_stop":
		s.Ended = true
	}
	return nil
}

// given is the input of a call that came whole, which is empty where it comes in pieces.
func given(input any) string {
	if m, ok := input.(map[string]any); input == nil || ok && len(m) == 0 {
		return ""
	}
	if raw, ok := input.(json.RawMessage); ok && (len(raw) == 0 || string(bytes.TrimSpace(raw)) == "{}") {
		return ""
	}
	b, err := json.Marshal(input)
	if err != nil {
		return ""
	}
	return string(b)
}

// Whole takes an answer that was not streamed.
func (s *stream) Whole(data []byte) error {
	var m anthropic.Message
	if err := json.Unmarshal(data, &m); err != nil || m.StopReason == "" && len(m.Content) == 0 {
		var e struct{ Type string }
		if err == nil && json.Unmarshal(data, &e) == nil && e.Type == "error" {
			return provider.FromStream(data)
		}
		return protocol.Foreign("its answer is no message")
	}
	s.Model, s.Answer = string(m.Model), m.ID
	s.count(m.Usage.InputTokens, m.Usage.CacheCreationInputTokens, m.Usage.CacheReadInputTokens, m.Usage.OutputTokens)
	for i, b := range m.Content {
		switch b.Type {
		case "text":
			s.Text(b.Text)
		case "thinking":
			s.Thought(b.Thinking)
		case "tool_use":
			s.Call(int64(i), b.ID, b.Name, string(b.Input))
		}
	}
	s.end(string(m.StopReason))
	return nil
}

// count takes the counts, of which the API tells three for the input.
func (s *stream) count(plain, written, read, out int64) {
	if plain+written+read == 0 {
		return // a server that counts nothing
	}
	s.Counted = true
	s.Usage = model.Usage{InputTokens: plain + written + read, CachedTokens: read, OutputTokens: out}
}

func (s *stream) end(reason string) {
	switch reason {
	case "":
	case "max_tokens", "model_context_window_exceeded":
		s.Stop = model.StopLength
	case "tool_use":
		s.Stop = model.StopTools
	case "refusal":
		s.Stop = model.StopRefused
	default:
		s.Stop = model.StopEnd
	}
}
