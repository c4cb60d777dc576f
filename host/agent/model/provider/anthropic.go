package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/hutch-run/hutch/host/agent/model"
)

// anthropicClient asks models by Anthropic's messages.
type anthropicClient struct {
	client anthropic.Client
	config model.Config
}

func newAnthropic(c model.Config, h *http.Client) *anthropicClient {
	url := cmp.Or(c.BaseURL, "https://api.anthropic.com")
	// The library adds v1 itself; servers of others show their address with it.
	url = strings.TrimSuffix(strings.TrimSuffix(url, "/"), "/v1") + "/"
	options := []option.RequestOption{option.WithoutEnvironmentDefaults(), option.WithBaseURL(url),
		option.WithHTTPClient(h), option.WithMaxRetries(0),
		option.WithHeader("accept", "text/event-stream, application/json")}
	if c.APIKey != "" {
		options = append(options, option.WithAPIKey(c.APIKey))
	}
	return &anthropicClient{client: anthropic.NewClient(options...), config: c}
}

// post implements [protocol].
func (o *anthropicClient) post(ctx context.Context, r model.Request) (res *http.Response, err error) {
	err = o.client.Post(ctx, "v1/messages", o.params(r), &res, option.WithJSONSet("stream", true))
	return res, err
}

// params is a request as the API has it.
func (o *anthropicClient) params(r model.Request) anthropic.MessageNewParams {
	p := anthropic.MessageNewParams{Model: anthropic.Model(o.config.Model), MaxTokens: int64(o.config.MaxTokens)}
	if o.config.Temperature != nil {
		p.Temperature = anthropic.Float(*o.config.Temperature)
	}
	if r.System != "" {
		p.System = []anthropic.TextBlockParam{{Text: r.System}}
	}
	for _, m := range r.Messages {
		if b := anthropicBlocks(m); len(b) == 0 {
			continue // the API takes no empty message, and joins what then follows upon each other
		} else if m.Role == model.RoleAssistant {
			p.Messages = append(p.Messages, anthropic.NewAssistantMessage(b...))
		} else {
			p.Messages = append(p.Messages, anthropic.NewUserMessage(b...))
		}
	}
	cacheUpToEnd(p.Messages)
	for _, t := range r.Tools {
		tool := anthropic.ToolUnionParamOfTool(param.Override[anthropic.ToolInputSchemaParam](t.Schema), t.Name)
		if t.Description != "" {
			tool.OfTool.Description = anthropic.String(t.Description)
		}
		p.Tools = append(p.Tools, tool)
	}
	return p
}

// cacheUpToEnd asks the provider to remember the conversation, so that the next turn pays a tenth for it.
func cacheUpToEnd(messages []anthropic.MessageParam) {
	if len(messages) == 0 {
		return
	}
	last := messages[len(messages)-1].Content
	switch b := last[len(last)-1]; {
	case b.OfText != nil:
		b.OfText.CacheControl = anthropic.NewCacheControlEphemeralParam()
	case b.OfToolResult != nil:
		b.OfToolResult.CacheControl = anthropic.NewCacheControlEphemeralParam()
	}
}

func anthropicBlocks(m model.Message) []anthropic.ContentBlockParamUnion {
	var all []anthropic.ContentBlockParamUnion
	for _, t := range m.Results {
		text := cmp.Or(t.Text, "(nothing)") // the API takes no empty text
		all = append(all, anthropic.NewToolResultBlock(t.ID, text, t.IsError))
	}
	if m.Text != "" {
		all = append(all, anthropic.NewTextBlock(m.Text))
	}
	for _, c := range m.Calls {
		all = append(all, anthropic.NewToolUseBlock(c.ID, arguments(c.Arguments), c.Name))
	}
	return all
}

// anthropicReader has the library put the message together.
type anthropicReader struct {
	*stream
	message anthropic.Message
}

// reader implements [protocol].
func (o *anthropicClient) reader(s *stream) reader {
	s.provider, s.hint, s.header = "Anthropic", "look at base_url", "request-id"
	return &anthropicReader{stream: s}
}

func (s *anthropicReader) event(data []byte) error {
	var e anthropic.MessageStreamEventUnion
	if err := json.Unmarshal(data, &e); err != nil {
		return s.foreign("a piece of its stream is no event of a message")
	}
	switch e.Type {
	case "error":
		return fromStream(data)
	case "content_block_stop": // with it the library drops arguments that are no JSON, which the model shall see
		return nil
	case "message_stop":
		s.ended = true
		return nil
	}
	if err := s.message.Accumulate(e); err != nil {
		return s.foreign(err.Error())
	}
	if len(s.message.Content) > 4*maxCalls {
		return s.foreign("it has too many blocks")
	}
	s.stop = anthropicStop(s.message.StopReason)
	if err := s.grow(len(e.Delta.PartialJSON)); err != nil {
		return err
	}
	return s.say(e.ContentBlock.Text + e.Delta.Text)
}

func (s *anthropicReader) whole(data []byte) error {
	err := json.Unmarshal(data, &s.message)
	if err == nil && s.message.Type == "error" {
		return fromStream(data)
	}
	if err != nil || s.message.StopReason == "" && len(s.message.Content) == 0 {
		return s.foreign("its answer is no message")
	}
	s.stop = anthropicStop(s.message.StopReason)
	for _, b := range s.message.Content {
		if err := s.grow(len(b.Input)); err != nil {
			return err
		}
		if err := s.say(b.Text); err != nil {
			return err
		}
	}
	return nil
}

func (s *anthropicReader) end() {
	for _, b := range s.message.Content {
		s.thoughts += len(b.Thinking)
		if b.Type == "tool_use" {
			s.calls = append(s.calls, model.ToolCall{ID: b.ID, Name: b.Name, Arguments: string(b.Input)})
		}
	}
	s.model, s.id = s.message.Model, s.message.ID
	u := s.message.Usage // of the input, the part that is cached is counted apart
	if in := u.InputTokens + u.CacheCreationInputTokens + u.CacheReadInputTokens; in > 0 {
		s.usage = model.Usage{InputTokens: in, CachedTokens: u.CacheReadInputTokens, OutputTokens: u.OutputTokens}
	}
}

func anthropicStop(reason anthropic.StopReason) model.Stop {
	switch reason {
	case "":
		return ""
	case anthropic.StopReasonMaxTokens, anthropic.StopReasonModelContextWindowExceeded:
		return model.StopLength
	case anthropic.StopReasonToolUse:
		return model.StopTools
	case anthropic.StopReasonRefusal:
		return model.StopRefused
	}
	return model.StopEnd
}
