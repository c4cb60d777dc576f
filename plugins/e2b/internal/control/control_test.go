package control

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

const key = "e2b_0123456789abcdef"

// scripted answers the requests in turn, and keeps them.
type scripted struct {
	answers  []answer
	requests []string
	queries  []url.Values
	bodies   []map[string]any
	bad      []string
}

type answer struct {
	status int
	body   string
	header map[string]string
	drop   bool
}

// ServeHTTP implements [http.Handler].
func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-API-Key") != key {
		s.bad = append(s.bad, "no key")
	}
	body := map[string]any{}
	_ = json.NewDecoder(r.Body).Decode(&body)
	s.requests, s.queries, s.bodies = append(s.requests, r.Method+" "+r.URL.Path), append(s.queries, r.URL.Query()), append(s.bodies, body)
	a := answer{status: 200, body: "{}"}
	if len(s.answers) > 0 {
		a, s.answers = s.answers[0], s.answers[1:]
	}
	if a.drop {
		panic(http.ErrAbortHandler)
	}
	for k, v := range a.header {
		w.Header().Set(k, v)
	}
	w.WriteHeader(a.status)
	_, _ = w.Write([]byte(a.body))
}

func start(t *testing.T, answers ...answer) (*scripted, *Client, *[]time.Duration) {
	t.Helper()
	s := &scripted{answers: answers}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	c := New(server.URL+"/", key, &http.Transport{DisableKeepAlives: true})
	slept := &[]time.Duration{}
	c.Sleep = func(_ context.Context, d time.Duration) error { *slept = append(*slept, d); return nil }
	return s, c, slept
}

func TestRetries(t *testing.T) {
	get := func(c *Client) error { _, err := c.Get(t.Context(), "iabc"); return err }
	create := func(c *Client) error { _, err := c.Create(t.Context(), NewSandbox{Template: "base"}); return err }
	slow := answer{status: 429, body: `{"code":429,"message":"Rate limit exceeded"}`, header: map[string]string{"Retry-After": "7"}}
	good := answer{status: 200, body: `{"sandboxID":"iabc"}`}
	cases := []struct {
		name    string
		call    func(*Client) error
		answers []answer
		sent    int
		kind    Kind // "" when it has to work
		waits   time.Duration
	}{
		{"at once", get, []answer{good}, 1, "", 0},
		{"a broken connection", get, []answer{{drop: true}, {drop: true}, good}, 3, "", 0},
		{"a failure of the service", get, []answer{{status: 502}, {status: 500}, good}, 3, "", 0},
		{"always a failure", get, []answer{{status: 500}, {status: 500}, {status: 500}, {status: 500}, {status: 500}, good}, attempts, Service, 0},
		{"asked to wait", get, []answer{slow, good}, 2, "", 7 * time.Second},
		{"asked to wait, making one", create, []answer{slow, good}, 2, "", 7 * time.Second},
		{"asked to wait for an hour", get, []answer{{status: 429, header: map[string]string{"Retry-After": "3600"}}, good}, 1, Rate, 0},
		{"too many, without a time", create, []answer{{status: 429}, good}, 1, Quota, 0},
		{"making one is not repeated: broken", create, []answer{{drop: true}, good}, 1, Service, 0},
		{"making one is not repeated: failed", create, []answer{{status: 500}, good}, 1, Service, 0},
		{"a wrong key", get, []answer{{status: 401}, good}, 1, Key, 0},
		{"not for this team", get, []answer{{status: 403}, good}, 1, Access, 0},
		{"gone", get, []answer{{status: 404, body: `{"message":"Sandbox \"iabc\" doesn't exist"}`}}, 1, Gone, 0},
		{"no such template", create, []answer{{status: 404, body: `{"message":"template 'x' not found"}`}}, 1, Template, 0},
		{"no room", create, []answer{{status: 503, body: `{"message":"m","error_code":"sandbox_capacity_unavailable"}`}}, 1, Capacity, 0},
		{"a wrong value", create, []answer{{status: 400, body: `{"message":"Timeout cannot be greater than 1 hours"}`}}, 1, Request, 0},
		{"no JSON", get, []answer{{status: 200, body: "<html>"}}, 1, Service, 0},
		{"a redirect is not followed", get, []answer{{status: 302, header: map[string]string{"Location": "https://evil.example.com/"}}}, 1, Service, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s, client, slept := start(t, c.answers...)
			err := c.call(client)
			var e *Error
			switch {
			case c.kind == "" && err != nil:
				t.Errorf("it failed: %v", err)
			case c.kind != "" && (!errors.As(err, &e) || e.Kind() != c.kind):
				t.Errorf("got %v, want the kind %s", err, c.kind)
			}
			if len(s.requests) != c.sent || len(s.bad) > 0 {
				t.Errorf("it sent %v %v, want %d", s.requests, s.bad, c.sent)
			}
			if c.waits > 0 && (len(*slept) != 1 || (*slept)[0] != c.waits) {
				t.Errorf("it waited %v, want %s", *slept, c.waits)
			}
		})
	}
}

func TestCreateAsksForWhatIsSafe(t *testing.T) {
	s, c, _ := start(t, answer{status: 201, body: `{"sandboxID":"iabc","templateID":"t","envdVersion":"0.6.13","envdAccessToken":"tok","domain":null}`})
	got, err := c.Create(t.Context(), NewSandbox{Template: "base", Timeout: 90*time.Second + 1, Metadata: map[string]string{"k": "v"}, AutoPause: true})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&Sandbox{ID: "iabc", Template: "t", EnvdVersion: "0.6.13", AccessToken: "tok"}, got); diff != "" {
		t.Error(diff)
	}
	want := map[string]any{"templateID": "base", "timeout": 91.0, "secure": true, "allow_internet_access": false, "autoPause": true, "metadata": map[string]any{"k": "v"}}
	if diff := cmp.Diff(want, s.bodies[0]); diff != "" {
		t.Errorf("what was asked for (-want +got):\n%s", diff)
	}
}

// Names that would become part of an address must not lead elsewhere.
func TestNamesAreChecked(t *testing.T) {
	for _, body := range []string{`{"sandboxID":""}`, `{"sandboxID":"a/b"}`, `{"sandboxID":"a.evil.example"}`, `{"sandboxID":"A"}`, `{"sandboxID":"iabc","domain":"evil.example/x"}`,
		`{"sandboxID":"iabc","domain":"a..b"}`, `{"sandboxID":"iabc","domain":"user@evil"}`} {
		_, c, _ := start(t, answer{status: 201, body: body})
		if s, err := c.Create(t.Context(), NewSandbox{}); err == nil {
			t.Errorf("%s gave %+v", body, s)
		}
	}
}

func TestGoneIsDone(t *testing.T) {
	_, c, _ := start(t, answer{status: 404})
	if err := c.Delete(t.Context(), "iabc"); err != nil {
		t.Errorf("deleting what is gone: %v", err)
	}
	_, c, _ = start(t, answer{status: 409})
	if err := c.Pause(t.Context(), "iabc"); err != nil {
		t.Errorf("pausing what is paused: %v", err)
	}
	s, c, _ := start(t, answer{status: 409}, answer{status: 200, body: `{"sandboxID":"iabc"}`})
	if _, err := c.Connect(t.Context(), "iabc", time.Minute); err != nil || len(s.requests) != 2 {
		t.Errorf("connecting to what is just being paused: %v, %v", err, s.requests)
	}
}

// TestFind follows the pages, escapes the filter as the service takes it apart, and takes nothing that does not carry
// it.
func TestFind(t *testing.T) {
	mine, other := `{"sandboxID":"imine","metadata":{"a b":"c%d"}}`, `{"sandboxID":"iother","metadata":{"a b":"x"}}`
	s, c, _ := start(t, answer{status: 200, body: "[" + other + "]", header: map[string]string{"X-Next-Token": "n"}}, answer{status: 200, body: "[" + mine + "]"})
	got, err := c.Find(t.Context(), map[string]string{"a b": "c%d"})
	if err != nil || len(got) != 1 || got[0].ID != "imine" {
		t.Errorf("%+v %v", got, err)
	}
	whole, err := url.QueryUnescape(s.queries[0].Get("metadata"))
	if err != nil {
		t.Fatal(err)
	}
	pairs, err := url.ParseQuery(whole)
	if err != nil || pairs.Get("a b") != "c%d" {
		t.Errorf("the service would read %v %v", pairs, err)
	}
	if s.queries[1].Get("nextToken") != "n" || s.queries[0].Get("state") != "running,paused" {
		t.Errorf("the queries were %v", s.queries)
	}
}

func TestMessagesAreFitToBeShown(t *testing.T) {
	_, c, _ := start(t, answer{status: 400, body: `{"message":"\u001b[2J your key ` + key + ` is\nodd ` + strings.Repeat("x", 5000) + `"}`})
	_, err := c.Create(t.Context(), NewSandbox{})
	if err == nil || strings.Contains(err.Error(), key) || strings.ContainsAny(err.Error(), "\x1b\n") || len(err.Error()) > 700 {
		t.Errorf("%q", err)
	}
}

// FuzzRefusal sees to it that what the service refuses with is one short line without the key.
func FuzzRefusal(f *testing.F) {
	f.Add([]byte(`{"message":"no `+key+`\n","error_code":"x"}`), "3")
	f.Add([]byte("<html>\x1b[2J"), "99999999999999")
	f.Add([]byte(`{"message":"\u009b","error_code":7}`), "-1")
	c := &Client{key: key}
	f.Fuzz(func(t *testing.T, body []byte, after string) {
		var e *Error
		err := c.refusal(call{}, &http.Response{StatusCode: http.StatusInternalServerError, Header: http.Header{"Retry-After": {after}}}, body)
		if !errors.As(err, &e) || e.RetryAfter < 0 || e.RetryAfter > 24*time.Hour {
			t.Fatalf("%#v", err)
		}
		for _, s := range []string{e.Message, e.Code} {
			if len(s) > 503 || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) || strings.Contains(s, key) {
				t.Errorf("%q", s)
			}
		}
	})
}
