//go:build linux

package gate_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/network"
)

// attack is one attempt of a program in a filtered network, and what comes of it: a row of docs/reference/attacks.md,
// which test/security writes.
type attack struct {
	about string
	line  string // see attempts
	want  string
}

// The network of the attacks. The secret's placeholder may be used with GET below /repos/ of host:8001.
var attackRules = []string{
	"allowed.example:80", "*.below.example", "host:8001", "192.88.1.5:80", "other-port.example:8443",
	"private.example", "linklocal.example", "metadata.example", "self.example", "self6.example", "mapped.example", "zero.example",
	"nat64.example", "testnet.example", "cgnat.example", "multicast.example", "ula.example", "sixtofour.example", "turns.example",
}

var placeholder = cmp.Or(os.Getenv("ATTACK_TOKEN"), "hutch-TOKEN-ATTACKATTACKATTACK")

const secretValue = "the-value-of-the-secret"

const (
	isReset  = "connection reset by peer"
	noName   = "no such name"
	tlsAlert = `"\x15\x03\x03\x00\x02\x021"` // access_denied
)

var attacks = []attack{
	// Names.
	{"a name that no rule is about", "http http://other.example/", noName},
	{"a name that ends like an allowed one", "http http://evilallowed.example/", noName},
	{"a name that begins like an allowed one", "http http://allowed.example.evil.example/", noName},
	{"a name below an allowed one", "http http://x.allowed.example/", noName},
	{"the name above *.NAME", "http http://below.example/", noName},
	{"a denied name below *.NAME", "http http://x.below.example/", noName},
	{"the same in upper case, with a final dot", "http http://X.BELOW.example./", noName},
	{"a name that is an address", "http http://93.184.216.34.below-evil.example/", noName},
	{"another port of an allowed name", "raw allowed.example:22", isReset},
	{"TLS on another port of an allowed name", "tls allowed.example:443", tlsAlert},
	{"a port of another rule", "raw other-port.example:80", isReset},
	{"data in a lookup, below a name that is not allowed", "resolve c2VjcmV0.tunnel.example", noName},
	{"data in a lookup, below *.NAME: answered here, sent nowhere", "resolve c2VjcmV0.below.example", "198.18."},
	{"a lookup by TCP", "dns-tcp 8.8.8.8:53 other.example", noName},
	{"a lookup at a server of its choice", "dns-udp 9.9.9.9:53 other.example", noName},
	{"DNS over TLS", "tls 1.1.1.1:853", tlsAlert},
	{"DNS over HTTPS by its address", "tls 1.1.1.1:443", tlsAlert},
	{"DNS over HTTPS by its name", "http http://dns.google/", noName},
	{"a TXT record", "query 16 allowed.example", "0 answers"},
	{"an SVCB record, with keys for encrypted hellos", "query 65 allowed.example", "0 answers"},
	{"all records of a name: its address here", "query 255 allowed.example", "1 answers"},
	{"the names of the machine's network", "resolve 1.0.0.10.in-addr.arpa", noName},

	// Addresses.
	{"an address that no rule names", "raw 1.2.3.4:443", isReset},
	{"the address of an allowed name", "raw 93.184.216.34:80", isReset},
	{"HTTP with the Host of an allowed name to another address", `send 1.2.3.4:80 "GET / HTTP/1.1\r\nHost: allowed.example\r\n\r\n"`, "HTTP/1.1 403 Forbidden"},
	{"TLS with the name of an allowed host (SNI) to another address", "tls 1.2.3.4:443", tlsAlert},
	{"another port of an allowed address", "raw 192.88.1.5:22", isReset},
	{"the neighbour of an allowed address", "raw 192.88.1.6:80", isReset},
	{"CONNECT at an address that may be a proxy", `send 1.2.3.4:3128 "CONNECT allowed.example:80 HTTP/1.1\r\n\r\n"`, "HTTP/1.1 403 Forbidden"},
	{"an address of the range that stands for names, unasked", "raw 198.18.200.200:80", isReset},
	{"IPv6", "tcp [2606:4700::1111]:443", "network is unreachable"},
	{"an IPv4 address in IPv6", "raw [::ffff:1.2.3.4]:80", isReset},
	{"IPv6 by UDP", "udp [2606:4700::1111]:443", "network is unreachable"},
	{"QUIC", "udp 1.1.1.1:443", "operation not permitted"},
	{"QUIC to an allowed name", "udp 198.18.1.0:443", "operation not permitted"},
	{"NTP", "udp 162.159.200.1:123", "operation not permitted"},
	{"multicast", "udp 224.0.0.251:5353", "operation not permitted"},
	{"broadcast", "udp 255.255.255.255:67", "operation not permitted"},

	// This machine and its networks.
	{"a service on this machine's loopback", "raw 127.0.0.1:8001", "connection refused"},
	{"a port of this machine that no rule names", "raw host:22", isReset},
	{"the metadata service of a cloud", "raw 169.254.169.254:80", isReset},
	{"the gateway of a virtual machine", "raw 10.0.2.2:80", isReset},
	{"a router", "raw 192.168.1.1:80", isReset},
	{"0.0.0.0", "raw 0.0.0.0:8001", "connection refused"},
	{"the listener of the gate itself, by its port", "listener", isReset},
	{"rebinding to a private address", "raw private.example:80", isReset},
	{"rebinding to a link-local address", "raw linklocal.example:80", isReset},
	{"rebinding to the metadata service", "raw metadata.example:80", isReset},
	{"rebinding to 127.0.0.1", "raw self.example:80", isReset},
	{"rebinding to ::1", "raw self6.example:80", isReset},
	{"rebinding to 127.0.0.1 in IPv6", "raw mapped.example:80", isReset},
	{"rebinding to 0.0.0.0", "raw zero.example:80", isReset},
	{"rebinding through NAT64", "raw nat64.example:80", isReset},
	{"rebinding through 6to4", "raw sixtofour.example:80", isReset},
	{"rebinding to a carrier's network", "raw cgnat.example:80", isReset},
	{"rebinding to a unique local address", "raw ula.example:80", isReset},
	{"rebinding to a documentation address", "raw testnet.example:80", isReset},
	{"rebinding to a multicast address", "raw multicast.example:80", isReset},
	{"a name whose address turns private after the lookup", "raw turns.example:80", isReset},
	{"a redirect to a name that no rule is about", "http http://allowed.example/away", noName},
	{"a redirect to this machine", "http http://allowed.example/home", "connection refused"},

	// Load.
	{"10,000 connections to a port that is denied", "flood http://allowed.example:81/ 10000", "0 of 10000 got through"},
	{"100 connections that say nothing", "silent allowed.example:81 100", "100 ended"},

	// A secret: only GET of host:8001/repos/* may carry it.
	{"a path of no rule", get("/admin", ""), "HTTP/1.1 403 Forbidden"},
	{"a method of no rule", head("POST", "/repos/a", "Content-Length: 0"), "HTTP/1.1 403 Forbidden"},
	{"..", get("/repos/../admin", ""), "HTTP/1.1 403 Forbidden"},
	{"encoded ..", get("/repos/%2e%2e/admin", ""), "HTTP/1.1 403 Forbidden"},
	{"an encoded slash", get("/repos/a%2f..%2f..%2fadmin", ""), "HTTP/1.1 403 Forbidden"},
	{"an empty part of a path", get("/repos//admin", ""), "HTTP/1.1 403 Forbidden"},
	{"a backslash", get(`/repos/..\\admin`, ""), "HTTP/1.1 403 Forbidden"},
	{"parameters of a path", get("/repos/..;/admin", ""), "HTTP/1.1 403 Forbidden"},
	{"a header for another path", get("/repos/a", "X-Original-URL: /admin"), "HTTP/1.1 403 Forbidden"},
	{"a header for another method", get("/repos/a", "X-HTTP-Method-Override: DELETE"), "HTTP/1.1 403 Forbidden"},
	{"the placeholder in a path", get("/repos/"+placeholder, ""), "HTTP/1.1 403 Forbidden"},
	{"another Host", `send host:8001 "GET /repos/a HTTP/1.1\r\nHost: evil.example\r\nAuthorization: ` + placeholder + `\r\n\r\n"`, "HTTP/1.1 421 Misdirected Request"},
	{"another host in the target", head("GET", "http://evil.example/repos/a", ""), "HTTP/1.1 421 Misdirected Request"},
	{"CONNECT", head("CONNECT", "evil.example:443", ""), "HTTP/1.1 405 Method Not Allowed"},
	{"two Hosts", get("/repos/a", "Host: evil.example"), "HTTP/1.1 400 Bad Request"},
	{"a line that ends with LF alone, and a second request behind it", `send host:8001 "GET /repos/a HTTP/1.1\nHost: host:8001\nContent-Length: 0\nTransfer-Encoding: chunked\n\nGET /admin HTTP/1.1\nHost: host:8001\nAuthorization: ` + placeholder + `\n\n"`, "HTTP/1.1 502 Bad Gateway"},
	{"a length and chunks, with a request behind them", get("/admin", `Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: host:8001`), "HTTP/1.1 403 Forbidden"},
	{"a folded header for another path", get("/repos/a", `X-Original-URL:\r\n /admin`), "HTTP/1.1 403 Forbidden"},
	{"a chunk whose size is not a number", get("/admin", `Transfer-Encoding: chunked\r\n\r\nzz\r\n`), "HTTP/1.1 403 Forbidden"},
	{"the placeholder in a body, across two chunks: it goes out as it is", `send host:8001 "GET /repos/b HTTP/1.1\r\nHost: host:8001\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n` + placeholder[:16] + fmt.Sprintf(`\r\n%x\r\n`, len(placeholder)-16) + placeholder[16:] + `\r\n0\r\n\r\n"`, "HTTP/1.1 200 OK"},
	{"the placeholder in two parts of a header: it goes out as it is", `send host:8001 "GET /repos/c HTTP/1.1\r\nHost: host:8001\r\nA: ` + placeholder[:16] + `\r\nA: ` + placeholder[16:] + `\r\n\r\n"`, "HTTP/1.1 200 OK"},
	{"the placeholder in a form", `send host:8001 "GET /repos/d HTTP/1.1\r\nHost: host:8001\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: ` + strconv.Itoa(len(placeholder)+2) + `\r\n\r\na=` + placeholder + `"`, "HTTP/1.1 403 Forbidden"},
	{"two lengths", get("/repos/a", `Content-Length: 1\r\nContent-Length: 2`), "HTTP/1.1 400 Bad Request"},
	{"a transfer coding in disguise", get("/repos/a", `Transfer-Encoding: chunked, identity`), "HTTP/1.1 501 Not Implemented"},
	{"a space before a colon", get("/repos/a", "Transfer-Encoding : chunked"), "HTTP/1.1 400 Bad Request: invalid header name"},
	{"a NUL in a header", get("/repos/a", `X: a\x00b`), "HTTP/1.1 400 Bad Request"},
	{"2 MiB of headers", "huge host:8001", "HTTP/1.1 431 Request Header Fields Too Large"},
	{"HTTP/2 without TLS: it goes out as it is", `send host:8001 "PRI * HTTP/2.0\r\nAuthorization: ` + placeholder + `\r\n\r\nSM\r\n\r\n"`, "HTTP/1.1 400 Bad Request: missing required Host header"},
	{"a WebSocket on a path of no rule", get("/admin", `Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==`), "HTTP/1.1 403 Forbidden"},
}

// allowedLines are not attacks: the value goes out where it may, and a name has a public address at first.
var allowedLines = []string{get("/repos/good", ""), "http http://turns.example/"}

func worked(got string) bool {
	return strings.HasPrefix(got, "HTTP/1.1 200 OK") || strings.HasPrefix(got, "200 ")
}

func get(path, header string) string { return head("GET", path, header) }

func head(method, path, header string) string {
	if header != "" {
		header += `\r\n`
	}
	return fmt.Sprintf(`send host:8001 "%s %s HTTP/1.1\r\nHost: host:8001\r\nAuthorization: %s\r\n%s\r\n"`, method, path, placeholder, header)
}

func init() {
	attempts["send"] = func(line string) string {
		to, quoted, _ := strings.Cut(line, " ")
		data, err := strconv.Unquote(quoted)
		if err != nil {
			return err.Error()
		}
		return firstLine(to, data)
	}
	attempts["huge"] = func(to string) string {
		return firstLine(to, "GET /repos/a HTTP/1.1\r\nHost: "+to+"\r\nX: "+strings.Repeat("x", 2<<20)+"\r\n\r\n")
	}
	attempts["flood"] = flood
	attempts["query"] = query
	attempts["silent"] = silent
}

// firstLine sends data and returns the first line of the answer.
func firstLine(to, data string) string {
	conn, err := net.DialTimeout("tcp", to, 20*time.Second)
	if err != nil {
		return errorText(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	go func() { _, _ = io.WriteString(conn, data) }() // it may be answered before all is sent
	line, err := bufio.NewReader(conn).ReadString('\n')
	if line == "" {
		return errorText(err)
	}
	return strings.TrimSpace(line)
}

// flood makes requests, all at once, and counts those that succeed.
func flood(line string) string {
	_, count, _ := strings.Cut(line, " ")
	got := many(line)
	if !strings.Contains(got, "200 OK") {
		return "0 of " + count + " got through"
	}
	return got
}

// silent opens connections that say nothing, all at once, and waits for their ends.
func silent(line string) string {
	to, count, _ := strings.Cut(line, " ")
	n, _ := strconv.Atoi(count)
	var mu sync.Mutex
	ended := 0
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if talk("tcp", to, "") == isReset {
				mu.Lock()
				defer mu.Unlock()
				ended++
			}
		})
	}
	all.Wait()
	return fmt.Sprintf("%d ended", ended)
}

// TestAttacks makes every attempt. test/security makes them in sandboxes.
func TestAttacks(t *testing.T) {
	site80 := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, "http://other.example/", http.StatusFound)
		case "/home":
			http.Redirect(w, r, "http://127.0.0.1:8001/", http.StatusFound)
		}
	}))
	defer site80.Close()
	var mu sync.Mutex
	carried := []string{} // requests that carried the value
	secret := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(fmt.Sprint(r.Header, r.URL, string(body)), secretValue) {
			mu.Lock()
			defer mu.Unlock()
			carried = append(carried, r.Method+" "+r.URL.String())
		}
	}))
	defer secret.Close()
	addr := site80.Listener.Addr().String()
	w := &world{
		names: map[string][]string{
			"allowed.example": {site}, "other-port.example": {site}, "private.example": {"10.1.2.3"}, "linklocal.example": {"169.254.1.1"},
			"metadata.example": {"169.254.169.254"}, "self.example": {"127.0.0.1"}, "self6.example": {"::1"}, "mapped.example": {"::ffff:127.0.0.1"},
			"zero.example": {"0.0.0.0"}, "nat64.example": {"64:ff9b::7f00:1"}, "sixtofour.example": {"2002:7f00:1::"}, "cgnat.example": {"100.64.0.1"},
			"ula.example": {"fd00::1"}, "testnet.example": {"192.0.2.7"}, "multicast.example": {"224.0.0.1"},
		},
		to: map[string]string{site + ":80": addr, "127.0.0.1:8001": secret.Listener.Addr().String()},
	}
	o := w.options(attackRules, []string{"x.below.example"})
	steady, turned := o.Lookup, false
	o.Lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
		if name != "turns.example" {
			return steady(ctx, name)
		}
		mu.Lock()
		defer mu.Unlock()
		addr := netip.MustParseAddr(site)
		if turned {
			addr = netip.MustParseAddr("10.1.2.3")
		}
		turned = true
		return []netip.Addr{addr}, nil
	}
	var err error
	if o.Authority, err = network.NewAuthority([]string{"host"}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	o.Secrets = []sdk.Secret{{Name: "TOKEN", Placeholder: placeholder, Value: secretValue, Hosts: []string{"host:8001"},
		Rules: []sdk.SecretRule{{Methods: []string{"GET"}, Paths: []string{"/repos/*"}}}}}
	lines := slices.Clone(allowedLines)
	for _, a := range attacks {
		lines = append(lines, a.line)
	}
	got, _, _ := inside(t, o, lines...)
	results := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	if len(results) != len(lines) {
		t.Fatalf("%d results of %d attempts:\n%s", len(results), len(lines), got)
	}
	for i, line := range allowedLines {
		if !worked(strings.TrimPrefix(results[i], line+": ")) {
			t.Errorf("%s: %s", line, results[i])
		}
	}
	for i, a := range attacks {
		if got := strings.TrimPrefix(results[i+len(allowedLines)], a.line+": "); !ended(got, a.want) {
			t.Errorf("%s\n  %s\n  %s, want %s", a.about, a.line, got, a.want)
		}
	}
	if diff := gocmp.Diff([]string{"GET /repos/good"}, carried); diff != "" {
		t.Errorf("requests with the value: %s", diff)
	}
	for _, asked := range w.asked {
		if _, ok := w.to[asked]; !ok {
			t.Errorf("the gate connected to %s", asked)
		}
	}
}

// said is an outcome in the words of the page.
func said(want string) string {
	switch want {
	case tlsAlert:
		return "TLS alert: access denied"
	case "198.18.":
		return "an address that means nothing elsewhere"
	}
	return strings.TrimPrefix(want, "HTTP/1.1 ")
}

// ended says whether what came of an attempt is what should.
func ended(got, want string) bool {
	return got == want || want == "198.18." && strings.HasPrefix(got, want)
}

// attackHere makes all attempts where this process is, and prints what they are and whether they ended as they should:
// for test/security, which runs it in sandboxes. The placeholder is in ATTACK_TOKEN.
func attackHere() int {
	for _, line := range allowedLines {
		if got := attempt(line); !worked(got) {
			fmt.Fprintf(os.Stderr, "%s: %s\n", line, got)
			return 1
		}
	}
	for _, a := range attacks {
		fmt.Printf("%q %q %q\n", a.about, said(a.want), outcome(a.line, a.want))
	}
	return 0
}

// outcome is "held" or what came of an attempt instead.
func outcome(line, want string) string {
	if got := attempt(line); !ended(got, want) {
		return got
	}
	return "held"
}

// query asks for records of a type and returns how many come.
func query(line string) string {
	number, name, _ := strings.Cut(line, " ")
	kind, _ := strconv.Atoi(number)
	m := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name + "."), Type: dnsmessage.Type(kind), Class: dnsmessage.ClassINET}}}
	data, err := m.Pack()
	if err != nil {
		return err.Error()
	}
	conn, err := net.Dial("udp", "127.0.0.1:53")
	if err != nil {
		return errorText(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := conn.Write(data); err != nil {
		return errorText(err)
	}
	buf := make([]byte, 4096)
	n, err := conn.Read(buf)
	if err == nil {
		err = m.Unpack(buf[:n])
	}
	if err != nil {
		return errorText(err)
	}
	return fmt.Sprintf("%d answers", len(m.Answers))
}
