package ui

import (
	"strings"
	"testing"
	"time"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/agent/record"
	"github.com/hutch-run/hutch/host/store"
)

// TestConversation has a loop on its page while it goes on: what was said, which tools ran, attempts and the budget.
func TestConversation(t *testing.T) {
	w := newWorld(t)
	l, err := record.Begin(w.store, record.New{Kind: store.KindGenerate, Name: "loop", Definition: map[string]any{
		"attempts": 4, "tool_calls": 10, "model": map[string]any{"budget": map[string]any{"tokens": 1000, "time": "1h0m0s"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	id := l.ID()
	w.see("/runs/"+id, "The model has not answered yet", "0 of 4", "0 of 1000")
	call := model.ToolCall{ID: "c", Name: "exec", Arguments: `{"command":"rm -rf <b>"}`}
	req := model.Request{Messages: []model.Message{{Role: model.RoleUser, Text: "Write <script>alert(1)</script>"}}}
	if _, err := l.ModelCall(record.ModelCall{Request: req, Answer: model.Answer{Text: "I try \x1b[2J\u202e", Calls: []model.ToolCall{call}, Usage: model.Usage{InputTokens: 200, OutputTokens: 50}}, Started: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if err := l.ToolCall(record.ToolCall{Call: call, Result: model.ToolResult{ID: "c", Text: "no such <i>file</i>", IsError: true}, Started: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if err := l.Attempt(record.Attempt{N: 1, Class: "syntax", Detail: "line <3>"}); err != nil {
		t.Fatal(err)
	}
	page := w.see("/runs/"+id, "Write &lt;script&gt;", "I try", "rm -rf &lt;b&gt;", "no such &lt;i&gt;", "attempt 1: syntax", "line &lt;3&gt;", "1 of 4", "250 of 1000", "1 of 10", `value="25"`)
	if strings.ContainsAny(page, "\x1b\u202e") || strings.Contains(page, "<script>alert") {
		t.Errorf("a text of the model is not escaped:\n%s", page)
	}
	if _, err := l.End(store.End{OK: true, Cause: "done"}); err != nil {
		t.Fatal(err)
	}
	w.see("/runs/"+id+"?check=1", "Intact")
}
