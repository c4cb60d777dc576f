package provider

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/host/agent/model"
)

// TestHostileAnswers reads the same bytes as an answer in each protocol, as a stream and as a whole, and with a piece
// cut out of them. It is not a fuzz target: the compiler takes a quarter of an hour and 2 GB to instrument the
// providers' libraries.
func TestHostileAnswers(t *testing.T) {
	for _, s := range []string{
		`{"choices":[{"delta":{"content":"a","tool_calls":[{"index":-1,"id":"c","function":{"name":"f","arguments":"{"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":-5,"completion_tokens":9}}`,
		`{"choices":[{"message":{"content":"a","refusal":"b","reasoning":"c"},"finish_reason":"length"}]}`,
		`{"type":"message_start","message":{"id":"m","model":"x","usage":{"input_tokens":-3}}}` + "\n\n" + `data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":"f","input":{}}}` +
			"\n\n" + `data: {"type":"content_block_delta","index":7,"delta":{"type":"input_json_delta","partial_json":"{"}}` + "\n\n" + `data: {"type":"message_stop"}`,
		`{"type":"message","content":[{"type":"text","text":"a"},{"type":"tool_use","input":7}],"stop_reason":"end_turn"}`,
		`{"type":"error","error":{"type":"overloaded_error","message":"x"}}`, `{"error":{"code":"429"}}`, "[DONE]", "x",
	} {
		hostileAnswer(t, s)
		for from := range s {
			for _, n := range []int{1, 7} {
				hostileAnswer(t, s[:from]+s[min(from+n, len(s)):])
			}
		}
	}
}

func hostileAnswer(t *testing.T, body string) {
	for _, p := range []protocol{&openaiClient{}, &anthropicClient{}} {
		for _, streamed := range []bool{true, false} {
			said := ""
			s := &stream{delta: func(piece string) { said += piece }}
			to := p.reader(s)
			var err error
			if streamed {
				err = s.events(&http.Response{Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader("data: " + body + "\n\n"))}, to)
			} else {
				err = to.whole([]byte(body))
			}
			if err != nil {
				continue
			}
			to.end()
			a, err := s.answer(model.Request{}, "")
			if err != nil {
				continue
			}
			if u := a.Usage; min(u.InputTokens, u.CachedTokens, u.OutputTokens) < 0 || a.Stop == "" || a.Text != said || len(a.Calls) > maxCalls {
				t.Errorf("%T: %+v", p, a)
			}
			for _, c := range a.Calls {
				if raw := arguments(c.Arguments); c.ID == "" || !strings.HasPrefix(strings.TrimSpace(string(raw)), "{") {
					t.Errorf("%T: %+v", p, c)
				}
			}
		}
	}
}
