package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/sdk"
)

func filtered(allow ...string) Network { return Network{Mode: sdk.NetworkFiltered, Allow: allow} }

func TestFromFlags(t *testing.T) {
	for _, tc := range []struct {
		mode  string
		hosts []string
		want  Network
		bad   string
	}{
		{want: Network{}},
		{mode: "none", want: Network{Mode: sdk.NetworkNone}},
		{mode: "full", want: Network{Mode: sdk.NetworkFull}},
		{mode: "allow=a.example", want: filtered("a.example")},
		{mode: "allow=a.example,*.b.example:443", hosts: []string{"10.0.0.0/8:22", "a.example"}, want: filtered("a.example", "*.b.example:443", "10.0.0.0/8:22", "a.example")},
		{hosts: []string{"a.example"}, want: filtered("a.example")},
		{mode: "some", bad: `--network "some" is not a mode: want none, full, or allow=RULE,RULE`},
		{mode: "filtered", bad: "--network filtered: name what is allowed, such as --allow-host example.org:443"},
		{mode: "allow=", bad: "--network: a rule is empty"},
		{mode: "allow=a.example, b.example", bad: `--network: " b.example": invalid character " "`},
		{mode: "none", hosts: []string{"a.example"}, bad: "--network none and --allow-host exclude each other: leave out --network to reach nothing but a.example"},
		{mode: "full", hosts: []string{"host:80"}, want: Network{Mode: sdk.NetworkFull, Allow: []string{"host:80"}}},
		{hosts: []string{"a.example", "https://b.example/x"}, bad: `--allow-host: "https://b.example/x" is a URL: want the name alone, "b.example"`},
	} {
		got, err := FromFlags(tc.mode, tc.hosts)
		if tc.bad != "" {
			if err == nil || !strings.HasPrefix(err.Error(), tc.bad) {
				t.Errorf("%q %q: %v, want %s", tc.mode, tc.hosts, err, tc.bad)
			}
			continue
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("%q %q: %v %s", tc.mode, tc.hosts, err, diff)
		}
	}
}

func TestPorts(t *testing.T) {
	for text, want := range map[string]Port{
		"3000": {3000, 3000}, "8080:3000": {8080, 3000}, "0:1": {0, 1}, "65535:65535": {65535, 65535},
		"": {}, "0": {}, "3000:0": {}, ":3000": {}, "3000:": {}, "65536": {}, "-1": {}, "1.2.3.4:80:80": {}, "3000/udp": {}, "+3": {}, " 3": {},
	} {
		got, err := ParsePort(text)
		if (err != nil) != (want == Port{}) || err == nil && got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, tc := range []struct {
		ports []string
		bad   int // -1: none
	}{{nil, -1}, {[]string{"1", "2", "0:1", "0:1"}, -1}, {[]string{"1", "x"}, 1}, {[]string{"1", "2:1", "1:5"}, 2}} {
		i, err := CheckPorts(tc.ports)
		if err == nil {
			i = -1
		}
		if i != tc.bad {
			t.Errorf("%q: %d, %v", tc.ports, i, err)
		}
	}
}

// TestPublished looks at what a program of this machine gets: the server's bytes, an end, and a reset where there is
// none.
func TestPublished(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	defer server.Close()
	p, err := Port{Sandbox: 3000}.Listen(Network{Allow: []string{"host:3000", "127.0.0.1:3001", "127.0.0.0/8:3000"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	own := Network{Allow: []string{"127.0.0.1:3000"}} // connections would come back, for ever
	if p, err := (Port{Sandbox: 3000}).Listen(own); err == nil || !strings.Contains(err.Error(), "by the rule") {
		t.Errorf("a port that a rule makes this machine's: %v %v", p, err)
	}
	if _, err := (Port{Host: p.Host, Sandbox: 1}).Listen(Network{}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a port in use: %v", err)
	}
	refuse := atomic.Bool{}
	p.Serve(func(ctx context.Context, port int) (net.Conn, error) {
		if port != 3000 || refuse.Load() {
			return nil, errors.New("nothing listens")
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
	})
	url := fmt.Sprintf("http://127.0.0.1:%d/", p.Host)
	sent := strings.Repeat("0123456789", 1<<20)
	r, err := http.Post(url, "text/plain", strings.NewReader(sent))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil || string(got) != sent {
		t.Errorf("%d bytes came back, not %d: %v", len(got), len(sent), err)
	}
	http.DefaultClient.CloseIdleConnections()
	refuse.Store(true)
	if r, err := http.Get(url); err == nil {
		r.Body.Close()
		t.Errorf("without a server: %s", r.Status)
	} else if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
		t.Errorf("without a server: %v", err)
	}
	// What is open ends with it.
	refuse.Store(false)
	conn, err := net.Dial("tcp", p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if _, err := io.ReadAll(conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the end: %v", err)
	}
}

func TestWith(t *testing.T) {
	file := Network{Mode: sdk.NetworkFiltered, Allow: make([]string, 1, 8), Deny: []string{"d.example"}}
	file.Allow[0] = "a.example"
	for _, tc := range []struct{ file, flags, want Network }{
		{file, Network{}, file},
		{file, Network{Mode: sdk.NetworkNone}, Network{Mode: sdk.NetworkNone}},
		{file, Network{Mode: sdk.NetworkFull}, Network{Mode: sdk.NetworkFull}},
		{file, Network{Publish: []string{"1"}}, Network{Mode: sdk.NetworkFiltered, Allow: []string{"a.example"}, Deny: []string{"d.example"}, Publish: []string{"1"}}},
		{Network{Publish: []string{"1"}}, Network{Mode: sdk.NetworkFull, Publish: []string{"2"}}, Network{Mode: sdk.NetworkFull, Publish: []string{"1", "2"}}},
		{file, filtered("b.example"), Network{Mode: sdk.NetworkFiltered, Allow: []string{"a.example", "b.example"}, Deny: []string{"d.example"}}},
		{Network{Mode: sdk.NetworkFull}, filtered("b.example"), Network{Mode: sdk.NetworkFull, Allow: []string{"b.example"}}},
		{Network{}, filtered("b.example"), filtered("b.example")},
	} {
		if diff := cmp.Diff(tc.want, tc.file.With(tc.flags)); diff != "" {
			t.Errorf("%s with %s: %s", tc.file, tc.flags, diff)
		}
	}
	if got := file.Allow[:2][1]; got != "" {
		t.Errorf("the rules of the file were changed: %q", got)
	}
}

func TestTexts(t *testing.T) {
	for _, tc := range []struct {
		n              Network
		text, sentence string
	}{
		{Network{}, "none", "The sandbox has no network at all."},
		{Network{Mode: sdk.NetworkFull}, "full", "The sandbox reaches public names and addresses, over TCP. Anything else is denied at once, and trying again does not help."},
		{Network{Mode: sdk.NetworkFull, Allow: []string{"host:80"}, Deny: []string{"c.example"}}, "full, allow host:80; deny c.example",
			"The sandbox reaches public names and addresses, over TCP, and host:80; but not c.example. Anything else is denied at once, and trying again does not help."},
		{filtered(), "filtered, nothing allowed", "The sandbox has no network at all."},
		{Network{Mode: sdk.NetworkFiltered, Allow: []string{"a.example:443", "b.example"}, Deny: []string{"c.b.example"}}, "filtered, allow a.example:443, b.example; deny c.b.example",
			"The sandbox reaches these destinations only, over TCP: a.example:443, b.example; but not c.b.example. Anything else is denied at once, and trying again does not help."},
	} {
		if tc.n.String() != tc.text || tc.n.Sentence() != tc.sentence {
			t.Errorf("%q, %q", tc.n, tc.n.Sentence())
		}
	}
}

func TestDenial(t *testing.T) {
	for _, tc := range []struct {
		t         sdk.Traffic
		text, fix string
	}{
		{sdk.Traffic{Name: "a.example", Port: 443, Connections: 1}, "a.example:443 is not in network.allow", "--allow-host a.example:443"},
		{sdk.Traffic{Name: "a.example", Reason: "a.example is not in network.allow", Connections: 3}, "a.example is not in network.allow (3 times)", "--allow-host a.example"},
		{sdk.Traffic{Name: "a.example", Port: 443, Rule: "*.example"}, `a.example:443 is denied by "*.example" in network.deny`, ""},
		{sdk.Traffic{Name: "a.example", Port: 443, Reason: "a.example is 10.0.0.1:443, which is not public"}, "a.example is 10.0.0.1:443, which is not public", ""},
		{sdk.Traffic{Name: "a.example", Port: 443, Reason: "a.example is 10.0.0.1:443, which is not public", Add: "10.0.0.1:443"}, "a.example is 10.0.0.1:443, which is not public", "--allow-host 10.0.0.1:443"},
		{sdk.Traffic{Name: "a.example", Port: 443, Rule: "x", Reason: "a.example is no", Add: "$(rm -rf /)"}, "a.example is no", ""},
		{sdk.Traffic{Name: "a.example", Port: 443, Reason: "too many connections"}, "a.example:443: too many connections", ""},
		{sdk.Traffic{Name: "run this\n; rm -rf /\x1b[2J\u202e", Port: 53}, `"run this\n; rm -rf /\x1b[2J\u202e:53" is not in network.allow`, ""},
		{sdk.Traffic{Name: "a.example", Rule: "x", Reason: "a.example \x1b[2J"}, `a.example \x1b[2J`, ""},
	} {
		if text, fix := Denial(tc.t); text != tc.text || fix != tc.fix {
			t.Errorf("%+v: %q, %q", tc.t, text, fix)
		}
	}
}
