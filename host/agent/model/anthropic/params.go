package anthropic

import (
	"encoding/json"

	"github.com/anthropics/anthropic-sdk-go"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/agent/model/provider"
)

// params is a request as the API has it.
func (o *Client) params(r model.Request) anthropic.MessageNewParams {
	p := anthropic.MessageNewParams{Model: anthropic.Model(o.config.Model), MaxTokens: int64(o.config.MaxTokens)}
	if o.config.Temperature != nil {
		p.Temperature = anthropic.Float(*o.config.Temperature)
	}
	if r.System != "" {
		p.System = []anthropic.TextBlockParam{{Text: r.System}}
	}
	for _, m := range r.Messages {
		if b := blocks(m); len(b) == 0 {
			continue // the API takes no empty message, and joins what then follows upon each other
		} else if m.Role == model.RoleAssistant {
			p.Messages = append(p.Messages, anthropic.NewAssistantMessage(b...))
		} else {
			p.Messages = append(p.Messages, anthropic.NewUserMessage(b...))
		}
	}
	cache(p.Messages)
	for _, t := range r.Tools {
		tool := anthropic.ToolUnionParamOfTool(schema(t.Schema), t.Name)
		if t.Description != "" {
			tool.OfTool.Description = anthropic.String(t.Description)
		}
		p.Tools = append(p.Tools, tool)
	}
	return p
}

// cache asks the provider to remember the conversation up to its end, so that the next turn pays a tenth for it.
func cache(messages []anthropic.MessageParam) {
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

func blocks(m model.Message) []anthropic.ContentBlockParamUnion {
	var all []anthropic.ContentBlockParamUnion
	for _, t := range m.Results {
		text := t.Text
		if text == "" {
			text = "(nothing)" // the API takes no empty text
		}
		all = append(all, anthropic.NewToolResultBlock(t.ID, text, t.IsError))
	}
	if m.Text != "" {
		all = append(all, anthropic.NewTextBlock(m.Text))
	}
	for _, c := range m.Calls {
		all = append(all, anthropic.NewToolUseBlock(c.ID, provider.Arguments(c.Arguments), c.Name))
	}
	return all
}

// schema takes a JSON schema apart as the library has it.
func schema(raw json.RawMessage) anthropic.ToolInputSchemaParam {
	p := anthropic.ToolInputSchemaParam{Properties: map[string]any{}}
	var m map[string]any
	if json.Unmarshal(raw, &m) != nil {
		return p
	}
	if properties, ok := m["properties"]; ok {
		p.Properties = properties
	}
	if required, ok := m["required"].([]any); ok {
		for _, r := range required {
			if name, ok := r.(string); ok {
				p.Required = append(p.Required, name)
			}
		}
	}
	for _, known := range []string{"type", "properties", "required"} {
		delete(m, known)
	}
	p.ExtraFields = m
	return p
}
