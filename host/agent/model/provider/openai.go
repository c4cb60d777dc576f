package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"

	"github.com/hutch-run/hutch/host/agent/model"
)

// openaiClient asks every server that speaks OpenAI's chat completions: the hosted ones, vLLM, llama.cpp, Ollama.
type openaiClient struct {
	client openai.Client
	config model.Config
	old    atomic.Bool // the server takes max_tokens and not max_completion_tokens
	plain  atomic.Bool // the server takes no stream_options
}

func newOpenAI(c model.Config, h *http.Client) *openaiClient {
	url := cmp.Or(c.BaseURL, "https://api.openai.com/v1")
	options := []option.RequestOption{option.WithBaseURL(strings.TrimSuffix(url, "/") + "/"), option.WithHTTPClient(h),
		option.WithMaxRetries(0), option.WithHeader("accept", "text/event-stream, application/json")}
	if c.APIKey != "" {
		options = append(options, option.WithAPIKey(c.APIKey))
	} else {
		options = append(options, option.WithHeaderDel("authorization"))
	}
	o := &openaiClient{client: openai.NewClient(options...), config: c}
	o.old.Store(c.BaseURL != "") // OpenAI's own models insist on the newer name, all other servers know the older one
	return o
}

// post implements [protocol]. What a server says that it does not know is sent in another way.
func (o *openaiClient) post(ctx context.Context, r model.Request) (res *http.Response, err error) {
	for adapted := 0; ; adapted++ {
		err = o.client.Post(ctx, "chat/completions", o.params(r), &res, option.WithJSONSet("stream", true))
		if f, ok := errors.AsType[*failure](err); !ok || adapted == 2 || !o.adapt(f) {
			return res, err
		}
	}
}

func (o *openaiClient) adapt(f *failure) bool {
	if f.Status != http.StatusBadRequest && f.Status != http.StatusUnprocessableEntity {
		return false
	}
	switch {
	case strings.Contains(f.Message, "max_completion_tokens"):
		old := o.old.Load()
		return o.old.CompareAndSwap(old, !old)
	case strings.Contains(f.Message, "stream_options"):
		return o.plain.CompareAndSwap(false, true)
	}
	return false
}

// params is a request as the API has it.
func (o *openaiClient) params(r model.Request) openai.ChatCompletionNewParams {
	p := openai.ChatCompletionNewParams{Model: o.config.Model}
	if o.old.Load() {
		p.MaxTokens = openai.Int(int64(o.config.MaxTokens))
	} else {
		p.MaxCompletionTokens = openai.Int(int64(o.config.MaxTokens))
	}
	if o.config.Temperature != nil {
		p.Temperature = openai.Float(*o.config.Temperature)
	}
	if !o.plain.Load() {
		p.StreamOptions.IncludeUsage = openai.Bool(true)
	}
	if r.System != "" {
		p.Messages = append(p.Messages, openai.SystemMessage(r.System))
	}
	for _, m := range r.Messages {
		p.Messages = append(p.Messages, openaiMessages(m)...)
	}
	for _, t := range r.Tools {
		f := shared.FunctionDefinitionParam{Name: t.Name}
		if t.Description != "" {
			f.Description = openai.String(t.Description)
		}
		_ = json.Unmarshal(t.Schema, &f.Parameters) // one that is no object is refused by the server
		p.Tools = append(p.Tools, openai.ChatCompletionFunctionTool(f))
	}
	return p
}

// openaiMessages are those that one of ours becomes: each result is one.
func openaiMessages(m model.Message) []openai.ChatCompletionMessageParamUnion {
	switch m.Role {
	case model.RoleAssistant:
		a := &openai.ChatCompletionAssistantMessageParam{}
		if m.Text != "" || len(m.Calls) == 0 {
			a.Content.OfString = openai.String(m.Text)
		}
		for _, c := range m.Calls {
			f := &openai.ChatCompletionMessageFunctionToolCallParam{ID: c.ID}
			f.Function.Name, f.Function.Arguments = c.Name, string(arguments(c.Arguments))
			a.ToolCalls = append(a.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{OfFunction: f})
		}
		return []openai.ChatCompletionMessageParamUnion{{OfAssistant: a}}
	case model.RoleTool:
		var all []openai.ChatCompletionMessageParamUnion
		for _, t := range m.Results {
			text := t.Text
			if t.IsError { // the API has no other place for it
				text = "error: " + text
			}
			all = append(all, openai.ToolMessage(text, t.ID))
		}
		return all
	}
	return []openai.ChatCompletionMessageParamUnion{openai.UserMessage(m.Text)}
}

// openaiReader reads chunks. The library's accumulator is of no use: it adds up the counts of servers that repeat them,
// and joins the calls of servers that give all the same number.
type openaiReader struct {
	*stream
	at map[int64]int // place in calls of the one that is being written, by the server's number of it
}

// reader implements [protocol].
func (o *openaiClient) reader(s *stream) reader {
	s.provider, s.hint, s.header = "OpenAI", "look at base_url; for most servers it ends in /v1", "x-request-id"
	return &openaiReader{stream: s, at: map[int64]int{}}
}

func (s *openaiReader) event(data []byte) error {
	if e := gjson.GetBytes(data, "error"); e.Exists() && e.Type != gjson.Null ||
		gjson.GetBytes(data, "object").String() == "error" {
		return fromStream(data)
	}
	var c openai.ChatCompletionChunk
	if err := json.Unmarshal(data, &c); err != nil {
		return s.foreign("a piece of its stream is no chunk of a chat completion")
	}
	s.model, s.id = cmp.Or(s.model, c.Model), cmp.Or(s.id, c.ID)
	if u := c.Usage; u.PromptTokens+u.CompletionTokens > 0 { // zeros are those of a server that counts nothing
		s.usage = model.Usage{InputTokens: u.PromptTokens, CachedTokens: u.PromptTokensDetails.CachedTokens,
			OutputTokens: u.CompletionTokens}
	}
	if len(c.Choices) == 0 {
		return nil
	}
	d := c.Choices[0].Delta
	for _, name := range []string{"reasoning_content", "reasoning"} { // servers differ, and the library has neither
		s.thoughts += len(gjson.Get(d.RawJSON(), name).String())
	}
	if err := s.say(d.Content + d.Refusal); err != nil {
		return err
	}
	for _, t := range d.ToolCalls {
		if err := s.call(t.Index, t.ID, t.Function.Name, t.Function.Arguments); err != nil {
			return err
		}
	}
	if s.stop == "" {
		s.stop = openaiStop(c.Choices[0].FinishReason)
	}
	if d.Refusal != "" {
		s.stop = model.StopRefused
	}
	return nil
}

// call takes a piece of a call. What servers send differs: an ID in the first piece or in all of them or none, one
// number for each call or the same for all, arguments in many pieces or in one.
func (s *openaiReader) call(number int64, id, name, args string) error {
	at, ok := s.at[number]
	if ok {
		now := s.calls[at]
		ok = !(id != "" && now.ID != "" && id != now.ID) && // another call that has the same number
			!(id == "" && name != "" && json.Valid([]byte(now.Arguments))) // the same, of a server that gives no IDs either
	}
	if !ok {
		at = len(s.calls)
		s.calls, s.at[number] = append(s.calls, model.ToolCall{}), at
	}
	now := &s.calls[at]
	now.ID, now.Name, now.Arguments = cmp.Or(now.ID, id), cmp.Or(now.Name, name), now.Arguments+args
	return s.grow(len(id) + len(name) + len(args))
}

// whole makes one chunk of an answer that was not streamed.
func (s *openaiReader) whole(data []byte) error {
	if m := gjson.GetBytes(data, "choices.0.message"); m.IsObject() {
		data, _ = sjson.SetRawBytes(data, "choices.0.delta", []byte(m.Raw)) // there is that place, so it cannot fail
	} else if !gjson.GetBytes(data, "error").Exists() {
		return s.foreign("its answer has no choices")
	}
	return s.event(data)
}

func (s *openaiReader) end() {}

func openaiStop(reason string) model.Stop {
	switch reason {
	case "":
		return ""
	case "length":
		return model.StopLength
	case "content_filter":
		return model.StopRefused
	case "tool_calls", "function_call":
		return model.StopTools
	}
	return model.StopEnd
}
