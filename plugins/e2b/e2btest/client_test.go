package e2btest_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/hutch-run/hutch/plugins/e2b/e2btest"
	"github.com/hutch-run/hutch/plugins/e2b/internal/api/process/processconnect"
)

// client talks to a server as plainly as can be.
type client struct {
	s    *e2btest.Server
	http *http.Client
}

func newClient(t *testing.T, s *e2btest.Server) *client {
	t.Helper()
	c := &client{s, &http.Client{Timeout: 2 * time.Minute}}
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

// do makes a request and returns status, headers and body; body is sent as it is when it is bytes, else as JSON.
func (c *client) do(t *testing.T, method, path string, header map[string]string, body any) (int, http.Header, string) {
	t.Helper()
	status, h, text, err := c.try(method, path, header, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return status, h, text
}

func (c *client) try(method, path string, header map[string]string, body any) (int, http.Header, string, error) {
	var b []byte
	switch body := body.(type) {
	case nil:
	case []byte:
		b = body
	default:
		var err error
		if b, err = json.Marshal(body); err != nil {
			return 0, nil, "", err
		}
	}
	req, err := http.NewRequestWithContext(context.Background(), method, c.s.URL+path, bytes.NewReader(b))
	if err != nil {
		return 0, nil, "", err
	}
	req.Header.Set("X-API-Key", c.s.Key)
	req.Header.Set("Accept-Encoding", "identity")
	for k, v := range header {
		req.Header.Set(k, v)
		if k == "Host" {
			req.Host = v
		}
	}
	res, err := c.http.Do(req)
	if err != nil {
		return 0, nil, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, res.Header, string(text), err
}

type object = map[string]any

// create makes a sandbox that is not secure and returns its id.
func (c *client) create(t *testing.T, more object) string {
	t.Helper()
	body := object{"templateID": "base", "timeout": 120}
	for k, v := range more {
		body[k] = v
	}
	status, _, text := c.do(t, http.MethodPost, "/sandboxes", nil, body)
	var made struct{ SandboxID string }
	if err := json.Unmarshal([]byte(text), &made); err != nil || status != http.StatusCreated || made.SandboxID == "" {
		t.Fatalf("create: %d %s %v", status, text, err)
	}
	return made.SandboxID
}

// to are the headers of a request for a sandbox's daemon.
func to(id string) map[string]string {
	return map[string]string{"E2b-Sandbox-Id": id, "E2b-Sandbox-Port": "49983"}
}

// routed sends requests to one sandbox.
type routed struct {
	to   map[string]string
	next http.RoundTripper
}

func (r routed) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for k, v := range r.to {
		req.Header.Set(k, v)
	}
	return r.next.RoundTrip(req)
}

func (c *client) process(id string) processconnect.ProcessClient {
	return processconnect.NewProcessClient(&http.Client{Transport: routed{to(id), http.DefaultTransport}}, c.s.URL)
}

func basic(user string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"))
}

// daemonOf returns a client and the sandbox whose daemon it is to talk to: a new one of a new server, or what
// HUTCH_TEST_ENVD names, the URL of a daemon that somebody else has started: E2B's own, to see that both do the same.
func daemonOf(t *testing.T) (*client, string) {
	t.Helper()
	if at := os.Getenv("HUTCH_TEST_ENVD"); at != "" {
		c := newClient(t, &e2btest.Server{URL: at})
		if status, _, text := c.do(t, "POST", "/init", nil, object{"defaultUser": "user", "defaultWorkdir": "/home/user"}); status != 204 {
			t.Fatalf("init: %d %s", status, text)
		}
		if o := c.run(t, "", "root", `find /home/user /root /tmp -mindepth 1 -delete`); o.end.GetExitCode() != 0 || o.err != nil {
			t.Fatalf("%+v", o)
		}
		return c, ""
	}
	c := newClient(t, e2btest.ForTest(t, e2btest.Options{}))
	return c, c.create(t, nil)
}
