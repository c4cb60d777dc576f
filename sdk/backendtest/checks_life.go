package backendtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-run/hutch/sdk"
)

// readyText shows all of it, what it points to included.
func readyText(r sdk.Ready) string {
	b, err := json.Marshal(r)
	return fmt.Sprintf("%s %v", b, err)
}

// destroyOn destroys a sandbox by its handle.
func (c *C) destroyOn(i *instance, h sdk.Handle) { c.ok("destroy", i.Destroy(c.ctx, h)) }

func lifeChecks() []Check {
	list, inspect := needCap(sdk.CapList), needCap(sdk.CapInspect)
	neverWas := func(c *C) sdk.Handle { return sdk.Handle{ID: c.short + "-never-was"} }
	owned := func(c *C, by string) *box {
		return c.box(func(r *sdk.CreateRequest) { r.Owner = c.owner + by })
	}
	return []Check{
		row("destroy/unknown", "destroying a sandbox that never was succeeds",
			"what is not there is destroyed", func(c *C) {
				c.destroyOn(c.shared(), neverWas(c))
				c.destroyOn(c.fresh(StartOptions{}), neverWas(c))
			}),
		row("destroy/ten-times", "destroying a sandbox ten times succeeds ten times",
			"what is not there is destroyed", boxed(func(b *box) {
				for range 10 {
					b.destroy()
				}
				b.nothingLeft(b.ID())
			})),
		row("destroy/at-once", "destroying a sandbox four times at the same time succeeds",
			"lock by id", boxed(func(b *box) {
				b.atOnce(4, func(int) error { return b.Destroy(b.ctx) })
			})),
		row("destroy/running", "destroying a sandbox ends the commands that run in it",
			"kill them all, and wait", boxed(func(b *box) {
				r := b.beating()
				b.destroy()
				r.ended(2 * soon)
				if exit, err := r.Wait(); err == nil && exit.Cause == sdk.CauseExited && exit.Code == 0 {
					b.Fatalf("the command is said to have ended well: %+v", exit)
				}
				b.noProcesses()
				b.nothingLeft(b.ID())
			})),
		row("destroy/files", "destroying a sandbox removes what it wrote to a workspace of its own",
			"remove what Create made, and no more", boxed(func(b *box) {
				b.must("echo x > file && mkdir closed && echo y > closed/f && chmod 000 closed")
				b.destroy()
				b.stateEmpty()
			})),
		row("destroy/fresh-instance", "another process destroys a sandbox with nothing but its handle",
			"put all that is needed into the handle or below the state directory, and nothing into memory",
			boxed(func(b *box) {
				b.must("echo x > file")
				other := b.fresh(StartOptions{})
				b.destroyOn(other, b.Handle())
				b.stateEmpty()
				if b.facts.Has(sdk.CapAttach) {
					_, err := other.Attach(b.ctx, b.Handle())
					b.wantReason(err, "attaching to it afterwards", sdk.ReasonNotFound)
				}
			})),
		// L12
		row("destroy/running-elsewhere",
			"a command whose sandbox another process destroys ends by a signal: code 137, cause signaled or cancelled",
			"report an end, and no error, when the sandbox ends under a command", kept(func(b *box) {
				r := b.beating()
				b.destroyOn(b.fresh(StartOptions{}), b.Handle())
				o := r.end(2 * soon)
				if o.Code != 137 || o.Cause != sdk.CauseSignaled && o.Cause != sdk.CauseCancelled {
					b.Fatalf("the command ended with %s", o.how())
				}
			}), needLocal, needAttach),
		row("destroy/by-end", "a sandbox that is not to be kept is gone when its process has ended in the ordinary way",
			"the SDK destroys it; Destroy must not need more time than the host gives", func(c *C) {
				b := c.ownBox()
				b.must("true")
				c.halt(b.on)
				b.stateEmpty()
				c.nothingLeft(b.ID())
			}),
		row("destroy/half-made", "a handle whose state directory is gone can be destroyed",
			"what is not there is destroyed", boxed(func(b *box) {
				h := b.Handle()
				b.destroy()
				makeWritable(b.req.StateDir)
				b.ok("the state directory cannot be removed", os.RemoveAll(b.req.StateDir)) // as the host does
				b.destroyOn(b.fresh(StartOptions{}), h)
			})),
		row("attach/fresh-instance",
			"another process finds a sandbox by its handle, with what it wrote, and runs commands in it",
			"put all that is needed into the handle or below the state directory", kept(func(b *box) {
				b.must("echo kept > kept")
				again := b.elsewhere()
				b.eq("Ready", readyText(again.Ready()), readyText(b.Ready()))
				again.prints("kept\n", "cat kept")
			}), needAttach),
		row("attach/outlives", "a sandbox that is to be kept outlives the process that made it",
			"respect Keep; put its processes into sessions of their own", func(c *C) {
				b := c.ownBox(keep)
				b.must("echo kept > kept")
				c.halt(b.on)
				b.attached(c.shared()).prints("kept\n", "cat kept")
				c.destroyOn(c.shared(), b.Handle())
			}, needAttach),
		alone("attach/ends-commands",
			"after SIGKILL of the plugin no command of its sandboxes runs once a fresh one has attached",
			"let commands die with the plugin, or write down on the host which ones run, and end them in Attach", func(c *C) {
				b := c.ownBox(keep)
				b.beating()
				c.kill(b.on)
				again := b.elsewhere()
				again.still()
				again.destroy()
			}, needProcess, needAttach),
		row("attach/moved", "a sandbox whose state directory was moved is found and removed where it is now",
			"use Handle.StateDir, and no path that was noted at Create", func(c *C) {
				b := c.ownBox(keep)
				b.must("echo kept > kept")
				c.halt(b.on)
				h := b.Handle()
				h.StateDir = b.req.StateDir + "-moved"
				c.own(os.Rename(b.req.StateDir, h.StateDir))
				b.req.StateDir = h.StateDir
				sb, err := c.shared().Attach(c.ctx, h)
				c.ok("attach", err)
				(&box{Sandbox: sb, C: c, on: c.shared(), req: b.req}).prints("kept\n", "cat kept")
				c.destroyOn(c.shared(), h)
				b.stateEmpty()
			}, needAttach),
		row("attach/gone", "attaching to a sandbox that was destroyed, or never was, gives not found",
			"reason not_found", func(c *C) {
				_, err := c.fresh(StartOptions{}).Attach(c.ctx, c.destroyed().Handle())
				c.wantReason(err, "attaching to a destroyed sandbox", sdk.ReasonNotFound)
				_, err = c.shared().Attach(c.ctx, neverWas(c))
				c.wantReason(err, "attaching to a sandbox that never was", sdk.ReasonNotFound)
			}, needAttach),
		row("inspect/ready", "a sandbox that works is said to be ready",
			"state ready", used(func(b *box) { b.is(sdk.StateReady) }), inspect),
		row("inspect/gone", "a sandbox that was destroyed is gone or not found",
			"state gone, or reason not_found", func(c *C) {
				if st, err := c.destroyed().Inspect(c.ctx); err != nil {
					c.wantReason(err, "inspecting it", sdk.ReasonNotFound)
				} else if st.State != sdk.StateGone {
					c.Fatalf("%+v", st)
				}
			}, inspect),
		row("inspect/running", "a sandbox can be inspected while a command runs",
			"do not hold a lock while a command runs", used(func(b *box) {
				r := b.sleeping()
				_, err := b.Inspect(b.ctx)
				b.ok("inspect", err)
				r.cancel()
			}), inspect),
		row("list/owner", "a list has the sandboxes of the owner, and no others",
			"mark what you make with the owner", func(c *C) {
				mine, other := owned(c, "-mine"), owned(c, "-other")
				c.wantListed(c.shared(), c.owner+"-mine", mine.ID(), true)
				c.wantListed(c.shared(), c.owner+"-mine", other.ID(), false)
				c.wantListed(c.shared(), c.owner+"-other", other.ID(), true)
				c.wantListed(c.shared(), c.owner+"-nobody", mine.ID(), false)
			}, list),
		row("list/all", "a list for the empty owner has all sandboxes",
			"an empty owner means all", used(func(b *box) { b.wantListed(b.on, "", b.ID(), true) }), list),
		row("list/fresh-instance", "another process lists what this one made",
			"ask the machine and not the memory", used(func(b *box) {
				b.wantListed(b.fresh(StartOptions{}), b.owner, b.ID(), true)
			}), list),
		row("list/handles", "a handle from a list is enough to destroy its sandbox",
			"return whole handles", boxed(func(b *box) {
				other := b.fresh(StartOptions{})
				for _, h := range b.listed(other, b.owner, b.ID()) {
					b.destroyOn(other, h)
				}
				b.stateEmpty()
			}), list),
		row("list/destroyed", "a destroyed sandbox is not listed", "remove the mark with the sandbox", func(c *C) {
			b := c.destroyed()
			c.wantListed(c.shared(), c.owner, b.ID(), false)
			c.wantListed(c.fresh(StartOptions{}), "", b.ID(), false)
		}, list),
		row("drain/ends-commands", "Drain ends the commands that run, and nothing is accepted afterwards",
			"the SDK does it; let Exec end with its context", func(c *C) {
				b := c.ownBox()
				r := b.beating()
				c.ok("drain", b.on.Drain(c.ctx))
				r.ended(2 * soon)
				if _, err := b.on.Create(c.ctx, c.request()); err == nil {
					c.Fatalf("a sandbox was made after Drain")
				}
				c.noProcesses()
				b.stateEmpty()
			}),
		row("drain/twice", "a second Drain does no harm", "succeed, or say that there is nobody any more", func(c *C) {
			b := c.ownBox()
			c.ok("drain", b.on.Drain(c.ctx))
			_ = b.on.Drain(c.ctx) // either answer is fine, as long as there is one
		}),
	}
}

// wantListed ends the check unless the id is, or is not, listed for the owner.
func (c *C) wantListed(i *instance, owner, id string, want bool) {
	if got := len(c.listed(i, owner, id)) > 0; got != want {
		c.Fatalf("listed for the owner %q: %v, want %v", owner, got, want)
	}
}

func stopChecks() []Check {
	inspect := needCap(sdk.CapInspect)
	return needing([]Need{needCap(sdk.CapStop)},
		row("stop/keeps", "what was written to workspace and output is there after a stop and a start, three times over",
			"stop what runs, and leave the files", kept(func(b *box) {
				names := env("W", b.Ready().Workspace, "O", b.Ready().Output)
				b.must(`O=${O:-$W}; echo one > "$W/kept" && mkdir "$W/dir" && echo two > "$O/result"`, names)
				for range 3 {
					b.stop()
					b.wakeUp()
					b.prints("one\ntwo\n", `O=${O:-$W}; cat "$W/kept" "$O/result" && test -d "$W/dir"`, names)
				}
			})),
		row("stop/state", "a sandbox is stopped or asleep after a stop, and ready after a start",
			"states stopped, asleep and ready", kept(func(b *box) {
				b.stop()
				b.resting()
				b.wakeUp()
				b.is(sdk.StateReady)
			}), inspect),
		row("stop/ends-processes", "a stop ends every process of the sandbox",
			"kill them all, and wait", kept(func(b *box) {
				r := b.beating()
				b.stop()
				b.notByItself(r)
				b.noProcesses()
				b.wakeUp()
				b.still()
			})),
		row("stop/twice", "stopping what is stopped and starting what is ready succeed, and a start leaves alone what runs",
			"do nothing where nothing is to be done", kept(func(b *box) {
				b.stop()
				b.stop()
				b.wakeUp()
				r := b.sleeping()
				b.wakeUp()
				select {
				case <-r.Done():
					b.Fatalf("the start of a sandbox that is ready ended its command: %s", r.end(soon).how())
				default:
				}
				r.cancel()
			})),
		row("stop/asleep", "a sandbox that is asleep takes a command, and one that is stopped refuses it",
			"say stopped where Exec does not start the sandbox by itself", kept(func(b *box) {
				b.stop()
				st := b.resting()
				o, err := b.try("exit 7")
				switch {
				case st == sdk.StateAsleep:
					b.ok("a command for a sandbox that is asleep", err)
					b.wantExit(o, 7)
				case err == nil && !o.NotStarted:
					b.Fatalf("stopped, it ran a command: %s", o.how())
				}
			}), inspect),
		row("stop/fresh-instance", "another process finds a stopped sandbox, starts it, and has its files",
			"nothing of a stop may be in memory alone", kept(func(b *box) {
				b.must("echo kept > kept")
				b.stop()
				o := b.elsewhere()
				if b.facts.Has(sdk.CapInspect) {
					o.resting()
				}
				o.wakeUp()
				o.prints("kept\n", "cat kept")
			}), needAttach),
		row("stop/destroy", "a stopped sandbox can be destroyed, and leaves nothing",
			"Destroy asks nothing of a sandbox but its handle", kept(func(b *box) {
				b.must("echo x > file")
				b.stop()
				b.destroy()
				b.stateEmpty()
				b.nothingLeft(b.ID())
			})),
	)
}

func (b *box) stop() { b.ok("stop", b.Stop(b.ctx)) }

func (b *box) wakeUp() { b.ok("start", b.Wake(b.ctx, nil)) }

// is ends the check unless the sandbox is in the state.
func (b *box) is(want sdk.State) {
	if st, err := b.Inspect(b.ctx); err != nil || st.State != want {
		b.Fatalf("%+v %v", st, err)
	}
}

// resting looks whether the sandbox is stopped or asleep, and says which.
func (b *box) resting() sdk.State {
	st, err := b.Inspect(b.ctx)
	if err != nil || st.State != sdk.StateStopped && st.State != sdk.StateAsleep {
		b.Fatalf("a stopped sandbox is said to be %+v %v", st, err)
	}
	return st.State
}

// notByItself ends the check when a command that was ended is said to have exited.
func (c *C) notByItself(r *running) {
	if o := r.end(2 * soon); o.Cause == sdk.CauseExited {
		c.Fatalf("the command that ran is said to have ended by itself: %s", o.how())
	}
}

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
func (b *box) beating(opts ...opt) *running { return b.begin(heart, opts...) }

// beats counts what the heart has written.
func (b *box) beats() int {
	n, err := strconv.Atoi(strings.TrimSpace(b.must("wc -l < beat")))
	b.ok("counting the beats", err)
	return n
}

// still ends the check unless nothing beats any more in the sandbox.
func (b *box) still() {
	before := b.beats()
	time.Sleep(500 * time.Millisecond) // five beats
	if after := b.beats(); after != before {
		b.Fatalf("descendants live on: they wrote %d lines in half a second after the end: %s",
			after-before, b.must("tail -n 3 beat"))
	}
}

func endChecks() []Check {
	stopped := func(cause sdk.Cause) func(*C) {
		return used(func(b *box) {
			r := b.sleeping()
			r.Stop(cause)
			if o := r.end(soon); o.Cause != cause {
				b.Fatalf("%s", o.how())
			}
		})
	}
	short := timeout(300 * time.Millisecond)
	return []Check{
		row("end/timeout", "a command whose time is up ends in time, with cause timeout",
			"end the command with its context, and report CauseOf(ctx)",
			runs("exec sleep 300", short, ends(sdk.CauseTimeout), within(2*soon),
				want(func(b *box, o *out) {
					if o.took < 300*time.Millisecond {
						b.Fatalf("it took %s", o.took)
					}
				}))),
		row("end/timeout-output", "what a command printed before it timed out arrives",
			"report exited only when all output is in the pipes", used(func(b *box) {
				b.eq("stdout", b.shPatiently("echo before; exec sleep 300").stdout, "before\n")
			})),
		row("end/timeout-not-early", "a timeout that is not reached changes nothing",
			"compare durations, not guesses", runs("sleep 0.3; exit 3", timeout(time.Minute), exits(3))),
		row("end/grace", "a command gets SIGTERM and its grace before SIGKILL, and the cause stays timeout",
			"SIGTERM, wait for Command.Grace, SIGKILL", used(func(b *box) {
				o := b.shPatiently(`trap 'echo bye; exit 0' TERM; echo hello; while :; do sleep 0.05; done`,
					func(cmd *command) { cmd.Grace = 10 * time.Second })
				if o.Cause != sdk.CauseTimeout || o.stdout != "hello\nbye\n" {
					b.Fatalf("%s, stdout %s", o.how(), quote(o.stdout))
				}
			})),
		row("end/deaf", "a command that ignores SIGTERM is killed after its grace",
			"SIGTERM, wait for Command.Grace, SIGKILL",
			runs(`trap '' TERM; while :; do sleep 0.1; done`, short, ends(sdk.CauseTimeout), within(2*soon))),
		row("end/cancel", "a command that the host stops ends at once, with cause cancelled",
			"end the command with its context, and report CauseOf(ctx)", stopped(sdk.CauseCancelled)),
		row("end/output", "a command that is stopped because it printed too much has cause output",
			"report CauseOf(ctx)", stopped(sdk.CauseOutput)),
		row("end/tree-cancel",
			"when a command is stopped all its descendants die, orphans and those in sessions of their own too",
			"kill the whole tree: by a cgroup, a pid namespace, or a subreaper", used(func(b *box) {
				b.beating().cancel()
				b.still()
			})),
		row("end/tree-timeout", "when the time of a command is up all its descendants die",
			"kill the whole tree: by a cgroup, a pid namespace, or a subreaper", used(func(b *box) {
				b.beating(timeout(2 * time.Second)).end(3 * soon)
				b.still()
			})),
		row("end/tree-deaf", "descendants that ignore SIGTERM die too",
			"kill the whole tree: by a cgroup, a pid namespace, or a subreaper", used(func(b *box) {
				b.beating(shell(heart, "deaf")).cancel()
				b.still()
			})),
		row("end/connection-lost", "when the call breaks off, the command and all its descendants die",
			"the end of the stream is the end of the command", used(func(b *box) {
				ctx, cancel := context.WithCancel(b.ctx)
				stream, err := b.on.rpc.Exec(ctx)
				b.ok("exec", err)
				b.ok("exec", stream.Send(rawStart(b.raw(heart))))
				b.eventually(2*soon, "the command runs", func() (bool, string) {
					return b.sh("test -s beat").Code == 0, "no beat"
				})
				cancel()
				b.eventually(2*soon, "the descendants are gone", func() (bool, string) {
					n := b.beats()
					time.Sleep(300 * time.Millisecond)
					m := b.beats()
					return n == m, fmt.Sprintf("beats went from %d to %d", n, m)
				})
			})),
		row("end/others-live", "stopping one command leaves the others of the sandbox alone",
			"kill one tree, not the sandbox", used(func(b *box) {
				r, w := io.Pipe()
				other := b.begin("echo ready; cat; exit 8", from(r))
				b.sleeping().cancel()
				w.Close()
				b.wantExit(other.end(soon), 8)
			})),
		row("end/usable-after", "a sandbox in which a command was stopped runs further commands",
			"kill one tree, not the sandbox", used(func(b *box) {
				b.sleeping().cancel()
				b.prints("still here\n", "echo still here")
			})),
		row("end/at-any-moment",
			"a command that is stopped at any early moment ends, with cause cancelled unless it was quicker",
			"look at the context before and after starting", used(func(b *box) {
				for i := range 15 {
					after := time.Duration(i*i) * 100 * time.Microsecond
					ctx, cancel := context.WithTimeout(b.ctx, after)
					began := time.Now()
					exit, err := b.Exec(ctx, &b.command("exec sleep 300").Command)
					cancel()
					if took := time.Since(began); took > soon {
						b.Fatalf("stopped after %s it took %s", after, took)
					}
					if err == nil && exit.Cause != sdk.CauseCancelled {
						b.Fatalf("%+v", exit)
					}
				}
				b.must("true")
			})),
	}
}

func ttyChecks() []Check {
	need := needCap(sdk.CapTTY)
	small := tty(24, 80)
	return []Check{
		row("tty/terminal", "with a TTY all three streams are a terminal",
			"make a pseudo-terminal and let it control the command", must("test -t 0 && test -t 1 && test -t 2", small), need),
		row("tty/none", "without a TTY no stream is a terminal",
			"give the command the streams as they are", must("test ! -t 0 && test ! -t 1 && test ! -t 2")),
		row("tty/size", "the terminal has the size that was asked for",
			"set the size before the command starts", must("stty size", tty(33, 111), printed("33 111\r\n")), need),
		row("tty/resize", "a new size reaches the terminal, and the command by SIGWINCH",
			"read Command.Resizes", used(func(b *box) {
				r := b.begin(`trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done`, small)
				b.ok("resize", r.Resize(sdk.WindowSize{Rows: 50, Cols: 132}))
				r.await("50 132")
				r.cancel()
			}), need),
		row("tty/stderr", "with a TTY stderr goes to the terminal too",
			"one terminal for all three streams", must("echo err >&2", small, printed("err\r\n")), need),
		row("tty/code", "a command on a terminal has its exit code",
			"wait for the command, not for the terminal", runs("exit 7", small, exits(7)), need),
		row("tty/last-bytes", "what a command prints on a terminal just before it ends is not lost",
			"drain the terminal after the end", used(func(b *box) {
				for range 5 {
					b.wantEnd(b.must("head -c 20000 /dev/zero | tr '\\0' x; printf END", small), 20_000)
				}
			}), need),
		row("tty/input", "what is typed reaches the command",
			"copy stdin to the terminal", runs(`read x; echo "got $x"`, small, stdin("typed\n"), want(func(b *box, o *out) {
				if !strings.Contains(o.stdout, "got typed") {
					b.Fatalf("%s, stdout %s", o.how(), quote(o.stdout))
				}
			})), need),
		row("tty/ctrl-c", "Ctrl-C typed on the terminal interrupts the command",
			"make the terminal the controlling one", used(func(b *box) {
				r, w := io.Pipe()
				b.later(func() { w.Close() })
				run := b.begin(`trap 'echo interrupted; exit 5' INT; echo ready; while :; do sleep 0.05; done`, small, from(r))
				go w.Write([]byte("\x03"))
				b.wantExit(run.end(2*soon), 5)
				run.await("interrupted")
			}), need),
	}
}
