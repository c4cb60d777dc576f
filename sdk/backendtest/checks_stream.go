package backendtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
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

func digest[T []byte | string](b T) string {
	sum := sha256.Sum256([]byte(b))
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

// wantEnd ends the check unless so many bytes came, with END behind them.
func (c *C) wantEnd(got string, before int) {
	if len(got) != before+3 || !strings.HasSuffix(got, "END") {
		c.Fatalf("%d bytes arrived of %d", len(got), before+3)
	}
}

func streamChecks() []Check {
	// echoed proves that bytes which a command gets and writes arrive, on stdout or stderr.
	echoed := func(n int, script string, stream func(*out) string) func(*C) {
		return used(func(b *box) {
			data := noise(n)
			b.sameBytes("what came", []byte(stream(b.sh(script, stdin(string(data)), exits(0)))), data)
		})
	}
	return []Check{
		row("stream/stdin-10mib", "10 MiB of any bytes reach the command's stdin exactly",
			"give the command the stream as it is: cmd.Stdin = c.Stdin", used(func(b *box) {
				data := noise(tenMiB)
				got := b.must("sha256sum", stdin(string(data)))
				b.eq("the sum of what the command read", strings.Fields(got + " -")[0], digest(data))
			})),
		row("stream/stdout-10mib", "10 MiB that the command writes arrive exactly",
			"give the command the stream as it is: cmd.Stdout = c.Stdout", used(func(b *box) {
				line := "the quick brown fox jumps over the lazy dog\n"
				o := b.must(fmt.Sprintf("yes '%s' | head -c %d", strings.TrimSpace(line), tenMiB))
				b.sameBytes("stdout", []byte(o), []byte(strings.Repeat(line, tenMiB/len(line)+1)[:tenMiB]))
			})),
		row("stream/both-10mib", "10 MiB of any bytes, NULs too, go in and out at the same time exactly",
			"read and write at the same time, and touch no byte",
			echoed(tenMiB, "cat", func(o *out) string { return o.stdout })),
		row("stream/stderr-1mib", "1 MiB of any bytes on stderr arrives exactly",
			"give the command the stream as it is: cmd.Stderr = c.Stderr",
			echoed(1<<20, "cat >&2", func(o *out) string { return o.stderr })),
		row("stream/separate", "stdout and stderr are two streams",
			"do not merge them, unless there is a terminal",
			runs("echo out; echo err >&2; echo out; echo err >&2", want(func(b *box, o *out) {
				if o.stdout != "out\nout\n" || o.stderr != "err\nerr\n" {
					b.Fatalf("stdout %s, stderr %s", quote(o.stdout), quote(o.stderr))
				}
			}))),
		row("stream/last-bytes", "what a command writes just before it ends is never lost",
			"report exited only when all output is in the pipes", used(func(b *box) {
				for range 10 {
					b.wantEnd(b.must("head -c 100000 /dev/zero; printf END"), 100_000)
				}
			})),
		row("stream/no-newline", "output without a newline at its end arrives",
			"do not read lines", must("printf abc", printed("abc"))),
		row("stream/at-once", "output arrives while the command runs",
			"do not buffer until the end", used(func(b *box) { b.begin("printf ready; cat", b.openStdin()).cancel() })),
		row("stream/stdin-eof", "the end of stdin reaches the command",
			"close every copy of the write end", must("cat; echo end", stdin("x\n"), printed("x\nend\n"))),
		row("stream/stdin-empty", "a command without input reads the end at once",
			"give it /dev/null", must("cat; echo end", printed("end\n"))),
		row("stream/stdin-ignored", "a command that reads none of its 10 MiB of input ends all the same",
			"do not wait for stdin to be written", used(func(b *box) {
				b.sh("exit 4", stdin(string(noise(tenMiB))), exits(4), within(soon))
			})),
		row("stream/stdin-open", "a command ends although its stdin was never closed",
			"do not wait for the end of stdin", used(func(b *box) { b.sh("exit 4", b.openStdin(), exits(4), within(soon)) })),
		row("stream/held-open", "a command has ended when it has, although a child of it holds stdout open",
			"report exited when the command ends, not when its output does",
			runs("sleep 60 & echo out; exit 5", exits(5), printed("out\n"), within(soon))),
		row("stream/reader-gone", "a command whose reader is gone gets SIGPIPE or an error, and ends",
			"close every copy of the stream; give commands the default action for SIGPIPE", used(func(b *box) {
				cmd := b.command("yes hutch", timeout(time.Minute))
				cmd.Stdout = &shortWriter{left: 1 << 20}
				began := time.Now()
				exit, err := b.Exec(b.ctx, &cmd.Command)
				if exit == nil {
					b.Fatalf("%v", err)
				}
				if took := time.Since(began); took > 2*soon || exit.Cause == sdk.CauseTimeout {
					b.Fatalf("it took %s and ended with %+v", took, exit)
				}
			})),
		row("stream/slow-reader", "a slow reader holds the command up and loses nothing",
			"do not drop what cannot be written at once", used(func(b *box) {
				w := &slowWriter{}
				b.sh("head -c 3000000 /dev/zero; printf END", func(cmd *command) { cmd.Stdout = w }, exits(0))
				b.wantEnd(w.buf.String(), 3_000_000)
			})),
		row("stream/long-line", "a line of 5 MiB arrives", "do not read lines", used(func(b *box) {
			if o := b.must("head -c 5242880 /dev/zero | tr '\\0' x"); len(o) != 5<<20 || strings.Trim(o, "x") != "" {
				b.Fatalf("%d bytes arrived of %d", len(o), 5<<20)
			}
		})),
		row("stream/none", "a command whose output nobody wants runs as any other",
			"an empty name of a stream means /dev/null", used(func(b *box) {
				exit, err := b.Exec(b.ctx, &client.Command{
					Argv: []string{"/bin/sh", "-c", "echo out; echo err >&2; cat; exit 6"},
					Env:  map[string]string{"PATH": searchPath}, Dir: b.Ready().Workspace,
				})
				b.ok("exec", err)
				b.wantExit(&out{Exit: exit}, 6)
			})),
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
