package openai

import (
	"encoding/json"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/agent/model/provider"
)

// params is a request as the API has it.
func (o *Client) params(r model.Request) openai.ChatCompletionNewParams {
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
		p.Messages = append(p.Messages, messages(m)...)
	}
	for _, t := range r.Tools {
		f := shared.FunctionDefinitionParam{Name: t.Name}
		if t.Description != "" {
			f.Description = openai.String(t.Description)
		}
		if json.Unmarshal(t.Schema, &f.Parameters) != nil || f.Parameters == nil {
			f.Parameters = shared.FunctionParameters{"type": "object", "properties": map[string]any{}}
		}
		p.Tools = append(p.Tools, openai.ChatCompletionFunctionTool(f))
	}
	return p
}

// messages are those that one of ours becomes: each result is one.
func messages(m model.Message) []openai.ChatCompletionMessageParamUnion {
	switch m.Role {
	case model.RoleAssistant:
		a := &openai.ChatCompletionAssistantMessageParam{}
		if m.Text != "" || len(m.Calls) == 0 {
			a.Content.OfString = openai.String(m.Text)
		}
		for _, c := range m.Calls {
			a.ToolCalls = append(a.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
				ID: c.ID, Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{Name: c.Name, Arguments: string(provider.Arguments(c.Arguments))},
			}})
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
