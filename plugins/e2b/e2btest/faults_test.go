package e2btest_test

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/plugins/e2b/e2btest"
)

func ptr[T any](v T) *T { return &v }

// TestFaultOfAnswer checks status, headers and counting.
func TestFaultOfAnswer(t *testing.T) {
	s := e2btest.ForTest(t, e2btest.Options{})
	c := newClient(t, s)
	f := s.Inject(e2btest.Fault{Method: "GET", Path: "/sandboxes/*", Skip: 1, Times: 2, Status: 429, Header: map[string]string{"Retry-After": "7"}})
	for i, want := range []int{404, 429, 429, 404} {
		status, h, text := c.do(t, "GET", "/sandboxes/"+unknown, nil, nil)
		if status != want || (want == 429) != (h.Get("Retry-After") == "7") || want == 429 && text != `{"code":429,"message":"Rate limit exceeded"}`+"\n" {
			t.Errorf("request %d: %d %v %s", i, status, h, text)
		}
	}
	if f.Hits() != 2 {
		t.Errorf("%d hits", f.Hits())
	}
	always := s.Inject(e2btest.Fault{Path: "/v2/sandboxes", Times: -1, Status: 500, Body: "plain"})
	for range 3 {
		if status, _, text := c.do(t, "GET", "/v2/sandboxes", nil, nil); status != 500 || text != "plain" {
			t.Errorf("%d %s", status, text)
		}
	}
	always.Remove()
	if status, _, _ := c.do(t, "GET", "/v2/sandboxes", nil, nil); status != 200 {
		t.Errorf("%d after it was removed", status)
	}
	statuses := map[int]int{}
	for _, r := range s.Requests() {
		statuses[r.Status]++
	}
	if statuses[429] != 2 || statuses[500] != 3 || statuses[404] != 2 {
		t.Errorf("%v", statuses)
	}
}

// TestFaultOfConnection drops the connection of a creation before and after its effect.
func TestFaultOfConnection(t *testing.T) {
	s := e2btest.ForTest(t, e2btest.Options{})
	c := newClient(t, s)
	for n, moment := range []e2btest.Moment{e2btest.Before, e2btest.After} {
		f := s.Inject(e2btest.Fault{Method: "POST", Path: "/sandboxes", Drop: moment})
		status, _, text, err := c.try("POST", "/sandboxes", nil, object{"templateID": "base", "timeout": 60})
		if err == nil || f.Hits() != 1 {
			t.Errorf("%s: %d %s, %d hits", moment, status, text, f.Hits())
		}
		if got := len(s.Sandboxes()); got != n {
			t.Errorf("%s: %d sandboxes, want %d", moment, got, n)
		}
	}
}

// TestFaultOfUpload lets a part of an upload through.
func TestFaultOfUpload(t *testing.T) {
	s := e2btest.ForTest(t, e2btest.Options{})
	c := newClient(t, s)
	id := c.create(t, nil)
	content := bytes.Repeat([]byte("0123456789"), 500_000)
	for _, quiet := range []bool{false, true} {
		f := s.Inject(e2btest.Fault{Method: "POST", Path: "/files", Upload: ptr[int64](3_000_000), Quiet: quiet})
		status, _, text, err := c.try("POST", "/files?path=short", with(to(id), "Content-Type", octets), content)
		if (err == nil) != quiet || quiet && status != 200 || f.Hits() != 1 {
			t.Errorf("quiet %v: %d %s %v", quiet, status, text, err)
		}
		size := func() string { return c.run(t, id, "", "stat -c %s short").stdout }
		if quiet && size() != "3000000\n" {
			t.Errorf("quiet: %s bytes were written", size())
		}
		if !quiet { // what got through stays
			until(t, "the short file is there", func() string {
				if got := size(); got != "3000000\n" {
					return got
				}
				return ""
			})
		}
		c.run(t, id, "", "rm short")
	}
}

// TestFaultOfDownload cuts an answer.
func TestFaultOfDownload(t *testing.T) {
	s := e2btest.ForTest(t, e2btest.Options{})
	c := newClient(t, s)
	id := c.create(t, nil)
	c.run(t, id, "", "head -c 1000000 /dev/zero > big")
	for _, quiet := range []bool{false, true} {
		s.Inject(e2btest.Fault{Method: "GET", Path: "/files", CutBytes: ptr[int64](70_000), Quiet: quiet})
		status, h, text, err := c.try("GET", "/files?path=big", to(id), nil)
		if (err == nil) != quiet || status != 200 || len(text) != 70_000 || h.Get("Content-Length") != "" {
			t.Errorf("quiet %v: %d %d bytes %v %v", quiet, status, len(text), h, err)
		}
	}
}

// TestFaultOfStream cuts a command's stream after the start, by a broken connection and by an answer that ends without
// the stream's end. The command goes on.
func TestFaultOfStream(t *testing.T) {
	s := e2btest.ForTest(t, e2btest.Options{})
	c := newClient(t, s)
	id := c.create(t, nil)
	for _, quiet := range []bool{false, true} {
		f := s.Inject(e2btest.Fault{Path: "/process.Process/Start", CutMessages: ptr(1), Quiet: quiet})
		stream, err := c.process(id).Start(context.Background(), script("touch began; sleep 1000"))
		if err != nil {
			t.Fatal(err)
		}
		events := 0
		for stream.Receive() {
			events++
		}
		if events != 1 || stream.Err() == nil || f.Hits() != 1 {
			t.Errorf("quiet %v: %d events, %v", quiet, events, stream.Err())
		}
		stream.Close()
		until(t, "the command goes on", func() string {
			if o := c.run(t, id, "", `pkill -xf 'sleep 1000'`); o.end.GetExitCode() != 0 {
				return o.end.String()
			}
			return ""
		})
	}
}

// TestFaultsOverTheWire switches faults on as another process does.
func TestFaultsOverTheWire(t *testing.T) {
	s := e2btest.ForTest(t, e2btest.Options{})
	c := newClient(t, s)
	if status, _, text := c.do(t, "POST", "/e2btest/faults", nil, object{"path": "/v2/sandboxes", "times": -1, "status": 503}); status != 204 {
		t.Fatalf("%d %s", status, text)
	}
	if status, _, _ := c.do(t, "GET", "/v2/sandboxes", nil, nil); status != 503 {
		t.Errorf("%d", status)
	}
	if status, _, text := c.do(t, "DELETE", "/e2btest/faults", nil, nil); status != 204 {
		t.Fatalf("%d %s", status, text)
	}
	if status, _, _ := c.do(t, "GET", "/v2/sandboxes", nil, nil); status != http.StatusOK {
		t.Errorf("%d", status)
	}
	if status, _, text := c.do(t, "POST", "/e2btest/faults", nil, object{"path": "/files", "cutByte": 1}); status != 400 || !strings.Contains(text, "cutByte") {
		t.Errorf("an unknown field: %d %s", status, text)
	}
	if status, _, _ := c.do(t, "POST", "/e2btest/faults", nil, object{"path": "["}); status != 400 {
		t.Errorf("a bad pattern: %d", status)
	}
}
