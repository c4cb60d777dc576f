package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hutch-run/hutch/sdk"
)

func TestSandboxFilteredNetwork(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello %s", r.Host) }))
	defer server.Close()
	_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	s := newSandbox(t, sdk.Spec{Network: sdk.NetworkFiltered, Rules: sdk.NetworkRules{Allow: []string{"host:" + port}}})
	r := run(t, t.Context(), s, &sdk.Command{Argv: []string{"/usr/bin/python3", "-c", `
import socket, sys, urllib.request, urllib.error
port = sys.argv[1]
socket.setdefaulttimeout(20)
print(urllib.request.urlopen(f"http://host:{port}/").read().decode())
try:
    urllib.request.urlopen("http://other.example/")
except urllib.error.URLError as e:
    print(type(e.reason).__name__)
try:
    urllib.request.urlopen("http://host:1/")
except urllib.error.HTTPError as e:
    print(e.code, e.read().decode())
for kind, to in (socket.SOCK_STREAM, ("127.0.0.1", int(port))), (socket.SOCK_STREAM, ("1.1.1.1", 22)), (socket.SOCK_DGRAM, ("1.1.1.1", 123)):
    s = socket.socket(socket.AF_INET, kind)
    try:
        s.connect(to)
        s.send(b"x")
        print(s.recv(1))
    except OSError as e:
        print(to, e.strerror)
`, port}})
	want := "hello host:" + port + "\ngaierror\n403 hutch: denied: host:1 is not in network.allow\n" +
		"to allow it, add \"host:1\" to allow in the network block of the run file, or run with --allow-host host:1\n\n" +
		"('127.0.0.1', " + port + ") Connection refused\n('1.1.1.1', 22) Connection reset by peer\n('1.1.1.1', 123) Operation not permitted\n"
	if diff := cmp.Diff(want, r.out); diff != "" {
		t.Errorf("%s\n%s", diff, r.err)
	}
	number := 0
	fmt.Sscan(port, &number)
	traffic := []sdk.Traffic{
		{Name: "1.1.1.1", Port: 22, Reason: "1.1.1.1:22 is not in network.allow", Add: "1.1.1.1:22"},
		{Name: "host", Port: 1, Reason: "host:1 is not in network.allow", Add: "host:1"},
		{Name: "other.example", Reason: "other.example is not in network.allow", Add: "other.example"},
		{Name: "host", Port: number, Allowed: true, Rule: "host:" + port},
	}
	if diff := cmp.Diff(traffic, r.Traffic, cmpopts.IgnoreFields(sdk.Traffic{}, "Connections", "Sent", "Received")); diff != "" {
		t.Error(diff)
	}
}

// TestNetworkMissed looks for a network in a sandbox without one, and does what is no look for one.
func TestNetworkMissed(t *testing.T) {
	s := newSandbox(t, sdk.Spec{Network: sdk.NetworkNone})
	for script, missed := range map[string]bool{
		`import socket; socket.getaddrinfo("example.org", 80)`:                  true,
		`import socket; socket.create_connection(("192.0.2.1", 80))`:            true,
		`import socket; socket.create_connection(("127.0.0.1", 80))`:            false,
		`import socket; socket.socketpair(); socket.gethostbyname("localhost")`: false,
	} {
		r := run(t, t.Context(), s, &sdk.Command{Argv: []string{"/usr/bin/python3", "-c", script}})
		if r.NetworkMissed != missed {
			t.Errorf("%s: %t\n%s", script, r.NetworkMissed, r.err)
		}
	}
}
