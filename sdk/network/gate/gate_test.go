//go:build linux

package gate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/network"
	"github.com/hutch-run/hutch/sdk/network/gate"
	"github.com/hutch-run/hutch/sdk/network/netns"
)

// clientVariable makes the test binary a client in a filtered namespace: 1, or a port of the loopback that is the host's.
const clientVariable = "HUTCH_TEST_CLIENT"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv("ATTACK_TOKEN") != "":
		os.Exit(attackHere())
	case os.Getenv(clientVariable) == "":
		os.Exit(m.Run())
	}
	if err := client(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// client filters its namespace, hands the listeners over, waits until they are served, and makes the attempts that its
// arguments name.
func client() error {
	ns, err := unix.Open("/proc/self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	var ports []int
	if port, _ := strconv.Atoi(os.Getenv(clientVariable)); port > 1 {
		ports = []int{port}
	}
	l, err := netns.Filter(ns, ports)
	if err != nil {
		return err
	}
	if err := netns.Send(3, l); err != nil {
		return err
	}
	if _, err := unix.Read(3, make([]byte, 1)); err != nil {
		return err
	}
	l.Close()
	for _, line := range os.Args[1:] {
		fmt.Printf("%s: %s\n", line, attempt(line))
	}
	return nil
}

func attempt(line string) string {
	verb, rest, _ := strings.Cut(line, " ")
	if do := attempts[verb]; do != nil {
		return do(rest)
	}
	return "there is no attempt " + verb
}

// inside makes attempts in a filtered namespace that a gate with o serves, and returns what they printed and the gate's
// record.
func inside(t *testing.T, o gate.Options, lines ...string) (string, []sdk.Traffic, int64) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	far := os.NewFile(uintptr(pair[1]), "socket")
	defer unix.Close(pair[0])
	cmd := exec.Command("/proc/self/exe", lines...)
	rules, err := network.Parse(o.Network, o.Rules)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), clientVariable+"="+fmt.Sprint(append(rules.Loopback(), 1)[0]), "GODEBUG=netdns=go")
	cmd.ExtraFiles = []*os.File{far}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatalf("start a client in a user namespace: %v", err)
	}
	far.Close()
	l, err := netns.Receive(pair[0])
	if err != nil {
		t.Fatalf("no listeners: %v; %s", errors.Join(err, cmd.Wait()), &errs)
	}
	g, err := gate.Open(l, o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if _, err := unix.Write(pair[0], []byte{0}); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the client: %v\n%s%s", err, &out, &errs)
	}
	traffic, more := g.Close()
	return out.String(), traffic, more
}

// attempts are what a client can do. Each returns what came of it in one line.
var attempts = map[string]func(string) string{
	"http":    func(url string) string { return request(http.MethodGet, url, nil) },
	"post":    func(url string) string { return request(http.MethodPost, url, bytes.NewReader(make([]byte, 1<<20))) },
	"resolve": resolve,
	"udp":     func(to string) string { return talk("udp", to, "x") },
	"tcp":     func(to string) string { return talk("tcp", to, "") },
	"raw":     func(to string) string { return talk("tcp", to, "\x00\x01\x02") },
	"tls":     func(to string) string { return talk("tcp", to, "\x16\x03\x01\x00\x05hello") },
	"dns-tcp": func(line string) string {
		server, name, _ := strings.Cut(line, " ")
		return resolveBy("tcp", server, name)
	},
	"dns-udp": func(line string) string {
		server, name, _ := strings.Cut(line, " ")
		return resolveBy("udp", server, name)
	},
	"listener":  listener,
	"many":      many,
	"distinct":  distinct,
	"half":      half,
	"abandoned": abandoned,
}

func request(method, url string, body io.Reader) string {
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		return err.Error()
	}
	c := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(req)
	if err != nil {
		return errorText(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s %s", resp.StatusCode, strings.TrimSpace(string(data)), errorText(err))
}

// errorText is the part of an error that does not depend on ports and wording of the net package.
func errorText(err error) string {
	var dns *net.DNSError
	var errno syscall.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &dns) && dns.IsNotFound:
		return "no such name"
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, io.EOF):
		return "EOF"
	}
	return err.Error()
}

func resolve(name string) string { return resolveBy("", "", name) }

func resolveBy(transport, server, name string) string {
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		d := net.Dialer{}
		if transport == "" {
			return d.DialContext(ctx, network, "127.0.0.1:53")
		}
		return d.DialContext(ctx, transport, server)
	}}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	addrs, err := r.LookupHost(ctx, name+".")
	if err != nil {
		return errorText(err)
	}
	return strings.Join(addrs, " ")
}

// talk sends data and reads up to a few bytes.
func talk(network, to, data string) string {
	conn, err := net.DialTimeout(network, to, 20*time.Second)
	if err != nil {
		return errorText(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := conn.Write([]byte(data)); err != nil {
		return errorText(err)
	}
	buf := make([]byte, 64)
	n, err := conn.Read(buf)
	if n > 0 {
		return fmt.Sprintf("%q", buf[:n])
	}
	return errorText(err)
}

// listener connects to every port of its own loopback that something listens on.
func listener(string) string {
	data, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, line := range strings.Split(string(data), "\n")[1:] {
		f := strings.Fields(line)
		if len(f) < 4 || f[3] != "0A" {
			continue
		}
		_, hex, _ := strings.Cut(f[1], ":")
		port, _ := strconv.ParseUint(hex, 16, 16)
		if port != 53 {
			out = append(out, talk("tcp", fmt.Sprintf("127.0.0.1:%d", port), "GET / HTTP/1.1\r\nHost: allowed.example\r\n\r\n"))
		}
	}
	return strings.Join(out, ",")
}

// many makes connections at once, each with a request.
func many(line string) string {
	url, count, _ := strings.Cut(line, " ")
	n, _ := strconv.Atoi(count)
	transport := &http.Transport{DisableKeepAlives: true}
	c := &http.Client{Transport: transport, Timeout: time.Minute}
	var mu sync.Mutex
	got := map[string]int{}
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			resp, err := c.Get(url)
			what := errorText(err)
			if err == nil {
				what = resp.Status
				resp.Body.Close()
			}
			mu.Lock()
			defer mu.Unlock()
			got[what]++
		})
	}
	all.Wait()
	return fmt.Sprint(got)
}

// distinct looks up that many names.
func distinct(count string) string {
	n, _ := strconv.Atoi(count)
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := w; i < n; i += 8 {
				resolve(fmt.Sprintf("n%d.denied.example", i))
			}
		})
	}
	all.Wait()
	return "ok"
}

// half sends all of a request and closes its side before it reads.
func half(to string) string {
	conn, err := net.Dial("tcp", to)
	if err != nil {
		return errorText(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "everything")
	_ = conn.(*net.TCPConn).CloseWrite()
	data, err := io.ReadAll(conn)
	return fmt.Sprintf("%s %s", data, errorText(err))
}

// abandoned sends data and ends without waiting for an answer.
func abandoned(to string) string {
	conn, err := net.Dial("tcp", to)
	if err != nil {
		return errorText(err)
	}
	_, err = conn.Write(bytes.Repeat([]byte("x"), 1<<20))
	return errorText(err)
}

// world is the network outside of a test's gate: what names resolve to, and where connections really go.
type world struct {
	mu    sync.Mutex
	names map[string][]string
	to    map[string]string // address by ip:port
	asked []string          // what was dialed
}

func (w *world) options(allow, deny []string) gate.Options {
	return gate.Options{
		Network: sdk.NetworkFiltered, Rules: sdk.NetworkRules{Allow: allow, Deny: deny},
		Lookup: func(_ context.Context, name string) (out []netip.Addr, err error) {
			for _, a := range w.names[name] {
				out = append(out, netip.MustParseAddr(a))
			}
			if len(out) == 0 {
				return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
			}
			return out, nil
		},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			w.mu.Lock()
			w.asked = append(w.asked, address)
			to, ok := w.to[address]
			w.mu.Unlock()
			if !ok {
				return nil, syscall.ECONNREFUSED
			}
			return (&net.Dialer{}).DialContext(ctx, network, to)
		},
	}
}

const site = "93.184.216.34" // a public address that nothing here really connects to

// TestRules looks at what is allowed, and at the record; TestAttacks has the attempts that must fail.
func TestRules(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%s %d", r.Host, n)
	}))
	defer server.Close()
	addr := server.Listener.Addr().String()
	w := &world{
		names: map[string][]string{
			"allowed.example": {site}, "a.below.example": {site}, "private.example": {"10.1.2.3"}, "both.example": {"10.1.2.3", site},
			"named.example": {"10.9.9.9"},
		},
		to: map[string]string{site + ":80": addr, "10.9.9.9:80": addr, "192.88.1.5:80": addr, "127.0.0.1:8000": addr},
	}
	type row struct{ attempt, want string }
	rows := []row{
		{"http http://allowed.example/", "200 allowed.example 0 ok"},
		{"post http://ALLOWED.example./", "200 ALLOWED.example. 1048576 ok"},
		{"http http://a.below.example/", "200 a.below.example 0 ok"},
		{"http http://other.example/", "no such name"},
		{"http http://x.below.example/", "no such name"}, // by deny
		{"http http://host:8000/", "200 host:8000 0 ok"},
		{"tcp host:22", "connection reset by peer"},
		{"http http://192.88.1.5/", "200 192.88.1.5 0 ok"},
		{"raw 1.2.3.4:443", "connection reset by peer"},
		{"tls 1.2.3.4:443", `"\x15\x03\x03\x00\x02\x021"`},
		{"tls allowed.example:443", `"\x15\x03\x03\x00\x02\x021"`},
		{"resolve allowed.example", "198.18.1.0"},
		{"dns-udp 8.8.8.8:53 allowed.example", "198.18.1.0"},
		{"dns-tcp 8.8.8.8:53 allowed.example", "198.18.1.0"},
		{"udp 1.1.1.1:443", "operation not permitted"},
		{"http http://both.example/", "200 both.example 0 ok"},
		{"http http://named.example/", "200 named.example 0 ok"},
		{"http http://refused.example/", "connection reset by peer"},
		{"raw private.example:80", "connection reset by peer"},
	}
	lines := make([]string, len(rows))
	var want strings.Builder
	for i, r := range rows {
		lines[i] = r.attempt
		fmt.Fprintf(&want, "%s: %s\n", r.attempt, r.want)
	}
	allow := []string{"allowed.example:80", "*.below.example", "host:8000", "192.88.1.5:80", "both.example", "named.example", "10.9.9.0/24:80", "refused.example", "private.example"}
	w.names["refused.example"] = []string{"93.184.216.35"}
	got, traffic, _ := inside(t, w.options(allow, []string{"x.below.example"}), lines...)
	if diff := cmp.Diff(want.String(), got); diff != "" {
		t.Error(diff)
	}
	for _, asked := range w.asked {
		if _, ok := w.to[asked]; !ok && asked != "93.184.216.35:80" {
			t.Errorf("the gate connected to %s", asked)
		}
	}
	line := func(name string, port int) *sdk.Traffic {
		i := slices.IndexFunc(traffic, func(x sdk.Traffic) bool { return x.Name == name && x.Port == port })
		if i < 0 {
			t.Fatalf("nothing is recorded of %s:%d", name, port)
		}
		return &traffic[i]
	}
	for _, want := range []sdk.Traffic{
		{Name: "allowed.example", Port: 80, Allowed: true, Rule: "allowed.example:80", Connections: 2},
		{Name: "allowed.example", Port: 443, Reason: "allowed.example:443 is not in network.allow", Connections: 1, Add: "allowed.example:443"},
		{Name: "x.below.example", Rule: "x.below.example", Reason: `x.below.example is denied by "x.below.example" in network.deny`},
		{Name: "private.example", Port: 80, Reason: "private.example is 10.1.2.3:80, which is not a public address and not in network.allow", Connections: 1, Add: "10.1.2.3:80"},
		{Name: "refused.example", Port: 80, Allowed: true, Rule: "refused.example", Reason: "connection refused", Connections: 1},
		{Name: "1.2.3.4", Port: 443, Reason: "1.2.3.4:443 is not in network.allow", Connections: 2, Add: "1.2.3.4:443"},
	} {
		ignore := []string{"Sent", "Received"}
		if want.Connections == 0 {
			ignore = append(ignore, "Connections")
		}
		if diff := cmp.Diff(want, *line(want.Name, want.Port), cmpopts.IgnoreFields(sdk.Traffic{}, ignore...)); diff != "" {
			t.Error(diff)
		}
	}
	if post := line("allowed.example", 80); post.Sent < 1<<20 || post.Received == 0 {
		t.Errorf("of a request of 1 MiB %d bytes were counted, and %d of its answer", post.Sent, post.Received)
	}
}

// TestFull looks at a network that reaches all that is public.
func TestFull(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) }))
	defer server.Close()
	addr := server.Listener.Addr().String()
	w := &world{
		names: map[string][]string{"any.example": {site}, "denied.example": {site}, "private.example": {"10.1.2.3"}, "named.example": {"10.9.9.9"}},
		to:    map[string]string{site + ":80": addr, "192.88.1.5:80": addr, "10.9.9.9:80": addr, "127.0.0.1:8000": addr},
	}
	o := w.options([]string{"host:8000", "10.9.9.9:80", "localhost:8000"}, []string{"denied.example"})
	o.Network = sdk.NetworkFull
	rows := [][2]string{
		{"http http://any.example/", "200 any.example ok"},
		{"http http://nowhere.example/", "no such name"},
		{"http http://denied.example/", "no such name"},
		{"http http://192.88.1.5/", "200 192.88.1.5 ok"},
		{"raw private.example:80", "connection reset by peer"},
		{"http http://named.example/", "200 named.example ok"},
		{"http http://host:8000/", "200 host:8000 ok"},
		{"raw host:8001", "connection reset by peer"},
		{"http http://127.0.0.1:8000/", "200 127.0.0.1:8000 ok"},
		{"raw 127.0.0.1:8001", "connection refused"},
		{"raw 10.1.2.3:80", "connection reset by peer"},
		{"raw 169.254.169.254:80", "connection reset by peer"},
		{"udp 1.1.1.1:443", "operation not permitted"},
	}
	var lines []string
	want := ""
	for _, r := range rows {
		lines = append(lines, r[0])
		want += r[0] + ": " + r[1] + "\n"
	}
	got, _, _ := inside(t, o, lines...)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestOwnAddresses asks for this machine by a public address that it has.
func TestOwnAddresses(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) }))
	defer server.Close()
	addr := server.Listener.Addr().String()
	lines := []string{"raw " + site + ":80", "raw allowed.example:80", "http http://" + site + ":8080/"}
	want := lines[0] + ": connection reset by peer\n" + lines[1] + ": connection reset by peer\n" + lines[2] + ": 200 " + site + ":8080 ok\n"
	for _, mode := range []sdk.NetworkMode{sdk.NetworkFull, sdk.NetworkFiltered} {
		w := &world{names: map[string][]string{"allowed.example": {site}}, to: map[string]string{site + ":80": addr, site + ":8080": addr}}
		o := w.options([]string{"allowed.example", site + ":8080"}, nil)
		o.Network = mode
		o.Own = func(a netip.Addr) bool { return a == netip.MustParseAddr(site) }
		if got, _, _ := inside(t, o, lines...); got != want {
			t.Errorf("%s:\n%s", mode, cmp.Diff(want, got))
		}
	}
}

// TestDenialSaysWhy looks at what a person reads who was denied.
func TestDenialSaysWhy(t *testing.T) {
	w := &world{names: map[string][]string{"private.example": {"10.1.2.3"}, "allowed.example": {site}}}
	got, _, _ := inside(t, w.options([]string{"allowed.example:443", "private.example"}, []string{"bad.example:80", "1.2.3.4"}),
		"http http://allowed.example/", "http http://private.example/", "http http://1.2.3.4/", "http http://5.6.7.8:81/")
	want := `http http://allowed.example/: 403 hutch: denied: allowed.example:80 is not in network.allow
to allow it, add "allowed.example:80" to allow in the network block of the run file, or run with --allow-host allowed.example:80 ok
http http://private.example/: 403 hutch: denied: private.example is 10.1.2.3:80, which is not a public address and not in network.allow
to allow it, add "10.1.2.3:80" to allow in the network block of the run file, or run with --allow-host 10.1.2.3:80 ok
http http://1.2.3.4/: 403 hutch: denied: 1.2.3.4:80 is denied by "1.2.3.4" in network.deny
to allow it, take "1.2.3.4" out of network.deny ok
http http://5.6.7.8:81/: 403 hutch: denied: 5.6.7.8:81 is not in network.allow
to allow it, add "5.6.7.8:81" to allow in the network block of the run file, or run with --allow-host 5.6.7.8:81 ok
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestConnections looks at connections that end in other ways than a client would like best.
func TestConnections(t *testing.T) {
	first := make(chan []byte, 1)
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() { // sends what it got once the client has closed its side
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				data, _ := io.ReadAll(conn)
				if len(data) > 1000 {
					first <- data
					return
				}
				fmt.Fprintf(conn, "got %s", data)
			}()
		}
	}()
	w := &world{names: map[string][]string{"echo.example": {site}}, to: map[string]string{site + ":7": server.Addr().String()}}
	got, _, _ := inside(t, w.options([]string{"echo.example"}, nil), "half echo.example:7", "abandoned echo.example:7")
	if want := "half echo.example:7: got everything ok\nabandoned echo.example:7: ok\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	select {
	case data := <-first:
		if len(data) != 1<<20 {
			t.Errorf("%d bytes of what an ended client had written were sent", len(data))
		}
	case <-time.After(time.Minute):
		t.Error("what an ended client had written was not sent")
	}
}

func TestManyConnections(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	w := &world{names: map[string][]string{"many.example": {site}}, to: map[string]string{site + ":80": server.Listener.Addr().String()}}
	got, traffic, _ := inside(t, w.options([]string{"many.example"}, nil), "many http://many.example/ 1000")
	if want := "many http://many.example/ 1000: map[200 OK:1000]\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(traffic) != 1 || traffic[0].Connections != 1000 {
		t.Errorf("the record is %+v", traffic)
	}
}

// TestRecordIsBounded looks at a command that asks for more destinations than are recorded.
func TestRecordIsBounded(t *testing.T) {
	_, traffic, more := inside(t, (&world{}).options(nil, nil), "distinct 1500")
	if len(traffic) != sdk.MaxTraffic || more != 500 {
		t.Errorf("%d destinations are recorded and %d more counted", len(traffic), more)
	}
}
