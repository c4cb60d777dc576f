package intercept

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
)

// TestBodies has placeholders in bodies, in one piece and byte by byte.
func TestBodies(t *testing.T) {
	const form = "application/x-www-form-urlencoded"
	for _, tt := range []struct {
		name, kind, body, denied string
		status                   int
	}{
		{"a prompt", "application/json", `{"env": "TOKEN=` + placeholder + `"}`, "secret TOKEN: its placeholder in the body", 200},
		{"no type", "", strings.Repeat("x", 100_000) + placeholder, "secret TOKEN: its placeholder in the body", 200},
		{"another secret's", "text/plain", otherHolder, "secret OTHER: its placeholder in the body", 200},
		{"half of one", "text/plain", placeholder[:20] + "," + placeholder[20:], "", 200},
		{"a form", form + "; charset=utf-8", "grant=x&client_secret=" + placeholder, "secret TOKEN: its placeholder is in a form", 403},
		{"a form without", form, "a=b", "", 200},
	} {
		bothProtocols(t, func(t *testing.T, h2 bool) {
			for pieces, read := range map[string]func(string) io.Reader{
				"whole":        func(s string) io.Reader { return strings.NewReader(s) },
				"byte by byte": func(s string) io.Reader { return iotest.OneByteReader(strings.NewReader(s)) },
			} {
				t.Run(tt.name+" "+pieces, func(t *testing.T) {
					var mu sync.Mutex
					came := ""
					w := newWall(t, func(_ http.ResponseWriter, r *http.Request) {
						b, _ := io.ReadAll(r.Body)
						mu.Lock()
						defer mu.Unlock()
						came = string(b)
					})
					c := w.client(h2)
					res, body := w.do(c, "POST", "https://"+host+"/user", read(tt.body), "Content-Type", tt.kind)
					out := w.outcome(c)
					mu.Lock()
					defer mu.Unlock()
					if res.StatusCode != tt.status || (came == tt.body) != (tt.status == 200) || strings.Contains(came, placeholder) && tt.status != 200 {
						t.Errorf("%d %s, the host got %.100q", res.StatusCode, body, came)
					}
					if tt.denied == "" != (len(out.Denied) == 0) || len(out.Denied) > 1 || tt.denied != "" && !strings.HasPrefix(out.Denied[0].Reason, tt.denied) {
						t.Errorf("denied: %+v", out.Denied)
					}
				})
			}
		})
	}
}

// TestFormDoesNotLeave has a host that answers before it has read a form.
func TestFormDoesNotLeave(t *testing.T) {
	bothProtocols(t, func(t *testing.T, h2 bool) {
		var asked atomic.Bool
		w := newWall(t, func(http.ResponseWriter, *http.Request) { asked.Store(true) })
		c := w.client(h2)
		res, body := w.do(c, "POST", "https://"+host+"/user", iotest.OneByteReader(strings.NewReader("a="+placeholder)),
			"Content-Type", "application/x-www-form-urlencoded")
		if out := w.outcome(c); res.StatusCode != http.StatusForbidden || asked.Load() || len(out.Denied) != 1 {
			t.Errorf("%d %s, asked the host: %v, denied %v", res.StatusCode, body, asked.Load(), out.Denied)
		}
	})
}
