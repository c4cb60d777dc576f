package mcp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hutch-run/hutch/host/loopback"
)

const secret = "a-token-of-the-test"

// serveHTTP serves w until the test ends and returns the address.
func (w *world) serveHTTP() string {
	w.t.Helper()
	l, err := loopback.Listen("127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.ServeHTTP(ctx, l, secret) }()
	w.t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				w.t.Errorf("serve: %v", err)
			}
		case <-time.After(time.Minute):
			w.t.Error("the server did not end within a minute")
		}
	})
	return l.Addr().String()
}

// withToken sends every request with the token.
type withToken struct{}

func (withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+secret)
	return http.DefaultTransport.RoundTrip(r)
}

func TestHTTP(t *testing.T) {
	w := newServer(t, nil)
	addr := w.serveHTTP()
	transport := &mcp.StreamableClientTransport{Endpoint: "http://" + addr + "/mcp", HTTPClient: &http.Client{Transport: withToken{}}, DisableStandaloneSSE: true}
	w.connect(transport)
	name := w.create(m{})
	if got := w.sh(name, "echo over http").Stdout.Text; got != "over http\n" {
		t.Errorf("the output is %q", got)
	}
	// A second client of the same server knows the same sandboxes.
	w.connect(transport)
	w.sh(name, "true")
}

func TestHTTPRefuses(t *testing.T) {
	w := newServer(t, nil)
	addr := w.serveHTTP()
	port := addr[strings.LastIndexByte(addr, ':')+1:]
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"create_sandbox","arguments":{"name":"made"}}}`
	good := map[string]string{"Authorization": "Bearer " + secret, "Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
	for name, c := range map[string]struct {
		method, path, host string
		header             map[string]string
		want               int
	}{
		"no token":            {header: map[string]string{"Authorization": ""}, want: 401},
		"a wrong token":       {header: map[string]string{"Authorization": "Bearer a-token-of-the-tesT"}, want: 401},
		"a longer token":      {header: map[string]string{"Authorization": "Bearer " + secret + "x"}, want: 401},
		"another scheme":      {header: map[string]string{"Authorization": "Basic " + secret}, want: 401},
		"a token in the path": {path: "/mcp?token=" + secret, header: map[string]string{"Authorization": ""}, want: 401},
		"another host":        {host: "evil.example:" + port, want: 403},
		"another port":        {host: "127.0.0.1:1", want: 403},
		"no port":             {host: "localhost", want: 403},
		"an origin":           {header: map[string]string{"Origin": "http://evil.example"}, want: 403},
		"a local origin":      {header: map[string]string{"Origin": "http://localhost:" + port}, want: 403},
		"a null origin":       {header: map[string]string{"Origin": "null"}, want: 403},
		"another path":        {path: "/", want: 404},
		"GET":                 {method: http.MethodGet, want: 405},
		"DELETE":              {method: http.MethodDelete, want: 405},
		"PUT":                 {method: http.MethodPut, want: 405},
		"OPTIONS":             {method: http.MethodOptions, want: 405},
		"a form":              {header: map[string]string{"Content-Type": "text/plain"}, want: 415},
	} {
		t.Run(name, func(t *testing.T) {
			method, path := c.method, c.path
			if method == "" {
				method = http.MethodPost
			}
			if path == "" {
				path = "/mcp"
			}
			r, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, strings.NewReader(call))
			if err != nil {
				t.Fatal(err)
			}
			for k, v := range good {
				r.Header.Set(k, v)
			}
			for k, v := range c.header {
				if v == "" {
					r.Header.Del(k)
				} else {
					r.Header.Set(k, v)
				}
			}
			if c.host != "" {
				r.Host = c.host
			}
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			body, _ := io.ReadAll(res.Body)
			if res.StatusCode != c.want || strings.Contains(string(body), secret) {
				t.Errorf("got %s %s, want %d", res.Status, body, c.want)
			}
			if res.StatusCode == http.StatusUnauthorized && res.Header.Get("WWW-Authenticate") != "Bearer" {
				t.Error("it does not say what is wanted")
			}
			if res.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Error("it lets pages of others in")
			}
			if len(w.made) > 0 {
				t.Error("something was done")
			}
		})
	}
}

func TestShortToken(t *testing.T) {
	l, err := loopback.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := New(Options{}).ServeHTTP(t.Context(), l, "short"); err == nil || !strings.Contains(fmt.Sprint(err), "16") {
		t.Errorf("a short token: %v", err)
	}
}
