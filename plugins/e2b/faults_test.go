package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hutch-run/hutch/plugins/e2b/e2btest"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// TestCreateFaults has the service fail while a machine is made. Whatever comes of it, no machine is left that nobody
// knows.
func TestCreateFaults(t *testing.T) {
	cases := []struct {
		name   string
		fault  e2btest.Fault
		reason sdk.Reason // "" when it has to work all the same
		says   string
		posts  int // requests to make a machine
	}{
		{name: "the answer is lost", fault: e2btest.Fault{Method: "POST", Path: "/sandboxes", Drop: e2btest.After}, posts: 1},
		{name: "the request is lost", fault: e2btest.Fault{Method: "POST", Path: "/sandboxes", Drop: e2btest.Before}, posts: 2},
		{name: "the service fails once", fault: e2btest.Fault{Method: "POST", Path: "/sandboxes", Status: 500}, posts: 2},
		{name: "the service fails always", fault: e2btest.Fault{Method: "POST", Path: "/sandboxes", Status: 500, Times: -1}, reason: sdk.ReasonUnavailable, posts: 3},
		{name: "too fast, with a time", fault: e2btest.Fault{Method: "POST", Path: "/sandboxes", Status: 429, Header: map[string]string{"Retry-After": "2"}}, posts: 2},
		{name: "too fast, always", fault: e2btest.Fault{Method: "POST", Path: "/sandboxes", Status: 429, Body: `{"code":429,"message":"Rate limit exceeded"}`, Times: -1}, reason: sdk.ReasonQuota, says: "Rate limit", posts: 1},
		{name: "too many", fault: e2btest.Fault{Method: "POST", Path: "/sandboxes", Status: 429, Body: `{"code":429,"message":"you have reached the maximum number of concurrent E2B sandboxes (20)"}`}, reason: sdk.ReasonQuota, says: "maximum number", posts: 1},
		{name: "no room", fault: e2btest.Fault{Method: "POST", Path: "/sandboxes", Status: 503, Body: `{"code":503,"message":"no room","error_code":"sandbox_capacity_unavailable"}`}, reason: sdk.ReasonQuota, posts: 1},
		{name: "the key is refused", fault: e2btest.Fault{Method: "POST", Path: "/sandboxes", Status: 401, Body: `{"code":401,"message":"bad key"}`}, reason: sdk.ReasonDenied, says: "key", posts: 1},
		{name: "the team is blocked", fault: e2btest.Fault{Method: "POST", Path: "/sandboxes", Status: 403, Body: `{"code":403,"message":"team is blocked"}`}, reason: sdk.ReasonDenied, says: "blocked", posts: 1},
		{name: "the answer is no JSON", fault: e2btest.Fault{Method: "POST", Path: "/sandboxes", Status: 400, Body: "\x1b[2J<html>"}, reason: sdk.ReasonConfig, posts: 1},
		{name: "the name is an attack", fault: e2btest.Fault{Method: "POST", Path: "/sandboxes", Status: 201, Body: `{"sandboxID":"x.evil.example/","templateID":"base","envdVersion":"0.6.13"}`, Times: -1}, reason: sdk.ReasonUnavailable, says: "names a sandbox", posts: 3},
		{name: "the daemon is too old", fault: e2btest.Fault{Method: "POST", Path: "/sandboxes", Status: 201, Body: `{"sandboxID":"iold","templateID":"base","envdVersion":"0.4.0"}`}, reason: sdk.ReasonConfig, says: "0.5.7", posts: 1},
		{name: "the upload breaks once", fault: e2btest.Fault{Method: "POST", Path: "/files", Upload: new(int64)}, posts: 1},
		{name: "the upload meets a bad gateway", fault: e2btest.Fault{Method: "POST", Path: "/files", Status: 503, Times: 2}, posts: 1},
		{name: "half of the upload vanishes once", fault: e2btest.Fault{Method: "POST", Path: "/files", Upload: ptr(int64(100)), Quiet: true}, posts: 1},
		{name: "half of the upload vanishes again", fault: e2btest.Fault{Method: "POST", Path: "/files", Upload: ptr(int64(100)), Quiet: true, Times: 2}, reason: sdk.ReasonUnavailable, says: "not what was sent", posts: 1},
		{name: "the upload never works", fault: e2btest.Fault{Method: "POST", Path: "/files", Drop: e2btest.Before, Times: -1}, reason: "", says: "-", posts: 1},
	}
	s := local(t)
	dir := project(t, map[string]string{"a.txt": "a\n", "dir/b.txt": strings.Repeat("b", 100_000)})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			before := count(s, "POST", "/sandboxes")
			fault := s.Inject(c.fault)
			defer fault.Remove()
			sb, err := h.Create(t.Context(), request(t, dir))
			if fault.Hits() == 0 {
				t.Fatal("the fault was never met")
			}
			fault.Remove()
			if got := count(s, "POST", "/sandboxes") - before; got != c.posts {
				t.Errorf("%d requests to make a machine, want %d", got, c.posts)
			}
			switch {
			case c.reason == "" && c.says == "" && err != nil:
				t.Fatalf("it failed: %v", err)
			case c.reason == "" && c.says == "":
				if got := must(t, sb, "cat a.txt; wc -c < dir/b.txt"); got != "a\n100000\n" {
					t.Errorf("the workspace has %q", got)
				}
				if n := machines(t, h); n != 1 {
					t.Errorf("there are %d machines", n)
				}
				if err := sb.Destroy(t.Context()); err != nil {
					t.Error(err)
				}
			case err == nil:
				t.Fatal("it succeeded")
			case c.reason != "" && sdk.ReasonOf(err) != c.reason:
				t.Errorf("the reason is %q, want %q: %v", sdk.ReasonOf(err), c.reason, err)
			case c.says != "-" && !strings.Contains(err.Error(), c.says):
				t.Errorf("it does not speak of %q: %v", c.says, err)
			case strings.ContainsAny(err.Error(), "\x1b\n") || strings.Contains(err.Error(), s.Key):
				t.Errorf("the message is not fit to be shown: %q", err)
			}
			if n := machines(t, h); n != 0 {
				t.Errorf("%d machines are left", n)
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

// TestNothingWasMade: of a service that says no, or that is not there, no machine is looked for afterwards, and the
// host learns that there is nothing to find.
func TestNothingWasMade(t *testing.T) {
	s := local(t)
	dead := e2btest.ForTest(t, e2btest.Options{})
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name   string
		env    map[string]string
		reason sdk.Reason
		says   string
	}{
		{"the service is not there", map[string]string{envAPIURL: dead.URL}, sdk.ReasonUnavailable, dead.URL + " cannot be reached: "},
		{"the key is another one", map[string]string{envKey: "e2b_00"}, sdk.ReasonDenied, "does not take the API key"},
		{"the key has a line break", map[string]string{envKey: "e2b_00\n"}, sdk.ReasonConfig, "the key in " + envKey + " holds characters"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			var last sdk.Handle
			before := count(s, "GET", "/v2/sandboxes")
			_, err := newHost(t).Create(t.Context(), request(t, "", func(r *sdk.CreateRequest) {
				r.Allocated = func(h sdk.Handle) error { last = h; return nil }
			}))
			var e *sdk.Error
			if !errors.As(err, &e) || e.Reason != c.reason || !strings.Contains(err.Error(), c.says) || e.Fix == "" {
				t.Errorf("it says %v", err)
			}
			if len(last.Data) != 0 {
				t.Errorf("the host is left with the handle %s", last.Data)
			}
			if n := count(s, "GET", "/v2/sandboxes") - before; n != 0 {
				t.Errorf("a machine was looked for %d times", n)
			}
		})
	}
}

// TestCommandFaults breaks the connection to a command. What it reports is true, or it reports nothing.
func TestCommandFaults(t *testing.T) {
	s := local(t)
	h := newHost(t)
	sb := h.box(request(t, ""))
	const start, join = "/process.Process/Start", "/process.Process/Connect"

	t.Run("the stream breaks and is joined again", func(t *testing.T) {
		fault := s.Inject(e2btest.Fault{Path: start, CutMessages: ptr(2)})
		defer fault.Remove()
		var result chan error
		r := sh(t, sb, "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two; exit 7", func(c *client.Command) {
			result = make(chan error, 1)
			go func() {
				for fault.Hits() == 0 && t.Context().Err() == nil {
					time.Sleep(20 * time.Millisecond)
				}
				result <- sb.Put(t.Context(), "/workspace/go", sdk.FormatFile, strings.NewReader(""))
			}()
		})
		if err := <-result; err != nil {
			t.Errorf("put: %v", err)
		}
		if r.err == nil && (r.exit.Code != 7 || r.exit.Cause != sdk.CauseExited || !strings.Contains(r.exit.OutputLost, "broke once")) || r.err != nil {
			t.Errorf("%+v %v", r.exit, r.err)
		}
	})
	t.Run("the stream ends without an end", func(t *testing.T) {
		fault := s.Inject(e2btest.Fault{Path: start, CutMessages: ptr(2), Quiet: true})
		defer fault.Remove()
		if r := sh(t, sb, "echo x; exit 9"); r.err != nil || r.exit.Code != 9 {
			t.Errorf("%+v %v", r.exit, r.err)
		}
	})
	t.Run("and cannot be joined", func(t *testing.T) {
		fault := s.Inject(e2btest.Fault{Path: start, CutMessages: ptr(2)})
		never := s.Inject(e2btest.Fault{Path: join, Status: 404, Times: -1, Header: map[string]string{"Content-Type": "application/json"}, Body: `{"code":"not_found","message":"process not found"}`})
		defer fault.Remove()
		defer never.Remove()
		r := sh(t, sb, "echo x; sleep 1000")
		never.Remove()
		if r.err == nil || r.exit != nil || sdk.ReasonOf(r.err) != sdk.ReasonUnavailable {
			t.Errorf("no end was reported, and it says %+v %v", r.exit, r.err)
		}
		if got := must(t, sb, "ps ax -o args | grep -c '[s]leep 1000' || true"); got != "0\n" {
			t.Errorf("%s commands live on that nobody hears of", strings.TrimSpace(got))
		}
	})
	t.Run("the file with the command is cut", func(t *testing.T) {
		fault := s.Inject(e2btest.Fault{Path: "/files", Upload: ptr(int64(2500)), Quiet: true})
		defer fault.Remove()
		r := sh(t, sb, "touch /workspace/ran", func(c *client.Command) { c.Env["LONG"] = strings.Repeat("x\n", 1000) })
		if r.err == nil {
			t.Errorf("half a command ended with %+v", r.exit)
		}
		must(t, sb, "test ! -e ran")
	})
	t.Run("the file with the command comes at the second time", func(t *testing.T) {
		fault := s.Inject(e2btest.Fault{Path: "/files", Drop: e2btest.After})
		defer fault.Remove()
		if got := must(t, sb, "echo fine"); got != "fine\n" {
			t.Errorf("it printed %q", got)
		}
	})
	t.Run("it is not started", func(t *testing.T) {
		fault := s.Inject(e2btest.Fault{Path: start, Status: 429})
		defer fault.Remove()
		if r := sh(t, sb, "true"); r.err == nil || sdk.ReasonOf(r.err) != sdk.ReasonQuota {
			t.Errorf("%+v %v", r.exit, r.err)
		}
	})
	t.Run("the machine is gone", func(t *testing.T) {
		other := h.box(request(t, ""))
		var stop error
		r := sh(t, other, "echo ready; sleep 1000", func(c *client.Command) {
			c.Stdout = writer(func(b []byte) (int, error) {
				for _, m := range mustFind(t, h, other.ID()) {
					stop = errors.Join(stop, h.backend.clientFor(t).Delete(context.Background(), m))
				}
				return len(b), nil
			})
		})
		if stop != nil {
			t.Fatal(stop)
		}
		if r.err == nil || sdk.ReasonOf(r.err) != sdk.ReasonNotFound {
			t.Errorf("%+v %v", r.exit, r.err)
		}
		if err := other.Destroy(t.Context()); err != nil {
			t.Errorf("destroying what is gone: %v", err)
		}
	})
}

type writer func([]byte) (int, error)

// Write implements [io.Writer].
func (w writer) Write(b []byte) (int, error) { return w(b) }

// TestTransferFaults breaks what comes back.
func TestTransferFaults(t *testing.T) {
	s := local(t)
	h := newHost(t)
	sb := h.box(request(t, ""))
	must(t, sb, "mkdir t && head -c 300000 /dev/urandom > t/big && echo whole > file")
	cases := []struct {
		name   string
		fault  e2btest.Fault
		get    bool // or put
		format sdk.Format
		works  bool // all the same
	}{
		{"a tree is cut", e2btest.Fault{Method: "GET", Path: "/files", CutBytes: ptr(int64(1000))}, true, sdk.FormatTar, true},
		{"a tree is cut quietly", e2btest.Fault{Method: "GET", Path: "/files", CutBytes: ptr(int64(1000)), Quiet: true}, true, sdk.FormatTar, true},
		{"a tree is cut again and again", e2btest.Fault{Method: "GET", Path: "/files", CutBytes: ptr(int64(1000)), Times: -1}, true, sdk.FormatTar, false},
		{"a tree is another one", e2btest.Fault{Method: "GET", Path: "/files", Status: 200, Body: strings.Repeat("x", 5000)}, true, sdk.FormatTar, false},
		{"the packing is not reported", e2btest.Fault{Path: "/process.Process/Start", CutMessages: ptr(1)}, true, sdk.FormatTar, true},
		{"a file is cut", e2btest.Fault{Path: "/process.Process/Start", CutMessages: ptr(2)}, true, sdk.FormatFile, false},
		{"a put is cut", e2btest.Fault{Method: "POST", Path: "/files", Upload: ptr(int64(3))}, false, sdk.FormatFile, false},
		{"a put is cut quietly", e2btest.Fault{Method: "POST", Path: "/files", Upload: ptr(int64(3)), Quiet: true}, false, sdk.FormatFile, false},
		{"a put of nothing", e2btest.Fault{Method: "POST", Path: "/files", Status: 507, Body: `{"code":507,"message":"not enough disk space available"}`}, false, sdk.FormatFile, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			fault := s.Inject(c.fault)
			defer fault.Remove()
			var err error
			if c.get {
				err = sb.Get(t.Context(), map[sdk.Format]string{sdk.FormatTar: "/workspace/t", sdk.FormatFile: "/workspace/t/big"}[c.format], c.format, &bytes.Buffer{})
			} else {
				err = sb.Put(t.Context(), "/workspace/file", c.format, strings.NewReader("broken off\n"))
			}
			if fault.Hits() == 0 {
				t.Fatal("the fault was never met")
			}
			fault.Remove()
			if (err == nil) != c.works {
				t.Errorf("it came to %v", err)
			}
			if got := must(t, sb, "cat file"); got != "whole\n" {
				t.Errorf("the file is %q", got)
			}
		})
	}
	if got := must(t, sb, `ls -A /var/lib/hutch /var/lib/hutch/jobs/user | grep -vxE "/var/.*|jobs|" || true`); got != "" {
		t.Errorf("left in the machine: %q", got)
	}
}

// TestSign: what the daemon's own launcher says comes before the sign, and is not the command's.
func TestSign(t *testing.T) {
	cases := []struct {
		name   string
		joined bool
		pieces []string
		want   string
		begun  bool
	}{
		{"at once", false, []string{"SIGN0:;out"}, "out", true},
		{"in pieces", false, []string{"SI", "GN0", ":", ";ou", "t"}, "out", true},
		{"after the launcher's words", false, []string{"nice: cannot ", "set niceness\nSIGN0:;", "out"}, "out", true},
		{"never", false, []string{"sh: cannot open"}, "", false},
		{"a refusal", false, []string{"SIGN127:not there;"}, "", false},
		{"lost with the connection", true, []string{"out", "more"}, "outmore", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := &running{c: &sdk.Command{Started: func() {}}, job: &job{sign: "SIGN"}, begun: make(chan struct{}), joined: c.joined}
			got := ""
			for _, p := range c.pieces {
				got += string(r.unsign([]byte(p)))
			}
			if got != c.want || r.hasBegun() != c.begun {
				t.Errorf("passed on %q, begun %v; want %q, %v", got, r.hasBegun(), c.want, c.begun)
			}
		})
	}
}
