package provider

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/units"
)

// TestRedactor cuts a text at every place: the key never comes out, and everything else does.
func TestRedactor(t *testing.T) {
	const key = "sk-sk-abc"
	for _, text := range []string{"the key is sk-sk-abc.", "sk-sk-sk-abc", "sk-sk-abcsk-sk-abc", "sk-", "none",
		"sk-sk-ab", "", "sk-sk-abd sk-sk-abc"} {
		want := strings.ReplaceAll(text, key, model.Redacted)
		for i := range len(text) + 1 {
			for j := i; j <= len(text); j++ {
				var out strings.Builder
				r := &redactor{key: key, out: func(s string) { out.WriteString(s) }}
				for _, piece := range []string{text[:i], text[i:j], text[j:]} {
					r.write(piece)
				}
				r.flush()
				if out.String() != want {
					t.Fatalf("%q, %q, %q: %q", text[:i], text[i:j], text[j:], out.String())
				}
			}
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name, value string
		want        time.Duration
	}{
		{"retry-after", "2", 2 * time.Second}, {"retry-after", "0", 0}, {"retry-after", "1.5", 1500 * time.Millisecond},
		{"retry-after-ms", "20", 20 * time.Millisecond},
		{"retry-after", "Fri, 02 Jan 2026 03:04:15 GMT", 10 * time.Second},
		{"retry-after", "Fri, 02 Jan 2026 03:04:00 GMT", 0},
		{"retry-after", "-1", -1}, {"retry-after", "soon", -1}, {"retry-after", "NaN", -1}, {"retry-after", "1e300", -1},
		{"other", "1", -1},
	} {
		h := http.Header{}
		h.Set(c.name, c.value)
		if got := retryAfter(h, now); got != c.want {
			t.Errorf("%s %s: %s", c.name, c.value, got)
		}
	}
}

// TestWordsOfProviders reads the errors that real servers send.
func TestWordsOfProviders(t *testing.T) {
	for _, c := range []struct {
		status  int
		body    string
		kind    model.Kind
		message string
	}{
		{401, `{"error":{"message":"Incorrect API key provided: sk-x.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`, model.KindAuth, "Incorrect API key provided: sk-x."},
		{400, `{"error":{"message":"This model's maximum context length is 128000 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, model.KindTooLong, "This model's maximum"},
		{429, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`, model.KindQuota, "You exceeded"},
		{404, `{"type":"error","error":{"type":"not_found_error","message":"model: claude-9"}}`, model.KindNotFound,
			"model: claude-9"},
		{400, `{"object":"error","message":"the prompt is too long for the context window","type":"BadRequestError","param":null,"code":400}`, model.KindTooLong, "the prompt"}, // vLLM
		{404, `{"error":"model 'x' not found"}`, model.KindNotFound, "model 'x' not found"},                                                                                     // Ollama
		{400, `{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}`, model.KindTooLong, "the request exceeds"}, // llama.cpp
		{503, `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`, model.KindServer,
			"Loading model"},
		{422, `{"detail":[{"loc":["body"],"msg":"field required"}]}`, model.KindProtocol, "field required"},
		{502, "<html>\n<h1>502 Bad Gateway</h1></html>", model.KindServer, "<html> <h1>502 Bad Gateway</h1></html>"},
		{500, "", model.KindServer, "status 500 Internal Server Error"},
		{418, "null", model.KindProtocol, ""},
	} {
		message, codes := describe([]byte(c.body))
		f := sortStatus(c.status, message, codes)
		f.show(strings.TrimSpace)
		if f.Kind != c.kind || !strings.Contains(f.Message, c.message) {
			t.Errorf("%d %s: %s, %q", c.status, c.body, f.Kind, f.Message)
		}
	}
}

func TestArguments(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":1}`: `{"a":1}`, "": "{}", " \n": "{}", "null": `{"invalid_arguments":"null"}`,
		"[1]": `{"invalid_arguments":"[1]"}`, `{"a`: `{"invalid_arguments":"{\"a"}`,
	} {
		if got := string(arguments(in)); got != want {
			t.Errorf("%q: %s", in, got)
		}
	}
}

// busy fails as often as n says.
type busy struct{ n int }

func (p *busy) post(context.Context, model.Request) (*http.Response, error) {
	if p.n--; p.n >= 0 {
		f := fail(model.KindServer, "busy")
		f.retry = true
		return nil, f
	}
	return &http.Response{Header: http.Header{"Content-Type": {"application/json"}}, Body: http.NoBody}, nil
}

func (p *busy) reader(*stream) reader { return done{} }

// done reads nothing.
type done struct{}

func (done) event([]byte) error { return nil }
func (done) whole([]byte) error { return nil }
func (done) end()               {}

func TestPauses(t *testing.T) {
	var asked []int
	k := &asker{protocol: &busy{3}, config: model.Config{Retries: 3, Timeout: units.Duration(time.Hour)}, log: t.Logf,
		pause: func(try int) time.Duration { asked = append(asked, try); return 0 }}
	a, err := k.ask(t.Context(), model.Request{}, func(string) {})
	if err != nil || a.Retries != 3 || !cmp.Equal(asked, []int{0, 1, 2}) {
		t.Errorf("%+v, %v, pauses before %v", a, err, asked)
	}
	k.protocol = &busy{4}
	var e *model.Error
	if _, err = k.ask(t.Context(), model.Request{}, func(string) {}); !errors.As(err, &e) ||
		e.Message != "busy (after 4 tries)" {
		t.Error(err)
	}
	for try := range 100 {
		if d := backoff(try); d < firstPause*3/4 || d > maxPause {
			t.Errorf("pause %d is %s", try, d)
		}
	}
}
