package intercept

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/sdk"
)

// TestTokens reads what each provider says of the tokens that it used, in pieces of any size.
func TestTokens(t *testing.T) {
	for _, tt := range []struct {
		name, kind, body, model string
		want                    *sdk.Tokens
	}{
		{"Anthropic", "text/event-stream; charset=utf-8", `event: message_start
data: {"type":"message_start","message":{"model":"claude-x","usage":{"input_tokens":25,"cache_read_input_tokens":7,"cache_creation_input_tokens":3,"output_tokens":1}}}

event: content_block_delta
data: {"type":"content_block_delta","delta":{"text":"\"usage\": {\"input_tokens\": 999}"}}

event: message_delta
data: {"type":"message_delta","usage":{"output_tokens":15}}
`, "claude-x", &sdk.Tokens{Input: 25, Output: 15, CacheRead: 7, CacheWrite: 3}},
		{"Anthropic at once", "application/json", `{"model":"claude-x","content":[],"usage":{"input_tokens":5,"output_tokens":6}}`, "claude-x", &sdk.Tokens{Input: 5, Output: 6}},
		{"OpenAI responses", "text/event-stream", `data: {"type":"response.created","response":{"model":"gpt-x","usage":null}}

data: {"type":"response.completed","response":{"model":"gpt-x","usage":{"input_tokens":30,"input_tokens_details":{"cached_tokens":10},"output_tokens":4}}}`,
			"gpt-x", &sdk.Tokens{Input: 20, Output: 4, CacheRead: 10}},
		{"OpenAI chat", "text/event-stream", "data: {\"model\":\"gpt-x\",\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\ndata: [DONE]\n", "gpt-x", &sdk.Tokens{Input: 3, Output: 2}},
		{"Google", "text/event-stream", `data: {"modelVersion":"gemini-x","usageMetadata":{"promptTokenCount":10,"cachedContentTokenCount":4,"candidatesTokenCount":1,"thoughtsTokenCount":2}}
data: {"usageMetadata":{"promptTokenCount":10,"cachedContentTokenCount":4,"candidatesTokenCount":5,"thoughtsTokenCount":2}}
`, "gemini-x", &sdk.Tokens{Input: 6, Output: 7, CacheRead: 4}},
		{"Google in a list", "application/json", `[{"modelVersion":"gemini-x","usageMetadata":{"promptTokenCount":1}},{"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":8}}]`, "gemini-x", &sdk.Tokens{Input: 1, Output: 8}},
		{"an error", "application/json", `{"message":"no","error":"bad"}`, "", nil},
		{"no JSON", "application/json", `"usage`, "", nil},
		{"another kind", "text/html", `{"model":"x","usage":{"input_tokens":5}}`, "", nil},
	} {
		for size := 1; size < len(tt.body)+1; size += 1 + size*size {
			m := &meter{}
			got := newTap(m, http.Header{"Content-Type": {tt.kind}})
			for rest := tt.body; rest != ""; rest = rest[min(size, len(rest)):] {
				got.add([]byte(rest[:min(size, len(rest))]))
			}
			got.end()
			if got == nil {
				got = &tap{}
			}
			if diff := cmp.Diff(tt.want, got.tokens); diff != "" || got.model != tt.model || m.held.Load() != 0 {
				t.Errorf("%s in pieces of %d: model %q, %d bytes held %s", tt.name, size, got.model, m.held.Load(), diff)
			}
		}
	}
}

func TestCost(t *testing.T) {
	prices := []sdk.Price{{Model: "a/small-*", Input: 1, Output: 2}, {Model: "a/*", Input: 10, Output: 20, CacheRead: 1, CacheWrite: 5}}
	used := sdk.Tokens{Input: 1e6, Output: 1e6, CacheRead: 1e6, CacheWrite: 1e6}
	for model, want := range map[string]float64{"a/small-1": 3, "a/big": 36, "b": 36, "": 36} {
		if got := cost(prices, model, used); math.Abs(got-want) > 1e-9 {
			t.Errorf("%q costs %g, want %g", model, got, want)
		}
	}
}

// TestBudget makes requests until the budget is used up, and looks at what the command gets and at the record.
func TestBudget(t *testing.T) {
	bothProtocols(t, func(t *testing.T, h2 bool) {
		for _, tt := range []struct {
			name   string
			budget sdk.Budget
			pass   int
			reason string
		}{
			{"requests", sdk.Budget{Requests: 3}, 3, "the budget of 3 requests is used up"},
			{"tokens", sdk.Budget{Tokens: 40}, 3, "the budget of 40 tokens is used up"},
			{"cost", sdk.Budget{Cost: 0.00025, Prices: []sdk.Price{{Model: "m", Input: 10, Output: 10}}}, 2, "the budget of 0.00025 is used up"},
			{"estimate", sdk.Budget{Tokens: 10}, 1, "the budget of 10 tokens is used up"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				w := newWall(t, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if tt.name == "estimate" {
						_, _ = io.WriteString(w, strings.Repeat("says nothing ", 5))
						return
					}
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprint(w, `{"model":"m","usage":{"input_tokens":10,"output_tokens":5}}`)
				})
				w.i.meter.budget = tt.budget
				c := w.client(h2)
				url, header := "https://"+host+"/repos/acme/x?key=secret-in-query", []string{"Authorization", "Bearer " + placeholder}
				for range tt.pass {
					if res, body := w.do(c, http.MethodPost, url, strings.NewReader("hello"), header...); res.StatusCode != http.StatusOK {
						t.Fatalf("%d %s", res.StatusCode, body)
					}
				}
				for range 2 { // also one with a key of its own
					res, body := w.do(c, http.MethodPost, url, strings.NewReader("hello"), header...)
					if res.StatusCode != http.StatusPaymentRequired || !strings.Contains(body, `"message":"hutch: `+tt.reason) || res.Header.Get("X-Should-Retry") != "false" {
						t.Errorf("beyond it: %d %v %s", res.StatusCode, res.Header, body)
					}
					header = []string{"Authorization", "Bearer own"}
				}
				out := w.outcome(c)
				if diff := cmp.Diff([]Denial{{"", tt.reason}}, out.Denied); diff != "" || len(out.Requests) != tt.pass+2 {
					t.Fatalf("%d requests; denied %s", len(out.Requests), diff)
				}
				first, last := out.Requests[0], out.Requests[tt.pass+1]
				if first.Path != "/repos/acme/x" || first.Method != http.MethodPost || first.Status != 200 || first.Refused || first.Sent != 5 || first.Received == 0 ||
					first.Time == "" || first.Took <= 0 || first.Tokens == nil || first.Tokens.Estimated != (tt.name == "estimate") {
					t.Errorf("the first is %+v, %+v", first, first.Tokens)
				}
				if last.Status != http.StatusPaymentRequired || !last.Refused || last.Tokens != nil {
					t.Errorf("the last is %+v", last)
				}
			})
		}
	})
}

// TestBudgetUpgrade refuses a WebSocket, whose messages nobody counts.
func TestBudgetUpgrade(t *testing.T) {
	w := newWall(t, echo)
	w.i.meter.budget = sdk.Budget{Tokens: 1}
	res, body := w.do(w.client(false), "GET", "https://"+host+"/", nil, "Connection", "Upgrade", "Upgrade", "websocket")
	if res.StatusCode != http.StatusUpgradeRequired {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}
