package backendtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

const tenMiB = 10 << 20

// noise is n bytes that look like nothing, NULs and all, the same at each run.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{'h', 'u', 't', 'c', 'h'})
	r.Read(b)
	for i := 0; i < n; i += 97 {
		b[i] = 0
	}
	return b
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// sameBytes ends the check unless got is want, and says where they part.
func (c *C) sameBytes(what string, got, want []byte) {
	if bytes.Equal(got, want) {
		return
	}
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	c.Fatalf("%s has %d bytes, want %d; the first difference is at byte %d", what, len(got), len(want), at)
}

func streamChecks() []Check {
	return []Check{
		{ID: "stream/stdin-10mib", Proves: "10 MiB of any bytes reach the command's stdin exactly", Fix: "give the command the stream as it is: cmd.Stdin = c.Stdin",
			run: func(c *C) {
				data := noise(tenMiB)
				got := c.used().must("sha256sum", stdin(string(data)))
				c.eq("the sum of what the command read", strings.Fields(got + " -")[0], digest(data))
			}},
		{ID: "stream/stdout-10mib", Proves: "10 MiB that the command writes arrive exactly", Fix: "give the command the stream as it is: cmd.Stdout = c.Stdout",
			run: func(c *C) {
				line := "the quick brown fox jumps over the lazy dog\n"
				want := []byte(strings.Repeat(line, tenMiB/len(line)+1)[:tenMiB])
				o := c.used().must(fmt.Sprintf("yes '%s' | head -c %d", strings.TrimSpace(line), tenMiB))
				c.sameBytes("stdout", []byte(o), want)
			}},
		{ID: "stream/both-10mib", Proves: "10 MiB of any bytes, NULs too, go in and out at the same time exactly", Fix: "read and write at the same time, and touch no byte",
			run: func(c *C) {
				data := noise(tenMiB)
				o := c.used().must("cat", stdin(string(data)))
				c.sameBytes("stdout", []byte(o), data)
			}},
		{ID: "stream/stderr-1mib", Proves: "1 MiB of any bytes on stderr arrives exactly", Fix: "give the command the stream as it is: cmd.Stderr = c.Stderr",
			run: func(c *C) {
				data := noise(1 << 20)
				o := c.used().sh("cat >&2", stdin(string(data)))
				c.sameBytes("stderr", []byte(o.stderr), data)
			}},
		{ID: "stream/separate", Proves: "stdout and stderr are two streams", Fix: "do not merge them, unless there is a terminal",
			run: func(c *C) {
				o := c.used().sh("echo out; echo err >&2; echo out; echo err >&2")
				if o.stdout != "out\nout\n" || o.stderr != "err\nerr\n" {
					c.Fatalf("stdout %s, stderr %s", quote(o.stdout), quote(o.stderr))
				}
			}},
		{ID: "stream/last-bytes", Proves: "what a command writes just before it ends is never lost", Fix: "report exited only when all output is in the pipes",
			run: func(c *C) {
				b := c.used()
				for range 10 {
					o := b.must("head -c 100000 /dev/zero; printf END")
					if len(o) != 100003 || !strings.HasSuffix(o, "END") {
						c.Fatalf("%d bytes arrived of 100003", len(o))
					}
				}
			}},
		{ID: "stream/no-newline", Proves: "output without a newline at its end arrives", Fix: "do not read lines",
			run: func(c *C) { c.eq("stdout", c.used().must("printf abc"), "abc") }},
		{ID: "stream/at-once", Proves: "output arrives while the command runs", Fix: "do not buffer until the end",
			run: func(c *C) {
				r := c.used().begin("printf ready; cat", func(cmd *client.Command) { in, end := blocked(); cmd.Stdin = in; c.later(end) })
				r.Stop(sdk.CauseCancelled)
				r.end(2 * soon)
			}},
		{ID: "stream/stdin-eof", Proves: "the end of stdin reaches the command", Fix: "close every copy of the write end",
			run: func(c *C) { c.eq("stdout", c.used().must("cat; echo end", stdin("x\n")), "x\nend\n") }},
		{ID: "stream/stdin-empty", Proves: "a command without input reads the end at once", Fix: "give it /dev/null",
			run: func(c *C) { c.eq("stdout", c.used().must("cat; echo end"), "end\n") }},
		{ID: "stream/stdin-ignored", Proves: "a command that reads none of its 10 MiB of input ends all the same", Fix: "do not wait for stdin to be written",
			run: func(c *C) {
				began := time.Now()
				c.wantExit(c.used().sh("exit 4", stdin(string(noise(tenMiB)))), 4)
				if took := time.Since(began); took > soon {
					c.Fatalf("it took %s", took)
				}
			}},
		{ID: "stream/stdin-open", Proves: "a command ends although its stdin was never closed", Fix: "do not wait for the end of stdin",
			run: func(c *C) {
				in, end := blocked()
				c.later(end)
				began := time.Now()
				c.wantExit(c.used().sh("exit 4", func(cmd *client.Command) { cmd.Stdin = in }), 4)
				if took := time.Since(began); took > soon {
					c.Fatalf("it took %s", took)
				}
			}},
		{ID: "stream/held-open", Proves: "a command has ended when it has, although a child of it holds stdout open", Fix: "report exited when the command ends, not when its output does",
			run: func(c *C) {
				began := time.Now()
				o := c.used().sh("sleep 60 & echo out; exit 5")
				c.wantExit(o, 5)
				c.eq("stdout", o.stdout, "out\n")
				if took := time.Since(began); took > soon {
					c.Fatalf("it took %s", took)
				}
			}},
		{ID: "stream/reader-gone", Proves: "a command whose reader is gone gets SIGPIPE or an error, and ends", Fix: "close every copy of the stream; give commands the default action for SIGPIPE",
			run: func(c *C) {
				b := c.used()
				cmd := b.command("yes hutch", timeout(time.Minute))
				cmd.Stdout = &shortWriter{left: 1 << 20}
				began := time.Now()
				exit, err := b.Exec(c.ctx, cmd)
				if exit == nil {
					c.Fatalf("%v", err)
				}
				if took := time.Since(began); took > 2*soon || exit.Cause == sdk.CauseTimeout {
					c.Fatalf("it took %s and ended with %+v", took, exit)
				}
			}},
		{ID: "stream/slow-reader", Proves: "a slow reader holds the command up and loses nothing", Fix: "do not drop what cannot be written at once",
			run: func(c *C) {
				b := c.used()
				w := &slowWriter{}
				cmd := b.command("head -c 3000000 /dev/zero; printf END")
				cmd.Stdout = w
				c.wantExit(b.exec(cmd), 0)
				if got := w.buf.String(); len(got) != 3000003 || !strings.HasSuffix(got, "END") {
					c.Fatalf("%d bytes arrived of 3000003", len(got))
				}
			}},
		{ID: "stream/long-line", Proves: "a line of 5 MiB arrives", Fix: "do not read lines",
			run: func(c *C) {
				if o := c.used().must("head -c 5242880 /dev/zero | tr '\\0' x"); len(o) != 5<<20 || strings.Trim(o, "x") != "" {
					c.Fatalf("%d bytes arrived of %d", len(o), 5<<20)
				}
			}},
		{ID: "stream/none", Proves: "a command whose output nobody wants runs as any other", Fix: "an empty name of a stream means /dev/null",
			run: func(c *C) {
				b := c.used()
				exit, err := b.Exec(c.ctx, &client.Command{Argv: []string{"/bin/sh", "-c", "echo out; echo err >&2; cat; exit 6"}, Env: map[string]string{"PATH": searchPath}, Dir: b.Ready().Workspace})
				if err != nil {
					c.Fatalf("%v", err)
				}
				c.wantExit(&out{Exit: exit}, 6)
			}},
	}
}

// shortWriter takes so many bytes and then no more.
type shortWriter struct{ left int }

func (w *shortWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errors.New("the reader has gone")
	}
	return len(p), nil
}

// slowWriter takes its time.
type slowWriter struct{ buf bytes.Buffer }

func (w *slowWriter) Write(p []byte) (int, error) {
	time.Sleep(10 * time.Millisecond)
	return w.buf.Write(p)
}

var _ io.Writer = (*slowWriter)(nil)
