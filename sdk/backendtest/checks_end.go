package backendtest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

// heart is a script that starts descendants which write to the file beat in the
// workspace ten times a second: one child, one that forked twice, and one in a
// session of its own where there is a setsid.
const heart = `
beat() { while :; do echo "$1" >> beat; sleep 0.1; done; }
if [ "$1" = deaf ]; then trap '' TERM; fi
beat child &
( ( beat orphan & ) & )
all=2
if command -v setsid >/dev/null; then
  all=3
  setsid sh -c 'while :; do echo session >> beat; sleep 0.1; done' &
fi
until [ "$(sort -u beat 2>/dev/null | wc -l)" -eq $all ]; do sleep 0.02; done
echo ready
wait
while :; do sleep 1; done
`

// beating runs the heart.
func (b *box) beating(change ...func(*client.Command)) *running {
	return b.begin(heart, change...)
}

// still ends the check unless nothing beats any more in the sandbox.
func (c *C) still(b *box) {
	count := func() int {
		n, err := strconv.Atoi(strings.TrimSpace(b.must("wc -l < beat")))
		if err != nil {
			c.Fatalf("%v", err)
		}
		return n
	}
	before := count()
	time.Sleep(500 * time.Millisecond) // five beats
	if after := count(); after != before {
		c.Fatalf("descendants live on: they wrote %d lines in half a second after the end: %s", after-before, b.must("tail -n 3 beat"))
	}
}

func endChecks() []Check {
	const whole = "kill the whole tree: by a cgroup, a pid namespace, or a subreaper"
	return []Check{
		{ID: "end/timeout", Proves: "a command whose time is up ends in time, with cause timeout", Fix: "end the command with its context, and report CauseOf(ctx)",
			run: func(c *C) {
				began := time.Now()
				o := c.used().sh("exec sleep 300", timeout(300*time.Millisecond))
				if o.Cause != sdk.CauseTimeout {
					c.Fatalf("%s", o.how())
				}
				if took := time.Since(began); took < 300*time.Millisecond || took > 2*soon {
					c.Fatalf("it took %s", took)
				}
			}},
		{ID: "end/timeout-output", Proves: "what a command printed before it timed out arrives", Fix: "report exited only when all output is in the pipes",
			run: func(c *C) {
				o := c.used().shPatiently("echo before; exec sleep 300")
				c.eq("stdout", o.stdout, "before\n")
			}},
		{ID: "end/timeout-not-early", Proves: "a timeout that is not reached changes nothing", Fix: "compare durations, not guesses",
			run: func(c *C) { c.wantExit(c.used().sh("sleep 0.3; exit 3", timeout(time.Minute)), 3) }},
		{ID: "end/grace", Proves: "a command gets SIGTERM and its grace before SIGKILL, and the cause stays timeout", Fix: "SIGTERM, wait for Command.Grace, SIGKILL",
			run: func(c *C) {
				o := c.used().shPatiently(`trap 'echo bye; exit 0' TERM; echo hello; while :; do sleep 0.05; done`, func(cmd *client.Command) { cmd.Grace = 10 * time.Second })
				if o.Cause != sdk.CauseTimeout || o.stdout != "hello\nbye\n" {
					c.Fatalf("%s, stdout %s", o.how(), quote(o.stdout))
				}
			}},
		{ID: "end/deaf", Proves: "a command that ignores SIGTERM is killed after its grace", Fix: "SIGTERM, wait for Command.Grace, SIGKILL",
			run: func(c *C) {
				began := time.Now()
				o := c.used().sh(`trap '' TERM; while :; do sleep 0.1; done`, timeout(300*time.Millisecond))
				if o.Cause != sdk.CauseTimeout {
					c.Fatalf("%s", o.how())
				}
				if took := time.Since(began); took > 2*soon {
					c.Fatalf("it took %s", took)
				}
			}},
		{ID: "end/cancel", Proves: "a command that the host stops ends at once, with cause cancelled", Fix: "end the command with its context, and report CauseOf(ctx)",
			run: func(c *C) {
				r := c.used().begin("echo ready; exec sleep 300")
				r.Stop(sdk.CauseCancelled)
				if o := r.end(soon); o.Cause != sdk.CauseCancelled {
					c.Fatalf("%s", o.how())
				}
			}},
		{ID: "end/output", Proves: "a command that is stopped because it printed too much has cause output", Fix: "report CauseOf(ctx)",
			run: func(c *C) {
				r := c.used().begin("echo ready; exec sleep 300")
				r.Stop(sdk.CauseOutput)
				if o := r.end(soon); o.Cause != sdk.CauseOutput {
					c.Fatalf("%s", o.how())
				}
			}},
		{ID: "end/tree-cancel", Proves: "when a command is stopped all its descendants die, orphans and those in sessions of their own too", Fix: whole,
			run: func(c *C) {
				b := c.used()
				r := b.beating()
				r.Stop(sdk.CauseCancelled)
				r.end(2 * soon)
				c.still(b)
			}},
		{ID: "end/tree-timeout", Proves: "when the time of a command is up all its descendants die", Fix: whole,
			run: func(c *C) {
				b := c.used()
				r := b.beating(timeout(2 * time.Second))
				r.end(3 * soon)
				c.still(b)
			}},
		{ID: "end/tree-deaf", Proves: "descendants that ignore SIGTERM die too", Fix: whole,
			run: func(c *C) {
				b := c.used()
				r := b.beating(argv("/bin/sh", "-c", heart, "sh", "deaf"))
				r.Stop(sdk.CauseCancelled)
				r.end(2 * soon)
				c.still(b)
			}},
		{ID: "end/connection-lost", Proves: "when the call breaks off, the command and all its descendants die", Fix: "the end of the stream is the end of the command",
			run: func(c *C) {
				b := c.used()
				ctx, cancel := context.WithCancel(c.ctx)
				stream, err := b.on.rpc.Exec(ctx)
				if err != nil {
					c.Fatalf("%v", err)
				}
				if err := stream.Send(&pb.ExecRequest{Request: &pb.ExecRequest_Start{Start: &pb.ExecStart{
					SandboxId: b.ID(), Argv: [][]byte{[]byte("/bin/sh"), []byte("-c"), []byte(heart)}, Env: [][]byte{[]byte("PATH=" + searchPath)}, Dir: []byte(b.Ready().Workspace), GraceNs: int64(shortTerm),
				}}}); err != nil {
					c.Fatalf("%v", err)
				}
				c.eventually(2*soon, "the command runs", func() (bool, string) { return b.sh("test -s beat").Code == 0, "no beat" })
				cancel()
				c.eventually(2*soon, "the descendants are gone", func() (bool, string) {
					n := b.must("wc -l < beat")
					time.Sleep(300 * time.Millisecond)
					m := b.must("wc -l < beat")
					return n == m, fmt.Sprintf("beats went from %s to %s", strings.TrimSpace(n), strings.TrimSpace(m))
				})
			}},
		{ID: "end/others-live", Proves: "stopping one command leaves the others of the sandbox alone", Fix: "kill one tree, not the sandbox",
			run: func(c *C) {
				b := c.used()
				in, end := blocked()
				other := b.begin("echo ready; cat; exit 8", func(cmd *client.Command) { cmd.Stdin = in })
				one := b.begin("echo ready; exec sleep 300")
				one.Stop(sdk.CauseCancelled)
				one.end(soon)
				end()
				c.wantExit(other.end(soon), 8)
			}},
		{ID: "end/usable-after", Proves: "a sandbox in which a command was stopped runs further commands", Fix: "kill one tree, not the sandbox",
			run: func(c *C) {
				b := c.used()
				r := b.begin("echo ready; exec sleep 300")
				r.Stop(sdk.CauseCancelled)
				r.end(soon)
				c.eq("stdout", b.must("echo still here"), "still here\n")
			}},
		{ID: "end/at-any-moment", Proves: "a command that is stopped at any early moment ends, with cause cancelled unless it was quicker", Fix: "look at the context before and after starting",
			run: func(c *C) {
				b := c.used()
				for i := range 15 {
					ctx, cancel := context.WithTimeout(c.ctx, time.Duration(i*i)*100*time.Microsecond)
					began := time.Now()
					exit, err := b.Exec(ctx, b.command("exec sleep 300"))
					cancel()
					if took := time.Since(began); took > soon {
						c.Fatalf("stopped after %s it took %s", time.Duration(i*i)*100*time.Microsecond, took)
					}
					if err == nil && exit.Cause != sdk.CauseCancelled {
						c.Fatalf("%+v", exit)
					}
				}
				b.must("true")
			}},
	}
}

func ttyChecks() []Check {
	needs := []Need{needCap(sdk.CapTTY)}
	tty := func(rows, cols uint16) func(*client.Command) {
		return func(cmd *client.Command) {
			cmd.TTY = &sdk.WindowSize{Rows: rows, Cols: cols}
			cmd.Env["TERM"] = "xterm"
		}
	}
	return []Check{
		{ID: "tty/terminal", Needs: needs, Proves: "with a TTY all three streams are a terminal", Fix: "make a pseudo-terminal and let it control the command",
			run: func(c *C) { c.used().must("test -t 0 && test -t 1 && test -t 2", tty(24, 80)) }},
		{ID: "tty/none", Proves: "without a TTY no stream is a terminal", Fix: "give the command the streams as they are",
			run: func(c *C) { c.used().must("test ! -t 0 && test ! -t 1 && test ! -t 2") }},
		{ID: "tty/size", Needs: needs, Proves: "the terminal has the size that was asked for", Fix: "set the size before the command starts",
			run: func(c *C) { c.eq("stty size", c.used().must("stty size", tty(33, 111)), "33 111\r\n") }},
		{ID: "tty/resize", Needs: needs, Proves: "a new size reaches the terminal, and the command by SIGWINCH", Fix: "read Command.Resizes",
			run: func(c *C) {
				r := c.used().begin(`trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done`, tty(24, 80))
				if err := r.Resize(sdk.WindowSize{Rows: 50, Cols: 132}); err != nil {
					c.Fatalf("%v", err)
				}
				r.await("50 132")
				r.Stop(sdk.CauseCancelled)
				r.end(2 * soon)
			}},
		{ID: "tty/stderr", Needs: needs, Proves: "with a TTY stderr goes to the terminal too", Fix: "one terminal for all three streams",
			run: func(c *C) { c.eq("stdout", c.used().must("echo err >&2", tty(24, 80)), "err\r\n") }},
		{ID: "tty/code", Needs: needs, Proves: "a command on a terminal has its exit code", Fix: "wait for the command, not for the terminal",
			run: func(c *C) { c.wantExit(c.used().sh("exit 7", tty(24, 80)), 7) }},
		{ID: "tty/last-bytes", Needs: needs, Proves: "what a command prints on a terminal just before it ends is not lost", Fix: "drain the terminal after the end",
			run: func(c *C) {
				b := c.used()
				for range 5 {
					if o := b.must("head -c 20000 /dev/zero | tr '\\0' x; printf END", tty(24, 80)); len(o) != 20003 || !strings.HasSuffix(o, "END") {
						c.Fatalf("%d bytes arrived of 20003", len(o))
					}
				}
			}},
		{ID: "tty/input", Needs: needs, Proves: "what is typed reaches the command", Fix: "copy stdin to the terminal",
			run: func(c *C) {
				o := c.used().sh(`read x; echo "got $x"`, tty(24, 80), stdin("typed\n"))
				if !strings.Contains(o.stdout, "got typed") {
					c.Fatalf("%s, stdout %s", o.how(), quote(o.stdout))
				}
			}},
		{ID: "tty/ctrl-c", Needs: needs, Proves: "Ctrl-C typed on the terminal interrupts the command", Fix: "make the terminal the controlling one",
			run: func(c *C) {
				r, w := newTyping()
				c.later(w.stop)
				run := c.used().begin(`trap 'echo interrupted; exit 5' INT; echo ready; while :; do sleep 0.05; done`, tty(24, 80), func(cmd *client.Command) { cmd.Stdin = r })
				w.typ("\x03")
				c.wantExit(run.end(2*soon), 5)
				run.await("interrupted")
			}},
	}
}
