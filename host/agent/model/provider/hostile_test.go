package provider

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/sdk/plaintext"
)

// FuzzAnswer reads the same bytes as an answer in each protocol, as a stream and as a whole.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		`{"choices":[{"delta":{"content":"a","tool_calls":[{"index":-1,"id":"c","function":{"name":"f","arguments":"{"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":-5,"completion_tokens":9}}`,
		`{"choices":[{"message":{"content":"a","refusal":"b","reasoning":"c"},"finish_reason":"length"}]}`,
		`{"type":"message_start","message":{"id":"m","model":"x","usage":{"input_tokens":-3}}}` + "\n\n" + `data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":"f","input":{}}}` +
			"\n\n" + `data: {"type":"content_block_delta","index":7,"delta":{"type":"input_json_delta","partial_json":"{"}}` + "\n\n" + `data: {"type":"message_stop"}`,
		`{"type":"message","content":[{"type":"text","text":"a"},{"type":"tool_use","input":7}],"stop_reason":"end_turn"}`,
		`{"type":"error","error":{"type":"overloaded_error","message":"x"}}`, `{"error":{"code":"429"}}`, "[DONE]", "x",
	} {
		f.Add(s)
		for from := 0; from < len(s); from += 5 { // and with a piece cut out
			f.Add(s[:from] + s[min(from+7, len(s)):])
		}
	}
	f.Fuzz(hostileAnswer)
}

// FuzzRefusal sorts what a server sends instead of an answer.
func FuzzRefusal(f *testing.F) {
	f.Add(uint16(401), []byte(`{"error":{"message":"`+testKey+` is\nwrong \u009b2J","code":"invalid_api_key"}}`), "1", "")
	f.Add(uint16(502), []byte("<html>\x1b[2J"+strings.Repeat("x", 590)+testKey), "-1", "")
	f.Add(uint16(307), []byte{}, "1e300", "http://x\u202e/")
	f.Add(uint16(429), []byte(`{"error":{"type":{"a":1},"code":429},"message":["x"]}`), "Fri, 02 Jan 2099 03:04:15 GMT", "")
	f.Fuzz(func(t *testing.T, status uint16, body []byte, after, location string) {
		res := &http.Response{StatusCode: int(status), Header: http.Header{"Retry-After": {after}, "Location": {location}},
			Body: io.NopCloser(bytes.NewReader(body))}
		c := model.Config{APIKey: testKey}
		for _, f := range []*failure{fromResponse(res), fromStream(body)} {
			f.show(c.Redact)
			if len(f.Message) > 610 || !plaintext.IsLine(f.Message) || f.Message == "" || f.Kind == "" || f.after < -1 {
				t.Errorf("%+v", f)
			}
			part := testKey[:len(testKey)-4] // of a key that was cut before it was found
			if cut := bytes.Count(body, []byte(part)) == bytes.Count(body, []byte(testKey)) && !bytes.Contains(body, []byte(`\`)); cut && strings.Contains(f.Message, part) ||
				strings.Contains(f.Message, testKey) {
				t.Errorf("a part of the key: %q", f.Message)
			}
		}
	})
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
