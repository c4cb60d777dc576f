package backendtest

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
	"github.com/hutch-run/hutch/sdk/network"
)

func networkChecks() []Check {
	full := []Need{needNetwork(sdk.NetworkFull)}
	none := []Need{needNetwork(sdk.NetworkNone)} // which sandboxes have, where it is claimed
	// knock tries to reach a listener of the host from inside, with whatever in the sandbox can.
	knock := func(c *C, b *box, network, address string) (tried, came bool) {
		l, err := net.Listen(network, address)
		if err != nil {
			return false, false
		}
		defer l.Close()
		accepted := make(chan bool, 1)
		go func() {
			conn, err := l.Accept()
			if err == nil {
				conn.Close()
			}
			accepted <- err == nil
		}()
		host, port, _ := net.SplitHostPort(l.Addr().String())
		o := b.exec(b.command("", argv("/bin/sh", "-c", `has() { command -v "$1" > /dev/null; }
if has bash; then exec bash -c 'exec 3<>"/dev/tcp/$1/$2"' bash "$1" "$2"
elif has python3; then exec python3 -c 'import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)' "$1" "$2"
elif has perl; then exec perl -e 'use IO::Socket::INET; IO::Socket::INET->new(PeerAddr => $ARGV[0], PeerPort => $ARGV[1], Timeout => 5) or exit 1' "$1" "$2"
elif has nc; then exec nc -w 5 "$1" "$2" < /dev/null
elif has wget; then exec wget -q -T 5 -O /dev/null "http://$1:$2/"
elif has curl; then exec curl -s -m 5 "http://$1:$2/"
else exit 77; fi`, "sh", host, port), timeout(soon)))
		l.Close()
		return o.Code != 77, <-accepted
	}
	return []Check{
		{ID: "network/none-no-route", Needs: append([]Need{needProc}, none...), Proves: "without a network there is no route and no interface but loopback", Fix: "a network namespace of its own",
			run: func(c *C) {
				b := c.used()
				c.onlyLoopback(b)
				if routes := b.must("tail -n +2 /proc/net/route"); strings.TrimSpace(routes) != "" {
					c.Fatalf("there are routes: %s", quote(routes))
				}
			}},
		{ID: "network/none-not-loopback", Needs: none, Proves: "without a network even the host's loopback cannot be reached", Fix: "a network namespace of its own",
			run: func(c *C) {
				b := c.used()
				tried, came := knock(c, b, "tcp", "127.0.0.1:0")
				if came {
					c.Fatalf("a connection to 127.0.0.1 reached the host")
				}
				if !tried {
					c.skipf("there is no program in the sandbox to try it with")
				}
			}},
		{ID: "network/none-not-abstract", Needs: none, Proves: "without a network the abstract sockets of the host are not there", Fix: "a network namespace of its own",
			run: func(c *C) {
				if o := c.used().sh("grep -F -- \"$NAME\" /proc/net/unix", env(map[string]string{"NAME": c.abstractSocket()})); o.Code == 0 {
					c.Fatalf("the host's socket is listed: %s", quote(o.stdout))
				}
			}},
		{ID: "network/full", Needs: full, Proves: "with the full network there is a way out where the host has one", Fix: "share the host's network, or route to it",
			run: func(c *C) {
				host, err := os.ReadFile("/proc/net/route")
				if err != nil || strings.Count(string(host), "\n") < 2 {
					c.skipf("the host itself has no route")
				}
				c.needNetwork(sdk.NetworkFull)
				if c.facts.Isolation == sdk.IsolationProcess { // it may not look at routes, and its network is the host's
					b := c.box(func(r *sdk.CreateRequest) { r.Network = sdk.NetworkFull })
					if tried, came := knock(c, b, "tcp", "127.0.0.1:0"); tried && !came {
						c.Fatalf("a connection did not reach the host")
					}
					return
				}
				if routes := c.box(func(r *sdk.CreateRequest) { r.Network = sdk.NetworkFull }).must("tail -n +2 /proc/net/route"); strings.TrimSpace(routes) == "" {
					c.Fatalf("there is no route")
				}
			}},
		{ID: "network/full-not-host", Needs: []Need{needNetwork(sdk.NetworkFull), needNetwork(sdk.NetworkFiltered)}, Proves: "the full network of a backend that holds rules reaches the host and private networks only by a rule",
			Fix: "serve the full network as the filtered one",
			run: func(c *C) {
				port, _ := c.webserver()
				other, otherAsked := c.webserver()
				c.needNetwork(sdk.NetworkFull)
				b := c.box(func(r *sdk.CreateRequest) {
					r.Network, r.Rules = sdk.NetworkFull, sdk.NetworkRules{Allow: []string{fmt.Sprintf("host:%d", port)}}
				})
				if o := b.visit("host", port, "Authorization: something"); !strings.Contains(o.stdout, "it was something") {
					c.Fatalf("nothing came from an allowed host: %s %s", quote(o.stdout), o.how())
				}
				for _, host := range []string{"host", "127.0.0.1", "localhost", "10.0.2.2", "169.254.169.254"} {
					if o := b.visit(host, other, "Authorization: something"); strings.Contains(o.stdout, "it was") {
						c.Fatalf("%s:%d was reached: %s", host, other, quote(o.stdout))
					}
				}
				if n := len(otherAsked()); n != 0 {
					c.Fatalf("the host was asked %d times", n)
				}
			}},
	}
}

// abstractSocket returns the name of an abstract socket that this host listens on until the check ends.
func (c *C) abstractSocket() string {
	name := "@" + c.short + "-abstract"
	l, err := net.Listen("unix", name)
	if err != nil {
		c.Fatalf("%v", err)
	}
	c.later(func() { l.Close() })
	return name
}

// onlyLoopback fails if the sandbox has an interface that could lead somewhere.
func (c *C) onlyLoopback(b *box) {
	for line := range strings.Lines(b.must("cat /proc/net/dev | tail -n +3")) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		if !slices.Contains([]string{"lo", "sit0", "ip6tnl0", "tunl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6gre0", "teql0", "dummy0"}, name) {
			c.Fatalf("there is an interface %q", name)
		}
	}
}

// visit asks a host for / over HTTP from inside, with whatever in the sandbox can, and returns what came. The check is
// skipped where nothing in the sandbox can.
func (b *box) visit(host string, port int, header string, change ...func(*client.Command)) *out {
	o := b.exec(b.command("", append(change, argv("/bin/sh", "-c", `has() { command -v "$1" > /dev/null; }
request() { printf 'GET / HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\n%s\r\n\r\n' "$1" "$2" "$3"; }
if has curl; then exec curl -s -m 20 -H "$3" "http://$1:$2/"
elif has wget; then exec wget -q -O - --header "$3" "http://$1:$2/"
elif has bash; then export -f request; exec bash -c 'exec 3<>"/dev/tcp/$1/$2" && request "$@" >&3 && cat <&3' bash "$1" "$2" "$3"
elif has python3; then exec python3 -c 'import sys, urllib.request as u; n, _, v = sys.argv[3].partition(": "); print(u.urlopen(u.Request(f"http://{sys.argv[1]}:{sys.argv[2]}/", headers={n: v}), timeout=20).read().decode())' "$1" "$2" "$3"
elif has nc; then request "$1" "$2" "$3" | nc -w 20 "$1" "$2"
else exit 77; fi`, "sh", host, strconv.Itoa(port), header), timeout(soon))...))
	if o.Code == 77 {
		b.c.skipf("there is no program in the sandbox to try it with")
	}
	return o
}

// webserver serves the host's loopback until the check ends. It answers with what it was sent in the header
// Authorization, and counts.
func (c *C) webserver() (port int, asked func() []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.Fatalf("listen on the loopback: %v", err)
	}
	var mu sync.Mutex
	var seen []string
	server := &http.Server{ReadHeaderTimeout: soon, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Header.Get("Authorization"))
		fmt.Fprintf(w, "it was %s\n", r.Header.Get("Authorization"))
	})}
	go func() { _ = server.Serve(l) }()
	c.later(func() { _ = server.Close() })
	return l.Addr().(*net.TCPAddr).Port, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

// filtered makes a sandbox with rules.
func (c *C) filtered(allow, deny []string) *box {
	c.needNetwork(sdk.NetworkFiltered)
	return c.box(func(r *sdk.CreateRequest) {
		r.Network, r.Rules = sdk.NetworkFiltered, sdk.NetworkRules{Allow: allow, Deny: deny}
	})
}

// wantTraffic looks for a line of the record.
func (c *C) wantTraffic(o *out, name string, port int, allowed bool) {
	i := slices.IndexFunc(o.Traffic, func(t sdk.Traffic) bool { return t.Name == name && t.Port == port })
	switch {
	case i < 0:
		c.Fatalf("the end of the command says nothing of %s:%d: %+v", name, port, o.Traffic)
	case o.Traffic[i].Allowed != allowed || o.Traffic[i].Connections < 1:
		c.Fatalf("the record of %s:%d is %+v", name, port, o.Traffic[i])
	case !allowed && o.Traffic[i].Reason == "":
		c.Fatalf("the record does not say why %s:%d was denied", name, port)
	}
}

func filteredChecks() []Check {
	const fix = "serve the sandbox's network with packages network/netns and network/gate"
	filtered := []Need{needNetwork(sdk.NetworkFiltered)}
	return []Check{
		{ID: "network/filtered-allowed", Needs: filtered, Proves: "a filtered network reaches what a rule allows, and the end of the command says so", Fix: fix,
			run: func(c *C) {
				port, asked := c.webserver()
				b := c.filtered([]string{fmt.Sprintf("host:%d", port)}, nil)
				for range 2 { // a later command has it too
					o := b.visit("host", port, "Authorization: something")
					if !strings.Contains(o.stdout, "it was something") {
						c.Fatalf("nothing came from an allowed host: %s %s", quote(o.stdout), o.how())
					}
					c.wantTraffic(o, "host", port, true)
				}
				if n := len(asked()); n != 2 {
					c.Fatalf("the host was asked %d times, not 2", n)
				}
			}},
		{ID: "network/filtered-denied", Needs: filtered, Proves: "a filtered network reaches no other port, address or name, and the end of the command says which were denied and why", Fix: fix,
			run: func(c *C) {
				port, asked := c.webserver()
				other, otherAsked := c.webserver()
				b := c.filtered([]string{fmt.Sprintf("host:%d", port), fmt.Sprintf("denied.example:%d", port)}, []string{"denied.example"})
				for _, t := range []struct {
					host string
					port int
					line string // of the record; "" for none
				}{{"host", other, "host"}, {"192.0.2.1", port, "192.0.2.1"}, {"127.0.0.1", port, ""}, {"localhost", port, ""}, {"10.0.2.2", port, "10.0.2.2"}, {"169.254.169.254", 80, "169.254.169.254"}} {
					o := b.visit(t.host, t.port, "Authorization: something")
					if strings.Contains(o.stdout, "it was") {
						c.Fatalf("%s:%d was reached", t.host, t.port)
					}
					if t.line != "" {
						c.wantTraffic(o, t.line, t.port, false)
					}
				}
				for _, name := range []string{"unlisted.example", "denied.example"} {
					o := b.visit(name, port, "Authorization: something")
					if strings.Contains(o.stdout, "it was") {
						c.Fatalf("%s was reached: %s", name, quote(o.stdout))
					}
					c.wantTraffic(o, name, 0, false)
				}
				if n := len(asked()) + len(otherAsked()); n != 0 {
					c.Fatalf("the host was asked %d times", n)
				}
			}},
		{ID: "network/filtered-no-way-out", Needs: filtered, Proves: "a filtered network has no interface but loopback, so that a mistake in a rule opens nothing", Fix: fix,
			run: func(c *C) {
				b := c.filtered(nil, nil)
				c.onlyLoopback(b)
				if o := b.sh("grep -F -- \"$NAME\" /proc/net/unix", env(map[string]string{"NAME": c.abstractSocket()})); o.Code == 0 {
					c.Fatalf("the host's abstract socket is listed: %s", quote(o.stdout))
				}
			}},
		{ID: "network/filtered-rules", Needs: filtered, Proves: "a rule that cannot be read is refused when the sandbox is made", Fix: "parse the rules with package network before anything is made",
			run: func(c *C) {
				for _, rule := range []string{"https://example.org/", "*", "example.org:0", "10.1.2.3/24"} {
					_, err := c.create(c.shared(), c.request(func(r *sdk.CreateRequest) {
						r.Network, r.Rules = sdk.NetworkFiltered, sdk.NetworkRules{Allow: []string{rule}}
					}))
					c.wantReason(err, "the rule "+quote(rule), sdk.ReasonConfig)
				}
			}},
		{ID: "network/filtered-attached", Needs: []Need{needNetwork(sdk.NetworkFiltered), needCap(sdk.CapAttach)}, Proves: "the rules hold in a sandbox that another process attached to", Fix: "keep the rules with the sandbox",
			run: func(c *C) {
				port, _ := c.webserver()
				other, _ := c.webserver()
				c.needNetwork(sdk.NetworkFiltered)
				b := c.box(func(r *sdk.CreateRequest) {
					r.Keep, r.Network, r.Rules = true, sdk.NetworkFiltered, sdk.NetworkRules{Allow: []string{fmt.Sprintf("host:%d", port)}}
				})
				fresh := c.fresh(StartOptions{})
				sb, err := fresh.Attach(c.ctx, b.Handle())
				if err != nil {
					c.Fatalf("attach: %v", err)
				}
				again := &box{Sandbox: sb, c: c, on: fresh, req: b.req}
				if o := again.visit("host", port, "Authorization: something"); !strings.Contains(o.stdout, "it was something") {
					c.Fatalf("nothing came from an allowed host: %s %s", quote(o.stdout), o.how())
				}
				if o := again.visit("host", other, "Authorization: something"); strings.Contains(o.stdout, "it was") {
					c.Fatalf("host:%d was reached", other)
				}
			}},
		{ID: "network/secret", Needs: []Need{needNetwork(sdk.NetworkFiltered), needCap(sdk.CapSecrets)}, Proves: "a host gets the value of a secret whose placeholder a command sends, and the command never sees it",
			Fix: "pass Command.Secrets to package network/gate",
			run: func(c *C) {
				port, asked := c.webserver()
				other, otherAsked := c.webserver()
				b := c.filtered([]string{fmt.Sprintf("host:%d", port), fmt.Sprintf("host:%d", other)}, nil)
				authority, err := network.NewAuthority([]string{"host"}, time.Now().Add(time.Hour))
				if err != nil {
					c.Fatalf("%v", err)
				}
				const placeholder, value, newer = "hutch-placeholder-0123456789", "value-of-a-secret", "newer-value-of-it"
				secretOf := func(value string) func(*client.Command) {
					return func(cmd *client.Command) {
						cmd.Secrets = []sdk.Secret{{Name: "TOKEN", Placeholder: placeholder, Value: value, Hosts: []string{fmt.Sprintf("host:%d", port)}}}
						cmd.Authority = authority
					}
				}
				secret := secretOf(value)
				o := b.visit("host", port, "Authorization: Bearer "+placeholder, secret)
				if got := asked(); len(got) != 1 || got[0] != "Bearer "+value {
					c.Fatalf("the host got %q: %s %s", got, quote(o.stdout), o.how())
				}
				if !strings.Contains(o.stdout, "it was Bearer "+placeholder) || strings.Contains(o.stdout, value) {
					c.Fatalf("the command got %s", quote(o.stdout))
				}
				b.visit("host", other, "Authorization: Bearer "+placeholder, secret)
				if got := otherAsked(); slices.Contains(got, "Bearer "+value) {
					c.Fatalf("a host that the secret is not for got it")
				}
				b.begin("echo ready; sleep 600", secret) // while it runs, a later command has a newer value
				b.visit("host", port, "Authorization: Bearer "+placeholder, secretOf(newer))
				if got := asked(); len(got) != 2 || got[1] != "Bearer "+newer {
					c.Fatalf("of a newer value the host got %q", got)
				}
			}},
	}
}
