package backendtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hutch-run/hutch/sdk"
)

// serve starts a command that serves HTTP on an address of the sandbox's loopback, with whatever in the sandbox can, and
// returns when it listens. Its answer to GET / has text in it.
func (b *box) serve(address string, port int, text string) *running {
	const script = `has() { command -v "$1" > /dev/null; }
if has python3; then exec python3 -c 'import socket, sys, threading
address, port, text = sys.argv[1:]
s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((address, int(port)))
s.listen(128)
print("ready", flush=True)
def answer(c):
    with c:
        c.recv(4096)
        c.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + text.encode())
while True:
    threading.Thread(target=answer, args=(s.accept()[0],)).start()' "$1" "$2" "$3"
elif has httpd; then
	mkdir -p "/tmp/www$2" && echo "$3" > "/tmp/www$2/index.html"
	case $1 in *:*) httpd -p "[$1]:$2" -h "/tmp/www$2";; *) httpd -p "$1:$2" -h "/tmp/www$2";; esac && echo ready && exec sleep 600
fi
echo nothing; echo ready; exec sleep 600`
	r := b.begin("", argv("/bin/sh", "-c", script, "sh", address, strconv.Itoa(port), text))
	if strings.Contains(r.out.String(), "nothing") {
		b.c.skipf("there is no program in the sandbox to try it with")
	}
	return r
}

// ask sends GET / to a port of the sandbox's loopback and returns what comes.
func (b *box) ask(port int) (string, error) {
	conn, err := b.Dial(b.c.ctx, port)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(soon))
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.0\r\nHost: 127.0.0.1:%d\r\n\r\n", port); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

func dialChecks() []Check {
	const fix = "connect in the network namespace of the command: see package network/loopback"
	needs := []Need{needCap(sdk.CapDial)}
	const text = "something from the sandbox"
	reached := func(c *C, b *box, port int) {
		if got, err := b.ask(port); err != nil || !strings.Contains(got, text) {
			c.Fatalf("port %d answered %s: %v", port, quote(got), err)
		}
	}
	closed := func(c *C, b *box, port int) {
		_, err := b.ask(port)
		c.wantReason(err, fmt.Sprintf("a connection to port %d, where nothing listens,", port), sdk.ReasonNotFound)
	}
	return []Check{
		{ID: "network/publish", Needs: needs, Proves: "the host connects to a server on 127.0.0.1 of a sandbox without a network, which stays without one", Fix: fix,
			run: func(c *C) {
				b := c.used()
				closed(c, b, 3917)
				r := b.serve("127.0.0.1", 3917, text)
				reached(c, b, 3917)
				closed(c, b, 3918)
				if conn, err := net.DialTimeout("tcp", "127.0.0.1:3917", soon); err == nil {
					conn.Close()
					c.Fatalf("the server listens on the host's loopback too")
				}
				c.onlyLoopback(b)
				r.Stop(sdk.CauseCancelled)
				r.end(soon)
				closed(c, b, 3917)
			}},
		{ID: "network/publish-ipv6", Needs: needs, Proves: "the host connects to a server on ::1 of a sandbox", Fix: "try ::1 where nothing listens on 127.0.0.1",
			run: func(c *C) {
				b := c.used()
				if o := b.sh("grep -q ' lo$' /proc/net/if_inet6"); o.Code != 0 {
					c.skipf("the sandbox has no IPv6")
				}
				b.serve("::1", 3919, text)
				reached(c, b, 3919)
			}},
		{ID: "network/publish-filtered", Needs: []Need{needCap(sdk.CapDial), needNetwork(sdk.NetworkFiltered)}, Proves: "the host connects to a server in a filtered network as well", Fix: fix,
			run: func(c *C) {
				b := c.filtered(nil, nil)
				b.serve("127.0.0.1", 3920, text)
				reached(c, b, 3920)
			}},
		{ID: "network/publish-apart", Needs: needs, Proves: "a port of one sandbox is reached by no other sandbox, and through no other", Fix: "a network namespace for each sandbox",
			run: func(c *C) {
				one, other := c.used(), c.box()
				one.serve("127.0.0.1", 3921, text)
				reached(c, one, 3921)
				closed(c, other, 3921)
				if o := other.visit("127.0.0.1", 3921, "A: b"); strings.Contains(o.stdout, text) {
					c.Fatalf("another sandbox reached the server: %s", quote(o.stdout))
				}
			}},
		{ID: "network/publish-many", Needs: needs, Proves: "many connections at once each get their own answer", Fix: "dial once for each call",
			run: func(c *C) {
				b := c.used()
				b.serve("127.0.0.1", 3922, text)
				var all sync.WaitGroup
				var mu sync.Mutex
				var errs []error
				for range 100 {
					all.Go(func() {
						got, err := b.ask(3922)
						if err == nil && !strings.Contains(got, text) {
							err = fmt.Errorf("the answer is %s", quote(got))
						}
						mu.Lock()
						defer mu.Unlock()
						errs = append(errs, err)
					})
				}
				all.Wait()
				if err := errors.Join(errs...); err != nil {
					c.Fatalf("%v", err)
				}
			}},
		{ID: "network/publish-attached", Needs: []Need{needCap(sdk.CapDial), needCap(sdk.CapAttach)}, Proves: "another process that attaches to the sandbox connects to a server that runs in it", Fix: "find the commands of all processes",
			run: func(c *C) {
				b := c.box(func(r *sdk.CreateRequest) { r.Keep = true })
				b.serve("127.0.0.1", 3923, text)
				fresh := c.fresh(StartOptions{})
				sb, err := fresh.Attach(c.ctx, b.Handle())
				if err != nil {
					c.Fatalf("attach: %v", err)
				}
				reached(c, &box{Sandbox: sb, c: c, on: fresh, req: b.req}, 3923)
			}},
		{ID: "network/publish-ends", Needs: needs, Proves: "a connection ends when the sandbox is destroyed", Fix: "end the connections of a sandbox with it",
			run: func(c *C) {
				b := c.box()
				b.serve("127.0.0.1", 3924, text)
				conn, err := b.Dial(c.ctx, 3924)
				if err != nil {
					c.Fatalf("%v", err)
				}
				defer conn.Close()
				c.destroy(b)
				_ = conn.SetDeadline(time.Now().Add(soon))
				var one [1]byte
				var late net.Error
				if n, err := conn.Read(one[:]); n > 0 || errors.As(err, &late) && late.Timeout() {
					c.Fatalf("the connection is still open: %s %v", quote(string(bytes.Clone(one[:n]))), err)
				}
			}},
	}
}
