// Package openai asks every server that speaks OpenAI's chat completions: the hosted ones, vLLM, llama.cpp, Ollama. It is linked
// into hutch-agent alone.
package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/agent/model/provider"
)

// defaultURL is OpenAI's own address.
const defaultURL = "https://api.openai.com/v1/"

// Client asks one model. It is safe for concurrent use.
type Client struct {
	client openai.Client
	config model.Config
	old    atomic.Bool // the server takes max_tokens and not max_completion_tokens
	plain  atomic.Bool // the server takes no stream_options
}

// New is a client for c, by way of h.
func New(c model.Config, h *http.Client) *Client {
	url := c.BaseURL
	if url == "" {
		url = defaultURL
	}
	options := []option.RequestOption{option.WithBaseURL(strings.TrimSuffix(url, "/") + "/"), option.WithHTTPClient(h), option.WithMaxRetries(0)}
	if c.APIKey != "" {
		options = append(options, option.WithAPIKey(c.APIKey))
	} else {
		options = append(options, option.WithHeaderDel("authorization"))
	}
	o := &Client{client: openai.NewClient(options...), config: c}
	o.old.Store(c.BaseURL != "") // the newer name is what OpenAI's own models insist on, the older one what all other servers know
	return o
}

// Try implements [provider.Provider].
func (o *Client) Try(ctx context.Context, r model.Request, delta func(string)) (model.Answer, error) {
	for adapted := 0; ; adapted++ {
		a, err := o.try(ctx, r, delta)
		if f, ok := err.(*provider.Failure); !ok || adapted == 2 || !o.adapt(f) { //nolint:errorlint // try returns it bare
			return a, err
		}
	}
}

// adapt changes what is sent when a server says that it does not know it.
func (o *Client) adapt(f *provider.Failure) bool {
	if f.Status != http.StatusBadRequest && f.Status != http.StatusUnprocessableEntity {
		return false
	}
	switch old := o.old.Load(); {
	case old && strings.Contains(f.Message, "max_completion_tokens"):
		return o.old.CompareAndSwap(true, false)
	case !old && strings.Contains(f.Message, "max_completion_tokens"):
		return o.old.CompareAndSwap(false, true)
	case strings.Contains(f.Message, "stream_options"):
		return o.plain.CompareAndSwap(false, true)
	}
	return false
}

func (o *Client) try(ctx context.Context, r model.Request, delta func(string)) (model.Answer, error) {
	var res *http.Response
	err := o.client.Post(ctx, "chat/completions", o.params(r), &res, option.WithJSONSet("stream", true), option.WithHeader("accept", "text/event-stream, application/json"))
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

var protocol = provider.Protocol{Name: "OpenAI", Hint: "look at base_url; for most servers it ends in /v1", ID: "x-request-id"}

// stream takes an answer apart.
type stream struct{ *provider.Stream }

// Event takes one chunk; they have no names.
func (s *stream) Event(_ string, data []byte) error {
	if bytes.Contains(data, []byte(`"error"`)) {
		var e struct {
			Error  json.RawMessage `json:"error"`
			Object string          `json:"object"`
		}
		if json.Unmarshal(data, &e) == nil && (len(e.Error) > 0 && string(e.Error) != "null" || e.Object == "error") {
			return provider.FromStream(data)
		}
	}
	var c openai.ChatCompletionChunk
	if err := json.Unmarshal(data, &c); err != nil {
		return protocol.Foreign("a piece of its stream is no JSON object")
	}
	s.begin(c.Model, c.ID)
	if c.JSON.Usage.Valid() {
		s.count(c.Usage)
	}
	if len(c.Choices) == 0 {
		return nil
	}
	choice := c.Choices[0]
	s.reasoning(choice.Delta.RawJSON())
	s.Text(choice.Delta.Content)
	s.refused(choice.Delta.Refusal)
	for _, t := range choice.Delta.ToolCalls {
		s.Call(t.Index, t.ID, t.Function.Name, t.Function.Arguments)
	}
	s.end(choice.FinishReason)
	return nil
}

// Whole takes an answer that was not streamed.
func (s *stream) Whole(data []byte) error {
	var c openai.ChatCompletion
	if err := json.Unmarshal(data, &c); err != nil || len(c.Choices) == 0 {
		var e struct{ Error json.RawMessage }
		if err == nil && json.Unmarshal(data, &e) == nil && len(e.Error) > 0 && string(e.Error) != "null" {
			return provider.FromStream(data)
		}
		return protocol.Foreign("its answer has no choices")
	}
	s.begin(c.Model, c.ID)
	if c.JSON.Usage.Valid() {
		s.count(c.Usage)
	}
	m := c.Choices[0].Message
	s.reasoning(m.RawJSON())
	s.Text(m.Content)
	s.refused(m.Refusal)
	for i, t := range m.ToolCalls {
		s.Call(int64(i), t.ID, t.Function.Name, t.Function.Arguments)
	}
	s.end(c.Choices[0].FinishReason)
	return nil
}

func (s *stream) begin(model, id string) {
	if s.Model == "" {
		s.Model, s.Answer = model, id
	}
}

func (s *stream) count(u openai.CompletionUsage) {
	if u.PromptTokens == 0 && u.CompletionTokens == 0 {
		return // a server that counts nothing and says so in numbers
	}
	s.Counted = true
	s.Usage = model.Usage{InputTokens: u.PromptTokens, CachedTokens: u.PromptTokensDetails.CachedTokens, OutputTokens: u.CompletionTokens}
}

// reasoning counts what servers send of the thoughts of a model, under two names.
func (s *stream) reasoning(raw string) {
	if !strings.Contains(raw, `"reasoning`) {
		return
	}
	var r struct {
		Content string `json:"reasoning_content"`
		Text    any    `json:"reasoning"`
	}
	if json.Unmarshal([]byte(raw), &r) == nil {
		s.Thought(r.Content)
		if text, ok := r.Text.(string); ok {
			s.Thought(text)
		}
	}
}

func (s *stream) refused(text string) {
	if text != "" {
		s.Text(text)
		s.Stop = model.StopRefused
	}
}

func (s *stream) end(reason string) {
	if s.Stop != "" {
		return
	}
	switch reason {
	case "":
	case "length":
		s.Stop = model.StopLength
	case "content_filter":
		s.Stop = model.StopRefused
	case "tool_calls", "function_call":
		s.Stop = model.StopTools
	default:
		s.Stop = model.StopEnd
	}
}
