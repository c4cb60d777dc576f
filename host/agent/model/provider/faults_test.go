package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/agent/model/scripted"
	"github.com/hutch-run/hutch/host/units"
)

const testKey = "hunter2-key-of-the-test"

// bound is how long a test waits for what must come.
const bound = 2 * time.Minute

var protocols = []string{model.OpenAI, model.Anthropic}

// ask makes a client of a server with this script.
func ask(t *testing.T, protocol, script string, change func(*model.Config)) (*asker, *scripted.Server) {
	t.Helper()
	s, err := scripted.Parse("test.txtar", []byte(script))
	if err != nil {
		t.Fatal(err)
	}
	v, err := scripted.Serve("127.0.0.1:0", s, testKey, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Close() })
	c := model.Config{Name: "m", Provider: protocol, Model: "test-model", BaseURL: v.URL() + "/v1", APIKey: testKey,
		Timeout: units.Duration(bound), Retries: 2}
	if change != nil {
		change(&c)
	}
	c = c.WithDefaults()
	return newAsker(c, func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); strings.Contains(text, testKey) {
			t.Errorf("the log holds the key: %s", text)
		}
	}), v
}

// request is a conversation with everything in it that one can have.
var request = model.Request{
	System: "You are a test.",
	Messages: []model.Message{
		{Role: model.RoleUser, Text: "hello"},
		{Role: model.RoleAssistant, Text: "I look.", Calls: []model.ToolCall{
			{ID: "c1", Name: "read_file", Arguments: `{"path":"a"}`}, {ID: "c2", Name: "read_file", Arguments: `{"path`},
			{ID: "c3", Name: "list_files"}}},
		{Role: model.RoleTool, Results: []model.ToolResult{{ID: "c1", Text: "contents of a"},
			{ID: "c2", Text: "bad arguments", IsError: true}, {ID: "c3"}}},
		{Role: model.RoleUser, Text: "go on"},
	},
	Tools: []model.Tool{
		{Name: "read_file", Description: "Reads a file.",
			Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"],"additionalProperties":false}`)},
		{Name: "list_files", Schema: json.RawMessage(`{"type":"object"}`)},
	},
}

const plain = "-- answer --\nHällo, wörld: this is an answer in many pieces.\n-- usage --\ninput 100 output 20 cached 60\n"

func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		name, script string
		only         string // a protocol
		want         model.Answer
	}{
		{name: "text", script: plain, want: model.Answer{Text: "Hällo, wörld: this is an answer in many pieces.",
			Stop: model.StopEnd, Usage: model.Usage{InputTokens: 100, CachedTokens: 60, OutputTokens: 20}}},
		{name: "whole", script: plain + "-- fault --\nwhole\n",
			want: model.Answer{Text: "Hällo, wörld: this is an answer in many pieces.", Stop: model.StopEnd,
				Usage: model.Usage{InputTokens: 100, CachedTokens: 60, OutputTokens: 20}}},
		{name: "expectations", script: plain + "-- expect --\ncontents of a\nbad arguments\ngo on\n-- not --\nhello\n-- system --\na test\n-- tools --\nread_file list_files\n",
			want: model.Answer{Text: "Hällo, wörld: this is an answer in many pieces.", Stop: model.StopEnd,
				Usage: model.Usage{InputTokens: 100, CachedTokens: 60, OutputTokens: 20}}},
		{name: "calls", script: "-- answer --\nI read.\n-- thought --\nwhat could it be\n-- call read_file x1 --\n{\"path\": \"some/long/path.txt\"}\n-- call list_files x2 --\n{}\n-- usage --\ninput 7 output 8\n",
			want: model.Answer{Text: "I read.", Stop: model.StopTools, Usage: model.Usage{InputTokens: 7, OutputTokens: 8},
				Calls: []model.ToolCall{{ID: "x1", Name: "read_file", Arguments: `{"path":"some/long/path.txt"}`},
					{ID: "x2", Name: "list_files", Arguments: "{}"}}}},
		{name: "whole calls", script: "-- answer --\n-- call read_file x1 --\n{\"path\": \"p\"}\n-- usage --\ninput 7 output 8\n-- fault --\nwhole\n",
			want: model.Answer{Stop: model.StopTools, Usage: model.Usage{InputTokens: 7, OutputTokens: 8},
				Calls: []model.ToolCall{{ID: "x1", Name: "read_file", Arguments: `{"path":"p"}`}}}},
		{name: "broken arguments", script: "-- answer --\n-- call read_file x1 --\n{\"path\": \"some/long\n-- usage --\ninput 7 output 8\n",
			want: model.Answer{Stop: model.StopTools, Usage: model.Usage{InputTokens: 7, OutputTokens: 8},
				Calls: []model.ToolCall{{ID: "x1", Name: "read_file", Arguments: `{"path": "some/long`}}}},
		{name: "no ids", only: model.OpenAI,
			script: "-- answer --\n-- call a --\n{\"x\": 1}\n-- call a --\n{\"x\": 2}\n-- usage --\ninput 7 output 8\n-- fault --\nno_ids\nsame_index\n",
			want: model.Answer{Stop: model.StopTools, Usage: model.Usage{InputTokens: 7, OutputTokens: 8},
				Calls: []model.ToolCall{{ID: "call_4_1", Name: "a", Arguments: `{"x":1}`}, {ID: "call_4_2", Name: "a",
					Arguments: `{"x":2}`}}}},
		{name: "one index for all", only: model.OpenAI,
			script: "-- answer --\n-- call a 1 --\n{\"x\": 1}\n-- call b 2 --\n{\"x\": 2}\n-- usage --\ninput 7 output 8\n-- fault --\nsame_index\n",
			want: model.Answer{Stop: model.StopTools, Usage: model.Usage{InputTokens: 7, OutputTokens: 8},
				Calls: []model.ToolCall{{ID: "1", Name: "a", Arguments: `{"x":1}`}, {ID: "2", Name: "b", Arguments: `{"x":2}`}}}},
		{name: "no done", script: plain + "-- fault --\nno_done\n",
			want: model.Answer{Text: "Hällo, wörld: this is an answer in many pieces.", Stop: model.StopEnd,
				Usage: model.Usage{InputTokens: 100, CachedTokens: 60, OutputTokens: 20}}},
		{name: "length", script: "-- answer --\nhalf\n-- stop --\nlength\n-- usage --\ninput 1 output 1\n",
			want: model.Answer{Text: "half", Stop: model.StopLength, Usage: model.Usage{InputTokens: 1, OutputTokens: 1}}},
		{name: "refused", script: "-- answer --\nno\n-- stop --\nrefused\n-- usage --\ninput 1 output 1\n",
			want: model.Answer{Text: "no", Stop: model.StopRefused, Usage: model.Usage{InputTokens: 1, OutputTokens: 1}}},
		{name: "retry", script: "-- answer --\n-- fault --\nstatus 429\nretry_after 0s\n-- answer --\n-- fault --\nstatus 529\nretry_after 1ms\n" + plain,
			want: model.Answer{Text: "Hällo, wörld: this is an answer in many pieces.", Stop: model.StopEnd, Retries: 2,
				Usage: model.Usage{InputTokens: 100, CachedTokens: 60, OutputTokens: 20}}},
	} {
		for _, protocol := range protocols {
			if c.only != "" && c.only != protocol {
				continue
			}
			t.Run(c.name+"/"+protocol, func(t *testing.T) {
				t.Parallel()
				k, _ := ask(t, protocol, c.script, nil)
				var pieces []string
				a, err := k.ask(t.Context(), request, func(s string) { pieces = append(pieces, s) })
				if err != nil {
					t.Fatal(err)
				}
				if a.Model != "test-model" || !strings.HasPrefix(a.RequestID, "req-scripted-") {
					t.Errorf("model %q, request %q", a.Model, a.RequestID)
				}
				a.Model, a.RequestID = "", ""
				if diff := cmp.Diff(c.want, a); diff != "" {
					t.Error(diff)
				}
				if strings.Join(pieces, "") != c.want.Text {
					t.Errorf("the pieces are %q", pieces)
				}
			})
		}
	}
}

// TestNoCounts estimates what a server does not count, also what the model thought.
func TestNoCounts(t *testing.T) {
	for _, protocol := range protocols {
		script := "-- answer --\n" + strings.Repeat("text ", 80) + "\n-- thought --\n" + strings.Repeat("hmm ", 100)
		k, _ := ask(t, protocol, script+"\n-- fault --\nno_usage\n", nil)
		a, err := k.ask(t.Context(), request, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		if !a.Usage.Estimated || a.Usage.OutputTokens != 200 || a.Usage.InputTokens < 50 {
			t.Errorf("%s: %+v", protocol, a.Usage)
		}
	}
}

// TestErrors is the table of what goes wrong. Each fault is all that the script has, so that a try too many is an
// error of kind script.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		fault   string
		tries   int
		kind    model.Kind
		status  int
		message string
	}{
		{"status 401", 1, model.KindAuth, 401, "status 401"},
		{"status 403", 1, model.KindAuth, 403, ""},
		{"status 402", 1, model.KindQuota, 402, ""},
		{"status 429\ntype insufficient_quota\nmessage You exceeded your current quota", 1, model.KindQuota, 429,
			"exceeded your current quota"},
		{"status 400\nmessage Your credit balance is too low", 1, model.KindQuota, 400, ""},
		{"status 429\nretry_after 1ms", 3, model.KindRate, 429, "after 3 tries"},
		{"status 429\nretry_after 1h", 1, model.KindRate, 429, "asks for a pause of 1h0m0s"},
		{"status 404\ntype not_found_error", 1, model.KindNotFound, 404, ""},
		{"status 413", 1, model.KindTooLong, 413, ""},
		{"status 400\ntype context_length_exceeded", 1, model.KindTooLong, 400, ""},
		{"status 400\nmessage prompt is too long: 210000 tokens > 200000 maximum", 1, model.KindTooLong, 400, "210000"},
		{"status 400\nmessage request exceeds the available context size", 1, model.KindTooLong, 400, ""},
		{"status 400\ntype content_policy_violation", 1, model.KindRefused, 400, ""},
		{"status 400\nmessage no such thing", 1, model.KindProtocol, 400, "no such thing"},
		{"status 500\nretry_after 1ms", 3, model.KindServer, 500, "after 3 tries"},
		{"status 529\nretry_after 1ms", 3, model.KindServer, 529, ""},
		{"status 501", 1, model.KindServer, 501, ""},
		{"redirect http://127.0.0.1:1/v1", 1, model.KindNotFound, 307, "http://127.0.0.1:1/v1"},
		{"html", 1, model.KindProtocol, 0, "text/html"},
		{"empty", 1, model.KindProtocol, 0, "is empty"},
		{"garbage", 1, model.KindProtocol, 0, "no JSON object"},
		{"status 401\necho_key", 1, model.KindAuth, 401, model.Redacted},
	} {
		for _, protocol := range protocols {
			t.Run(strings.ReplaceAll(c.fault, "\n", " ")+"/"+protocol, func(t *testing.T) {
				t.Parallel()
				k, v := ask(t, protocol, strings.Repeat("-- answer --\nsome text that is long enough to be cut in the middle\n-- fault --\n"+c.fault+"\n", 4), nil)
				_, err := k.ask(t.Context(), request, func(string) {})
				var e *model.Error
				if !errors.As(err, &e) {
					t.Fatalf("%T %v", err, err)
				}
				if e.Kind != c.kind || e.Status != c.status || !strings.Contains(e.Error(), c.message) || v.Used() != c.tries {
					t.Errorf("%d tries: %s %d %q", v.Used(), e.Kind, e.Status, e.Error())
				}
				if strings.Contains(e.Error(), testKey) {
					t.Error("the error holds the key")
				}
			})
		}
	}
}

// TestBrokenStreams asks again when a connection breaks, and says so when it keeps breaking.
func TestBrokenStreams(t *testing.T) {
	for _, fault := range []string{"cut", "reset", "no_stop\nno_done", "error_in_stream"} {
		for _, protocol := range protocols {
			t.Run(strings.Fields(fault)[0]+"/"+protocol, func(t *testing.T) {
				t.Parallel()
				broken := "-- answer --\nsome text that is long enough to be cut in the middle\n-- fault --\n" + fault + "\n"
				k, _ := ask(t, protocol, broken+plain, func(c *model.Config) { c.Retries = 1 })
				a, err := k.ask(t.Context(), request, func(string) {})
				if err != nil || a.Retries != 1 || !strings.HasPrefix(a.Text, "Hällo") {
					t.Errorf("%+v, %v", a, err)
				}
				k, v := ask(t, protocol, broken+broken, func(c *model.Config) { c.Retries = 0 })
				_, err = k.ask(t.Context(), request, func(string) {})
				var e *model.Error
				if !errors.As(err, &e) || e.Kind != model.KindNetwork && e.Kind != model.KindServer || v.Used() != 1 {
					t.Errorf("%v after %d tries", err, v.Used())
				}
			})
		}
	}
}

// TestKeyInAnswer has a provider say the key, in pieces.
func TestKeyInAnswer(t *testing.T) {
	for _, protocol := range protocols {
		k, _ := ask(t, protocol, "-- answer --\nyour key is \n-- call a --\n{}\n-- fault --\necho_key\n", nil)
		var shown strings.Builder
		a, err := k.ask(t.Context(), request, func(s string) { shown.WriteString(s) })
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if all := string(b) + shown.String(); strings.Contains(all, testKey) || strings.Count(all, model.Redacted) != 3 {
			t.Errorf("%s: %s", protocol, all)
		}
	}
}

// TestCancel ends what hangs in every way, and leaves no goroutine behind.
func TestCancel(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, fault := range []string{"hang", "stall", "delay 1h", "status 503\nretry_after 1m"} {
		for _, protocol := range protocols {
			t.Run(fault+"/"+protocol, func(t *testing.T) {
				k, v := ask(t, protocol, "-- answer --\nsome text that is long enough to be cut in the middle\n-- fault --\n"+fault+"\n", nil)
				ctx, cancel := context.WithCancelCause(t.Context())
				why := errors.New("the user had enough")
				go func() {
					for end := time.Now().Add(bound); v.Used() == 0 && time.Now().Before(end); {
						time.Sleep(time.Millisecond)
					}
					cancel(why)
				}()
				if _, err := k.ask(ctx, request, func(string) {}); !errors.Is(err, why) {
					t.Error(err)
				}
				_ = v.Close()
			})
		}
	}
	for end := time.Now().Add(bound); runtime.NumGoroutine() > before+2; {
		if time.Now().After(end) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestTimeout(t *testing.T) {
	for _, protocol := range protocols {
		k, _ := ask(t, protocol, "-- answer --\n-- fault --\nhang\n",
			func(c *model.Config) { c.Timeout = units.Duration(50 * time.Millisecond) })
		_, err := k.ask(t.Context(), request, func(string) {})
		var e *model.Error
		if !errors.As(err, &e) || e.Kind != model.KindNetwork || !strings.Contains(e.Message, "no answer within 50ms") {
			t.Errorf("%s: %v", protocol, err)
		}
	}
}

func TestTooMuch(t *testing.T) {
	for _, protocol := range protocols {
		k, _ := ask(t, protocol, "-- answer --\n-- fault --\nbig 20000000\n", nil)
		_, err := k.ask(t.Context(), request, func(string) {})
		var e *model.Error
		if !errors.As(err, &e) || e.Kind != model.KindProtocol || !strings.Contains(e.Message, "larger than 16 MiB") {
			t.Errorf("%s: %v", protocol, err)
		}
	}
}

// TestTooManyCalls bounds what an answer may ask for.
func TestTooManyCalls(t *testing.T) {
	for _, protocol := range protocols {
		for calls, message := range map[int]string{maxCalls: "", maxCalls + 1: "more than 256 tool calls"} {
			k, _ := ask(t, protocol, "-- answer --\n"+strings.Repeat("-- call a --\n{}\n", calls), nil)
			a, err := k.ask(t.Context(), request, func(string) {})
			var e *model.Error
			if message == "" && (err != nil || len(a.Calls) != calls) ||
				message != "" && (!errors.As(err, &e) || e.Kind != model.KindProtocol || !strings.Contains(e.Message, message)) {
				t.Errorf("%s: %d calls of %d, %v", protocol, len(a.Calls), calls, err)
			}
		}
	}
}

// TestNobodyThere asks a port that nobody listens on.
func TestNobodyThere(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	_ = ln.Close()
	for _, protocol := range protocols {
		k, _ := ask(t, protocol, plain, func(c *model.Config) { c.BaseURL, c.Retries = "http://"+addr, 0 })
		_, err := k.ask(t.Context(), request, func(string) {})
		var e *model.Error
		if !errors.As(err, &e) || e.Kind != model.KindNetwork || !strings.Contains(e.Error(),
			"whether the server is running") {
			t.Errorf("%s: %v", protocol, err)
		}
	}
}

// TestScriptErrors says which answer was not meant for which request.
func TestScriptErrors(t *testing.T) {
	for _, protocol := range protocols {
		k, _ := ask(t, protocol, "-- answer --\n-- expect --\nnobody says this\n"+"-- answer --\nlast\n", nil)
		for i, want := range []string{`answer 1 of test.txtar expects "nobody says this" in the last message, which is: `,
			"", "test.txtar ends with answer 2, and this is request 3"} {
			_, err := k.ask(t.Context(), request, func(string) {})
			var e *model.Error
			if (want == "") != (err == nil) || err != nil && (!errors.As(err, &e) || e.Kind != model.KindScript ||
				!strings.Contains(e.Message, want)) {
				t.Errorf("%s, request %d: %v", protocol, i+1, err)
			}
		}
	}
}

// TestTogether asks one client from many goroutines.
func TestTogether(t *testing.T) {
	for _, protocol := range protocols {
		k, v := ask(t, protocol, strings.Repeat(plain, 16), nil)
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				if a, err := k.ask(t.Context(), request, func(string) {}); err != nil || !strings.HasPrefix(a.Text, "Hällo") {
					t.Errorf("%+v, %v", a, err)
				}
			})
		}
		wg.Wait()
		if v.Used() != 16 {
			t.Errorf("%d requests", v.Used())
		}
	}
}

// TestOldServers sends what a server knows: OpenAI's newer names to anyone who insists on them.
func TestOldServers(t *testing.T) {
	script := "-- answer --\n-- fault --\nstatus 400\nmessage Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.\n" +
		"-- answer --\n-- fault --\nstatus 400\nmessage stream_options: extra fields not permitted\n" + plain
	k, v := ask(t, model.OpenAI, script, func(c *model.Config) { c.Retries = 0 })
	if a, err := k.ask(t.Context(), request, func(string) {}); err != nil || a.Retries != 0 || v.Used() != 3 {
		t.Errorf("%+v, %v after %d requests", a, err, v.Used())
	}
}
