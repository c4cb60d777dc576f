package backendtest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-run/hutch/sdk"
)

// text is what servers in the sandbox answer.
const text = "something from the sandbox"

// serve starts a command that serves HTTP on an address of the sandbox's loopback, with whatever in the sandbox can,
// and returns when it listens. Its answer to GET / has text in it.
func (b *box) serve(address string, port int) *running {
	r := b.begin("", shell(`has() { command -v "$1" > /dev/null; }
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
	case $1 in *:*) httpd -p "[$1]:$2" -h "/tmp/www$2";; *) httpd -p "$1:$2" -h "/tmp/www$2";; esac &&
		echo ready && exec sleep 600
fi
echo nothing; echo ready; exec sleep 600`, address, strconv.Itoa(port), text))
	if strings.Contains(r.out.String(), "nothing") {
		b.skipf("there is no program in the sandbox to try it with")
	}
	return r
}

// ask sends GET / to a port of the sandbox's loopback and returns what comes.
func (b *box) ask(port int) (string, error) {
	conn, err := b.Dial(b.ctx, port)
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

// answers ends the check unless the server in the sandbox answers.
func (b *box) answers(port int) { b.ok(fmt.Sprintf("port %d", port), b.tryAnswers(port)) }

func (b *box) tryAnswers(port int) error {
	got, err := b.ask(port)
	if err == nil && !strings.Contains(got, text) {
		err = fmt.Errorf("the answer is %s", quote(got))
	}
	return err
}

// closed ends the check unless nothing listens.
func (b *box) closed(port int) {
	_, err := b.ask(port)
	b.wantReason(err, fmt.Sprintf("a connection to port %d, where nothing listens,", port), sdk.ReasonNotFound)
}

func dialChecks() []Check {
	return needing([]Need{needCap(sdk.CapDial)},
		row("network/publish",
			"the host connects to a server on 127.0.0.1 of a sandbox without a network, which stays without one",
			"connect in the network namespace of the command: see package network/loopback", used(func(b *box) {
				b.closed(3917)
				r := b.serve("127.0.0.1", 3917)
				b.answers(3917)
				b.closed(3918)
				if conn, err := net.DialTimeout("tcp", "127.0.0.1:3917", soon); err == nil {
					conn.Close()
					b.Fatalf("the server listens on the host's loopback too")
				}
				b.onlyLoopback()
				r.cancel()
				b.closed(3917)
			})),
		row("network/publish-ipv6", "the host connects to a server on ::1 of a sandbox",
			"try ::1 where nothing listens on 127.0.0.1", used(func(b *box) {
				if o := b.sh("grep -q ' lo$' /proc/net/if_inet6"); o.Code != 0 {
					b.skipf("the sandbox has no IPv6")
				}
				b.serve("::1", 3919)
				b.answers(3919)
			})),
		row("network/publish-filtered", "the host connects to a server in a filtered network as well",
			"connect in the network namespace of the command: see package network/loopback", func(c *C) {
				b := c.filtered(nil, nil)
				b.serve("127.0.0.1", 3920)
				b.answers(3920)
			}, needFiltered),
		row("network/publish-apart", "a port of one sandbox is reached by no other sandbox, and through no other",
			"a network namespace for each sandbox", func(c *C) {
				one, other := c.used(), c.box()
				one.serve("127.0.0.1", 3921)
				one.answers(3921)
				other.closed(3921)
				if o := other.visit("127.0.0.1", 3921, "A: b"); strings.Contains(o.stdout, text) {
					c.Fatalf("another sandbox reached the server: %s", quote(o.stdout))
				}
			}),
		row("network/publish-many", "many connections at once each get their own answer",
			"dial once for each call", used(func(b *box) {
				b.serve("127.0.0.1", 3922)
				b.atOnce(100, func(int) error { return b.tryAnswers(3922) })
			})),
		row("network/publish-attached", "another process that attaches to the sandbox connects to a server that runs in it",
			"find the commands of all processes", kept(func(b *box) {
				b.serve("127.0.0.1", 3923)
				b.elsewhere().answers(3923)
			}), needAttach),
		row("network/publish-ends", "a connection ends when the sandbox is destroyed",
			"end the connections of a sandbox with it", boxed(func(b *box) {
				b.serve("127.0.0.1", 3924)
				conn, err := b.Dial(b.ctx, 3924)
				b.ok("dial", err)
				defer conn.Close()
				b.destroy()
				_ = conn.SetDeadline(time.Now().Add(soon))
				var one [1]byte
				var late net.Error
				if n, err := conn.Read(one[:]); n > 0 || errors.As(err, &late) && late.Timeout() {
					b.Fatalf("the connection is still open: %s %v", quote(string(one[:n])), err)
				}
			})),
	)
}
