package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hutch-run/hutch/sdk"
)

func TestFilteredNetwork(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello %s", r.Host) }))
	defer server.Close()
	_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	rules := sdk.NetworkRules{Allow: []string{"host:" + port}}
	s := newSandbox(t, newBackend(), sdk.Spec{Config: config(t), Network: sdk.NetworkFiltered, Rules: rules})
	r := sh(t, s, `wget -qO- http://host:`+port+`/; echo
wget -qO- http://other.example/ 2>&1
wget -qO- http://host:1/ 2>&1
wget -qO- http://1.2.3.4/ 2>&1
wget -qO- http://127.0.0.1:`+port+`/ 2>&1
ip route add default dev lo 2>&1
ip addr | grep -c inet.198`)
	want := "hello host:" + port + `
wget: bad address 'other.example'
wget: server returned error: HTTP/1.1 403 Forbidden
wget: server returned error: HTTP/1.1 403 Forbidden
wget: can't connect to remote host (127.0.0.1): Connection refused
ip: RTNETLINK answers: Operation not permitted
1
`
	if diff := cmp.Diff(want, strings.ReplaceAll(r.out, "  ", " ")); diff != "" {
		t.Errorf("%s\n%s", diff, r.err)
	}
	number := 0
	fmt.Sscan(port, &number)
	traffic := []sdk.Traffic{
		{Name: "1.2.3.4", Port: 80, Reason: "1.2.3.4:80 is not in network.allow", Add: "1.2.3.4:80"},
		{Name: "host", Port: 1, Reason: "host:1 is not in network.allow", Add: "host:1"},
		{Name: "other.example", Reason: "other.example is not in network.allow", Add: "other.example"},
		{Name: "host", Port: number, Allowed: true, Rule: "host:" + port},
	}
	if diff := cmp.Diff(traffic, r.Traffic, cmpopts.IgnoreFields(sdk.Traffic{}, "Connections", "Sent", "Received")); diff != "" {
		t.Error(diff)
	}
}

// TestFilteredNetworkIsShared looks at commands at once, and in a row, in one container.
func TestFilteredNetworkIsShared(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "yes") }))
	defer server.Close()
	_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	s := newSandbox(t, newBackend(), sdk.Spec{Config: config(t), Network: sdk.NetworkFiltered, Rules: sdk.NetworkRules{Allow: []string{"host:" + port}}}, kept)
	var all sync.WaitGroup
	var mu sync.Mutex
	connections := int64(0)
	for range 4 {
		all.Go(func() {
			for range 3 {
				r := sh(t, s, "wget -qO- http://host:"+port+"/")
				if r.out != "yes" {
					t.Errorf("got %q, %q", r.out, r.err)
				}
				mu.Lock()
				for _, x := range r.Traffic {
					connections += x.Connections
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if connections != 12 {
		t.Errorf("%d connections are recorded, not 12", connections)
	}
	// Another process attaches, and knows the address that a command may still have.
	b := newBackend()
	h, err := s.handle()
	if err != nil {
		t.Fatal(err)
	}
	h.StateDir = s.dirs.state
	other, err := b.Attach(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimSpace(must(t, s, "nslookup host | sed -n 's/^Address: *\\(198.*\\)/\\1/p'"))
	if r := sh(t, other.(*sandbox), "wget -qO- http://"+address+":"+port+"/"); r.out != "yes" {
		t.Errorf("at the address %q another process's command got %q, %q", address, r.out, r.err)
	}
}

// TestNetworkMissed looks for a network in a sandbox without one, and does what is no look for one.
func TestNetworkMissed(t *testing.T) {
	s := newSandbox(t, newBackend(), sdk.Spec{Config: config(t), Network: sdk.NetworkNone}, kept)
	for script, missed := range map[string]bool{
		"wget -qO- http://example.org/": true,
		"wget -qO- http://192.0.2.1/":   true,
		"wget -qO- http://127.0.0.1/":   false,
	} {
		if r := sh(t, s, script); r.NetworkMissed != missed {
			t.Errorf("%s: %t\n%s", script, r.NetworkMissed, r.err)
		}
	}
}
