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
	"github.com/hutch-run/hutch/sdk/network"
)

// noProgram is the exit code of a script for which the sandbox has no program.
const noProgram = 77

// knock tries to reach a listener on an address of the host from inside, with whatever in the sandbox can, and reports
// whether it came. The check is skipped where nothing in the sandbox can.
func (b *box) knock(address string) bool {
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	b.own(err)
	accepted := make(chan bool, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			conn.Close()
		}
		accepted <- err == nil
	}()
	host, port, _ := net.SplitHostPort(l.Addr().String())
	o := b.sh("", timeout(soon), shell(`has() { command -v "$1" > /dev/null; }
if has bash; then exec bash -c 'exec 3<>"/dev/tcp/$1/$2"' bash "$1" "$2"
elif has python3; then
exec python3 -c 'import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)' "$1" "$2"
elif has perl; then exec perl -e 'use IO::Socket::INET;
IO::Socket::INET->new(PeerAddr => $ARGV[0], PeerPort => $ARGV[1], Timeout => 5) or exit 1' "$1" "$2"
elif has nc; then exec nc -w 5 "$1" "$2" < /dev/null
elif has wget; then exec wget -q -T 5 -O /dev/null "http://$1:$2/"
elif has curl; then exec curl -s -m 5 "http://$1:$2/"
else exit 77; fi`, host, port))
	l.Close()
	came := <-accepted
	if o.Code == noProgram {
		b.skipf("there is no program in the sandbox to try it with")
	}
	return came
}

// routes are what a command sees of them.
func (b *box) routes() string { return strings.TrimSpace(b.must("tail -n +2 /proc/net/route")) }

func networkChecks() []Check {
	none := needNetwork(sdk.NetworkNone) // which sandboxes have, where it is claimed
	return []Check{
		row("network/none-no-route",
			"without a network there is no route and no interface but loopback, or it is closed to every address of the host",
			"a network namespace of its own", used(func(b *box) {
				if b.onlyLoopback() {
					if routes := b.routes(); routes != "" {
						b.Fatalf("there are routes: %s", quote(routes))
					}
				}
			}), needProc, none),
		row("network/none-not-loopback", "without a network even the host's loopback cannot be reached",
			"a network namespace of its own", used(func(b *box) {
				if b.knock("127.0.0.1") {
					b.Fatalf("a connection to 127.0.0.1 reached the host")
				}
			}), none),
		row("network/none-not-abstract", "without a network the abstract sockets of the host are not there",
			"a network namespace of its own", used((*box).noAbstractSocket), none),
		row("network/full", "with the full network there is a way out where the host has one",
			"share the host's network, or route to it", func(c *C) {
				host, err := os.ReadFile("/proc/net/route")
				if err != nil || strings.Count(string(host), "\n") < 2 {
					c.skipf("the host itself has no route")
				}
				c.needNetwork(sdk.NetworkFull)
				b := c.box(withNetwork(sdk.NetworkFull))
				if c.facts.Isolation == sdk.IsolationProcess { // it may not look at routes, and its network is the host's
					if !b.knock("127.0.0.1") {
						c.Fatalf("a connection did not reach the host")
					}
				} else if b.routes() == "" {
					c.Fatalf("there is no route")
				}
			}, needNetwork(sdk.NetworkFull)),
		row("network/full-not-host",
			"the full network of a backend that holds rules reaches the host and private networks only by a rule",
			"serve the full network as the filtered one", func(c *C) {
				port, _ := c.webserver()
				other, otherAsked := c.webserver()
				c.needNetwork(sdk.NetworkFull)
				b := c.box(withRules(sdk.NetworkFull, []string{hostPort(port)}, nil))
				b.reaches("host", port)
				for _, host := range []string{"host", "127.0.0.1", "localhost", "10.0.2.2", "169.254.169.254"} {
					b.reachesNot(host, other)
				}
				c.wantAsked(0, otherAsked)
			}, needNetwork(sdk.NetworkFull), needFiltered),
	}
}

// noAbstractSocket ends the check when an abstract socket that this host listens on is there for commands.
func (b *box) noAbstractSocket() {
	name := "@" + b.short + "-abstract"
	l, err := net.Listen("unix", name)
	b.own(err)
	b.later(func() { l.Close() })
	if o := b.sh(`grep -F -- "$NAME" /proc/net/unix`, env("NAME", name)); o.Code == 0 {
		b.Fatalf("the host's abstract socket is listed: %s", quote(o.stdout))
	}
}

// onlyLoopback ends the check if the sandbox has an interface that could lead somewhere. One may be there whose way out
// is closed by a policy, as that of a pod is: the host is not reached through it, at any of its addresses. Then it says
// false.
func (b *box) onlyLoopback() bool {
	const harmless = "lo sit0 ip6tnl0 tunl0 gre0 gretap0 erspan0 ip_vti0 ip6_vti0 ip6gre0 teql0 dummy0"
	other := ""
	for line := range strings.Lines(b.must("cat /proc/net/dev | tail -n +3")) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		if !slices.Contains(strings.Fields(harmless), name) {
			other = name
		}
	}
	if other == "" {
		return true
	}
	var tried int
	addresses, err := net.InterfaceAddrs()
	b.own(err)
	for _, a := range addresses {
		ip, _, err := net.ParseCIDR(a.String())
		if err != nil || ip.To4() == nil || ip.IsLoopback() {
			continue
		}
		tried++
		if b.knock(ip.String()) {
			b.Fatalf("through the interface %q the host's address %s is reached", other, ip)
		}
	}
	if tried == 0 {
		b.Fatalf("there is an interface %q, and this host has no address at which it could be seen closed", other)
	}
	return false
}

// visit asks a host for / over HTTP from inside, with whatever in the sandbox can, and returns what came. The check is
// skipped where nothing in the sandbox can.
func (b *box) visit(host string, port int, header string, opts ...opt) *out {
	o := b.sh("", append(opts, timeout(soon), shell(visitor, host, strconv.Itoa(port), header))...)
	if o.Code == noProgram {
		b.skipf("there is no program in the sandbox to try it with")
	}
	return o
}

// visitor asks the webserver at $1:$2 with the header $3, by what the sandbox has.
const visitor = `has() { command -v "$1" > /dev/null; }
request() { printf 'GET / HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\n%s\r\n\r\n' "$1" "$2" "$3"; }
if has curl; then exec curl -s -m 20 -H "$3" "http://$1:$2/"
elif has wget; then exec wget -q -O - --header "$3" "http://$1:$2/"
elif has bash; then export -f request
exec bash -c 'exec 3<>"/dev/tcp/$1/$2" && request "$@" >&3 && cat <&3' bash "$1" "$2" "$3"
elif has python3; then exec python3 -c 'import sys, urllib.request as u; n, _, v = sys.argv[3].partition(": ")
r = u.Request(f"http://{sys.argv[1]}:{sys.argv[2]}/", headers={n: v})
print(u.urlopen(r, timeout=20).read().decode())' "$1" "$2" "$3"
elif has nc; then request "$1" "$2" "$3" | nc -w 20 "$1" "$2"
else exit 77; fi`

const something = "Authorization: something"

// reaches ends the check unless a webserver of the host answers.
func (b *box) reaches(host string, port int) *out {
	o := b.visit(host, port, something)
	if !strings.Contains(o.stdout, "it was something") {
		b.Fatalf("nothing came from an allowed host: %s %s", quote(o.stdout), o.how())
	}
	return o
}

// reachesNot ends the check when a webserver of the host answers.
func (b *box) reachesNot(host string, port int) *out {
	o := b.visit(host, port, something)
	if strings.Contains(o.stdout, "it was") {
		b.Fatalf("%s:%d was reached: %s", host, port, quote(o.stdout))
	}
	return o
}

func hostPort(port int) string { return fmt.Sprintf("host:%d", port) }

// webserver serves the host's loopback until the check ends. It answers with what it was sent in the header
// Authorization, and counts.
func (c *C) webserver() (port int, asked func() []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	c.own(err)
	var mu sync.Mutex
	var seen []string
	answer := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Header.Get("Authorization"))
		fmt.Fprintf(w, "it was %s\n", r.Header.Get("Authorization"))
	}
	server := &http.Server{ReadHeaderTimeout: soon, Handler: http.HandlerFunc(answer)}
	go func() { _ = server.Serve(l) }()
	c.later(func() { _ = server.Close() })
	return l.Addr().(*net.TCPAddr).Port, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

// wantAsked ends the check unless the webservers were asked so often.
func (c *C) wantAsked(want int, asked ...func() []string) {
	n := 0
	for _, f := range asked {
		n += len(f())
	}
	if n != want {
		c.Fatalf("the host was asked %d times, not %d", n, want)
	}
}

// filtered makes a sandbox with rules.
func (c *C) filtered(allow, deny []string, change ...ask) *box {
	c.needNetwork(sdk.NetworkFiltered)
	return c.box(append(change, withRules(sdk.NetworkFiltered, allow, deny))...)
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
	return needing([]Need{needFiltered},
		row("network/filtered-allowed", "a filtered network reaches what a rule allows, and the end of the command says so",
			"serve the sandbox's network with packages network/netns and network/gate", func(c *C) {
				port, asked := c.webserver()
				b := c.filtered([]string{hostPort(port)}, nil)
				for range 2 { // a later command has it too
					c.wantTraffic(b.reaches("host", port), "host", port, true)
				}
				c.wantAsked(2, asked)
			}),
		row("network/filtered-denied",
			"a filtered network reaches no other port, address or name, and the end of the command says which were denied "+
				"and why",
			"serve the sandbox's network with packages network/netns and network/gate", func(c *C) {
				port, asked := c.webserver()
				other, otherAsked := c.webserver()
				b := c.filtered([]string{hostPort(port), fmt.Sprintf("denied.example:%d", port)}, []string{"denied.example"})
				for _, t := range []struct {
					host         string
					port, record int // record is the port in the record; -1 for no line
				}{
					{"host", other, other}, {"192.0.2.1", port, port}, {"127.0.0.1", port, -1}, {"localhost", port, -1},
					{"10.0.2.2", port, port}, {"169.254.169.254", 80, 80},
					{"unlisted.example", port, 0}, {"denied.example", port, 0},
				} {
					o := b.reachesNot(t.host, t.port)
					if t.record >= 0 {
						c.wantTraffic(o, t.host, t.record, false)
					}
				}
				c.wantAsked(0, asked, otherAsked)
			}),
		row("network/filtered-no-way-out",
			"a filtered network has no interface but loopback, so that a mistake in a rule opens nothing",
			"serve the sandbox's network with packages network/netns and network/gate", func(c *C) {
				b := c.filtered(nil, nil)
				b.onlyLoopback()
				b.noAbstractSocket()
			}),
		row("network/filtered-rules", "a rule that cannot be read is refused when the sandbox is made",
			"parse the rules with package network before anything is made", func(c *C) {
				for _, rule := range []string{"https://example.org/", "*", "example.org:0", "10.1.2.3/24"} {
					req := c.request(withRules(sdk.NetworkFiltered, []string{rule}, nil))
					c.refused("the rule "+quote(rule), req, sdk.ReasonConfig)
				}
			}),
		row("network/filtered-attached", "the rules hold in a sandbox that another process attached to",
			"keep the rules with the sandbox", func(c *C) {
				port, _ := c.webserver()
				other, _ := c.webserver()
				b := c.filtered([]string{hostPort(port)}, nil, keep).elsewhere()
				b.reaches("host", port)
				b.reachesNot("host", other)
			}, needAttach),
		row("network/allow", "a rule for one command holds for that command, and for no other of its sandbox",
			"give package network/gate the rules of Command.Allow besides those of the sandbox", func(c *C) {
				port, _ := c.webserver()
				other, asked := c.webserver()
				b := c.filtered([]string{hostPort(port)}, nil)
				allow := func(cmd *command) { cmd.Allow = []string{hostPort(other)} }
				c.wantTraffic(b.visit("host", other, "", allow), "host", other, true)
				b.reachesNot("host", other)
				b.reaches("host", port)
				c.wantAsked(1, asked)
			}, needCap(sdk.CapAllow)),
		row("network/decided",
			"the host hears what a command asks its network for while it runs, and a rule that the host gives then holds for "+
				"that command alone",
			"have package network/gate serve the command (Gate.Serve)", func(c *C) {
				port, _ := c.webserver()
				other, asked := c.webserver()
				b := c.filtered([]string{hostPort(port)}, nil)
				b.reaches("host", port) // there is a program to try it with
				decided := make(chan sdk.Traffic, sdk.MaxTraffic)
				r := b.begin("", shell("echo ready; until ("+visitor+") | grep 'it was'; do sleep 0.1; done", "host",
					strconv.Itoa(other), something), func(cmd *command) { cmd.Decided = func(t sdk.Traffic) { decided <- t } })
				select {
				case t := <-decided:
					if t.Name != "host" || t.Port != other || t.Allowed || t.Add == "" {
						c.Fatalf("the host heard %+v", t)
					}
					c.ok("giving a rule", r.Allow(t.Add))
				case <-time.After(soon):
					c.Fatalf("the host did not hear what was denied within %s", soon)
				}
				r.await("it was something")
				b.reachesNot("host", other)
				c.wantAsked(1, asked)
			}, needCap(sdk.CapAllow)),
		row("network/secret",
			"a host gets the value of a secret whose placeholder a command sends, and the command never sees it",
			"pass Command.Secrets to package network/gate", func(c *C) {
				port, asked := c.webserver()
				other, otherAsked := c.webserver()
				b := c.filtered([]string{hostPort(port), hostPort(other)}, nil)
				authority, err := network.NewAuthority([]string{"host"}, time.Now().Add(time.Hour))
				c.own(err)
				const placeholder, value, newer = "hutch-placeholder-0123456789", "value-of-a-secret", "newer-value-of-it"
				const header = "Authorization: Bearer " + placeholder
				secret := func(value string) opt {
					return func(cmd *command) {
						cmd.Secrets = []sdk.Secret{{
							Name: "TOKEN", Placeholder: placeholder, Value: value, Hosts: []string{hostPort(port)},
						}}
						cmd.Authority = authority
					}
				}
				o := b.visit("host", port, header, secret(value))
				if got := asked(); len(got) != 1 || got[0] != "Bearer "+value {
					c.Fatalf("the host got %q: %s %s", got, quote(o.stdout), o.how())
				}
				if !strings.Contains(o.stdout, "it was Bearer "+placeholder) || strings.Contains(o.stdout, value) {
					c.Fatalf("the command got %s", quote(o.stdout))
				}
				b.visit("host", other, header, secret(value))
				if got := otherAsked(); slices.Contains(got, "Bearer "+value) {
					c.Fatalf("a host that the secret is not for got it")
				}
				b.begin("echo ready; sleep 600", secret(value)) // while it runs, a later command has a newer value
				b.visit("host", port, header, secret(newer))
				if got := asked(); len(got) != 2 || got[1] != "Bearer "+newer {
					c.Fatalf("of a newer value the host got %q", got)
				}
			}, needCap(sdk.CapSecrets)),
	)
}
