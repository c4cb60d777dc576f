package e2btest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-run/hutch/plugins/e2b/e2btest"
)

// until waits for something to become true; probe returns "" for true, or what it saw.
func until(t *testing.T, what string, probe func() string) {
	t.Helper()
	end := time.Now().Add(2 * time.Minute)
	for {
		saw := probe()
		if saw == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not so after two minutes; last seen: %s", what, saw)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

const unknown = "ixxxxxxxxxxxxxxxxxxxx"

// TestErrors checks status and body of what the control plane refuses.
func TestErrors(t *testing.T) {
	s := e2btest.ForTest(t, e2btest.Options{Templates: []string{"base", "other"}})
	c := newClient(t, s)
	id := c.create(t, nil)
	for _, tc := range []struct {
		name, method, path string
		header             map[string]string
		body               any
		status             int
		message            string
	}{
		{"no key", "GET", "/v2/sandboxes", map[string]string{"X-API-Key": ""}, nil, 401, "Missing authorization header"},
		{"wrong key", "GET", "/v2/sandboxes", map[string]string{"X-API-Key": "e2b_00"}, nil, 401, "Invalid API key"},
		{"no template", "POST", "/sandboxes", nil, object{"timeout": 60}, 400, "templateID is required"},
		{"unknown template", "POST", "/sandboxes", nil, object{"templateID": "x"}, 404, "template 'x' not found"},
		{"no JSON", "POST", "/sandboxes", nil, []byte("{"), 400, "Error when parsing request"},
		{"no time", "POST", "/sandboxes", nil, object{"templateID": "other", "timeout": 0}, 400, "Timeout must be greater than 0"},
		{"too much time", "POST", "/sandboxes", nil, object{"templateID": "base", "timeout": 3601}, 400, "Timeout cannot be greater than 1 hours"},
		{"volumes", "POST", "/sandboxes", nil, object{"templateID": "base", "volumeMounts": []object{{"name": "v", "path": "/v"}}}, 400, "no volumes"},
		{"resumed by traffic", "POST", "/sandboxes", nil, object{"templateID": "base", "autoResume": object{"enabled": true}}, 400, "resume"},
		{"closed to the public", "POST", "/sandboxes", nil, object{"templateID": "base", "network": object{"allowPublicTraffic": false}}, 400, "allowPublicTraffic"},
		{"get", "GET", "/sandboxes/" + unknown, nil, nil, 404, `Sandbox "` + unknown + `" doesn't exist or you don't have access to it`},
		{"delete", "DELETE", "/sandboxes/" + unknown, nil, nil, 404, "doesn't exist"},
		{"timeout", "POST", "/sandboxes/" + unknown + "/timeout", nil, object{"timeout": 1}, 404, "doesn't exist"},
		{"pause", "POST", "/sandboxes/" + unknown + "/pause", nil, nil, 404, "doesn't exist"},
		{"connect", "POST", "/v2/sandboxes/" + unknown + "/connect", nil, nil, 404, "doesn't exist"},
		{"timeout missing", "POST", "/sandboxes/" + id + "/timeout", nil, object{}, 400, "timeout"},
		{"connect v1 without timeout", "POST", "/sandboxes/" + id + "/connect", nil, object{}, 400, "timeout is required"},
		{"limit", "GET", "/v2/sandboxes?limit=101", nil, nil, 400, "limit"},
		{"state", "GET", "/v2/sandboxes?state=dead", nil, nil, 400, "state"},
		{"token", "GET", "/v2/sandboxes?nextToken=x", nil, nil, 400, "Invalid next token"},
		{"metadata", "GET", "/v2/sandboxes?metadata=x", nil, nil, 400, "is no pair"},
		{"snapshots", "POST", "/sandboxes/" + id + "/snapshots", nil, object{}, 501, "the local server does not implement POST"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, _, text := c.do(t, tc.method, tc.path, tc.header, tc.body)
			var e struct {
				Code    int
				Message string
			}
			if err := json.Unmarshal([]byte(text), &e); err != nil {
				t.Fatalf("%d %s: %v", status, text, err)
			}
			if status != tc.status || e.Code != tc.status || !strings.Contains(e.Message, tc.message) {
				t.Errorf("%d %s, want %d %q", status, text, tc.status, tc.message)
			}
		})
	}
	if n := len(s.Sandboxes()); n != 1 {
		t.Errorf("%d sandboxes after all that was refused, want 1", n)
	}
}

func TestConcurrencyLimit(t *testing.T) {
	c := newClient(t, e2btest.ForTest(t, e2btest.Options{MaxSandboxes: 2}))
	id := c.create(t, nil)
	c.create(t, nil)
	status, h, text := c.do(t, "POST", "/sandboxes", nil, object{"templateID": "base"})
	if status != 429 || h.Get("Retry-After") != "" || !strings.Contains(text, "maximum number of concurrent E2B sandboxes (2)") {
		t.Errorf("%d %v %s", status, h, text)
	}
	if status, _, text := c.do(t, "POST", "/sandboxes/"+id+"/pause", nil, nil); status != 204 {
		t.Fatalf("pause: %d %s", status, text)
	}
	c.create(t, nil) // a paused one takes no place
}

// TestLives checks the defaults and the changes of a sandbox's end.
func TestLives(t *testing.T) {
	s := e2btest.ForTest(t, e2btest.Options{})
	c := newClient(t, s)
	end := func(id string) time.Time {
		t.Helper()
		var d struct{ EndAt time.Time }
		if _, _, text := c.do(t, "GET", "/sandboxes/"+id, nil, nil); json.Unmarshal([]byte(text), &d) != nil {
			t.Fatal(text)
		}
		return d.EndAt
	}
	made := func(path string, body object) string {
		t.Helper()
		before := time.Now()
		status, _, text := c.do(t, "POST", path, nil, body)
		var h struct{ SandboxID, EnvdVersion, EnvdAccessToken string }
		if err := json.Unmarshal([]byte(text), &h); err != nil || status != 201 || h.EnvdVersion == "" {
			t.Fatalf("%d %s", status, text)
		}
		if secure := strings.HasPrefix(path, "/v2"); secure != (h.EnvdAccessToken != "") {
			t.Errorf("%s: token %q", path, h.EnvdAccessToken)
		}
		// Between the request and now, and so long after it: not how long it took.
		want := map[bool]time.Duration{true: 300 * time.Second, false: 15 * time.Second}[strings.HasPrefix(path, "/v2")]
		if got := end(h.SandboxID); got.Before(before.Add(want)) || got.After(time.Now().Add(want)) {
			t.Errorf("%s: it ends %s after it was asked for, want %s", path, got.Sub(before), want)
		}
		return h.SandboxID
	}
	first := made("/sandboxes", object{"templateID": "base"})
	if status, _, text := c.do(t, "POST", "/sandboxes/"+first+"/timeout", nil, object{"timeout": 900}); status != 204 {
		t.Fatalf("%d %s", status, text)
	}
	after := end(first)
	if d := time.Until(after); d < 700*time.Second || d > 900*time.Second {
		t.Errorf("it ends in %s", d)
	}
	// Connecting only extends.
	if status, _, text := c.do(t, "POST", "/v2/sandboxes/"+first+"/connect", nil, nil); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	if got := end(first); !got.Equal(after) {
		t.Errorf("it ends at %s, want %s", got, after)
	}
	made("/v2/sandboxes", object{"templateID": "base"})
}

// TestTimeIsOver checks that the end of a sandbox's time ends what is in it.
func TestTimeIsOver(t *testing.T) {
	s := e2btest.ForTest(t, e2btest.Options{})
	c := newClient(t, s)
	id := c.create(t, nil)
	marker := fmt.Sprintf("31%d", time.Now().UnixNano()) // a time to sleep that nobody else does
	if o := c.run(t, id, "", "setsid sleep "+marker+" >/dev/null 2>&1 &"); o.err != nil {
		t.Fatal(o.err)
	}
	until(t, "it sleeps", func() string { return want(1, sleepers(t, marker)) })
	root := s.Sandboxes()[0].Root
	if status, _, text := c.do(t, "POST", "/sandboxes/"+id+"/timeout", nil, object{"timeout": 0}); status != 204 {
		t.Fatalf("%d %s", status, text)
	}
	until(t, "it sleeps no more", func() string { return want(0, sleepers(t, marker)) })
	until(t, "the sandbox is forgotten", func() string {
		if status, _, text := c.do(t, "GET", "/sandboxes/"+id, nil, nil); status != 404 {
			return text
		}
		return ""
	})
	until(t, "its files are gone", func() string {
		if _, err := os.Stat(root); !os.IsNotExist(err) {
			return fmt.Sprint(err)
		}
		return ""
	})
	status, _, text := c.do(t, "GET", "/health", to(id), nil)
	if status != 502 || text != `{"code":502,"message":"The sandbox was not found","sandboxId":"`+id+"\"}\n" {
		t.Errorf("%d %s", status, text)
	}
}

func want(n int, pids []string) string {
	if len(pids) == n {
		return ""
	}
	return fmt.Sprintf("processes %v, want %d", pids, n)
}

// sleepers returns the processes of this machine that sleep for the time marker.
func sleepers(t *testing.T, marker string) (pids []string) {
	t.Helper()
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		b, err := os.ReadFile("/proc/" + d.Name() + "/cmdline")
		if err == nil && string(b) == "sleep\x00"+marker+"\x00" {
			pids = append(pids, d.Name())
		}
	}
	return pids
}

func TestPause(t *testing.T) {
	s := e2btest.ForTest(t, e2btest.Options{})
	c := newClient(t, s)
	id := c.create(t, nil)
	if o := c.run(t, id, "", `echo kept > f; mkdir closed; chmod 0 closed; sleep 1000 >/dev/null 2>&1 & echo $!`); o.err != nil {
		t.Fatal(o.err)
	}
	sleeping := func() int {
		return strings.Count(c.run(t, id, "", `cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' '`).stdout, "sleep 1000")
	}
	if n := sleeping(); n != 1 {
		t.Fatalf("%d", n)
	}
	for _, memory := range []bool{true, false} {
		if status, _, text := c.do(t, "POST", "/sandboxes/"+id+"/pause", nil, object{"memory": memory}); status != 204 {
			t.Fatalf("%d %s", status, text)
		}
		if status, _, _ := c.do(t, "POST", "/sandboxes/"+id+"/pause", nil, nil); status != 409 {
			t.Errorf("a second pause: %d", status)
		}
		if status, _, _ := c.do(t, "POST", "/sandboxes/"+id+"/timeout", nil, object{"timeout": 60}); status != 404 {
			t.Errorf("a timeout while paused: %d", status)
		}
		if status, _, _ := c.do(t, "GET", "/health", to(id), nil); status != 502 {
			t.Errorf("the daemon while paused: %d", status)
		}
		if all := s.Sandboxes(); len(all) != 1 || all[0].State != e2btest.Paused {
			t.Errorf("%+v", all)
		}
		if status, _, text := c.do(t, "POST", "/sandboxes/"+id+"/connect", nil, object{"timeout": 60}); status != 201 {
			t.Fatalf("%d %s", status, text)
		}
		if o := c.run(t, id, "", "cat f"); o.stdout != "kept\n" {
			t.Errorf("%+v", o)
		}
		if n := sleeping(); n != map[bool]int{true: 1, false: 0}[memory] {
			t.Errorf("memory %v: %d sleep", memory, n)
		}
	}
}

func TestLists(t *testing.T) {
	s := e2btest.ForTest(t, e2btest.Options{})
	c := newClient(t, s)
	var ids []string
	for i := range 3 {
		ids = append(ids, c.create(t, object{"metadata": object{"n": fmt.Sprint(i), "k =&": "v%/ü"}}))
	}
	if status, _, text := c.do(t, "POST", "/sandboxes/"+ids[0]+"/pause", nil, nil); status != 204 {
		t.Fatalf("%d %s", status, text)
	}
	list := func(path string) (got []string, h http.Header) {
		t.Helper()
		status, h, text := c.do(t, "GET", path, nil, nil)
		var l []struct{ SandboxID string }
		if err := json.Unmarshal([]byte(text), &l); err != nil || status != 200 {
			t.Fatalf("%s: %d %s", path, status, text)
		}
		for _, b := range l {
			got = append(got, b.SandboxID)
		}
		return got, h
	}
	check := func(path string, want ...string) http.Header {
		t.Helper()
		got, h := list(path)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
		return h
	}
	check("/v2/sandboxes?state=running", ids[2], ids[1])
	if h := check("/v2/sandboxes", ids[2], ids[1], ids[0]); h.Get("X-Next-Token") != "" {
		t.Errorf("%v", h)
	}
	check("/v2/sandboxes?state=paused", ids[0])
	pair := url.QueryEscape("k =&") + "=" + url.QueryEscape("v%/ü")
	for name, filter := range map[string]string{"as the SDK encodes": url.QueryEscape(url.QueryEscape(pair)), "n": "n%3D1"} {
		if got, _ := list("/v2/sandboxes?metadata=" + filter); len(got) != map[string]int{"as the SDK encodes": 3, "n": 1}[name] {
			t.Errorf("%s: %v", name, got)
		}
	}
	check("/v2/sandboxes?metadata=n%3D7")
	var all []string
	for next := ""; ; {
		page, h := list("/v2/sandboxes?limit=1" + next)
		all = append(all, page...)
		if h.Get("X-Next-Token") == "" || len(all) > 3 {
			break
		}
		next = "&nextToken=" + h.Get("X-Next-Token")
	}
	if want := []string{ids[2], ids[1], ids[0]}; !slices.Equal(all, want) {
		t.Errorf("pages: %v, want %v", all, want)
	}
}

// TestDaemonDies checks that a sandbox whose daemon is gone is gone.
func TestDaemonDies(t *testing.T) {
	s := e2btest.ForTest(t, e2btest.Options{})
	c := newClient(t, s)
	id := c.create(t, nil)
	h := to(id)
	h["Keepalive-Ping-Interval"], h["Content-Type"] = "0", "application/connect+json"
	body := `{"process":{"cmd":"sleep","args":["100"]}}`
	_, _, _, _ = c.try("POST", "/process.Process/Start", h, append([]byte{0, 0, 0, 0, byte(len(body))}, body...)) // no daemon survives this
	until(t, "the sandbox is gone", func() string {
		if all := s.Sandboxes(); len(all) != 0 {
			return fmt.Sprint(all)
		}
		return ""
	})
}
