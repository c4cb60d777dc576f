package backendtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

// readyText shows all of it, what it points to included.
func readyText(r sdk.Ready) string {
	b, err := json.Marshal(r)
	return fmt.Sprintf("%s %v", b, err)
}

func lifeChecks() []Check {
	attach := []Need{needCap(sdk.CapAttach)}
	list := []Need{needCap(sdk.CapList)}
	inspect := []Need{needCap(sdk.CapInspect)}
	destroy := func(c *C, i *instance, h sdk.Handle) {
		if err := i.Destroy(c.ctx, h); err != nil {
			c.Fatalf("destroy: %v", err)
		}
	}
	return []Check{
		{ID: "destroy/unknown", Proves: "destroying a sandbox that never was succeeds", Fix: "what is not there is destroyed",
			run: func(c *C) {
				destroy(c, c.shared(), sdk.Handle{ID: c.short + "-never-was"})
				destroy(c, c.fresh(StartOptions{}), sdk.Handle{ID: c.short + "-never-was"})
			}},
		{ID: "destroy/ten-times", Proves: "destroying a sandbox ten times succeeds ten times", Fix: "what is not there is destroyed",
			run: func(c *C) {
				b := c.box()
				for range 10 {
					c.destroy(b)
				}
				c.nothingLeft(b.ID())
			}},
		{ID: "destroy/at-once", Proves: "destroying a sandbox four times at the same time succeeds", Fix: "lock by id",
			run: func(c *C) {
				b := c.box()
				errs := make([]error, 4)
				var wg sync.WaitGroup
				for i := range errs {
					wg.Go(func() { errs[i] = b.Destroy(c.ctx) })
				}
				wg.Wait()
				for _, err := range errs {
					if err != nil {
						c.Fatalf("%v", err)
					}
				}
			}},
		{ID: "destroy/running", Proves: "destroying a sandbox ends the commands that run in it", Fix: "kill them all, and wait",
			run: func(c *C) {
				b := c.box()
				r := b.beating()
				c.destroy(b)
				select {
				case <-r.Done():
				case <-time.After(2 * soon):
					c.Fatalf("the command had not ended after %s", 2*soon)
				}
				if exit, err := r.Wait(); err == nil && exit.Cause == sdk.CauseExited && exit.Code == 0 {
					c.Fatalf("the command is said to have ended well: %+v", exit)
				}
				c.noProcesses()
				c.nothingLeft(b.ID())
			}},
		{ID: "destroy/files", Proves: "destroying a sandbox removes what it wrote to a workspace of its own", Fix: "remove what Create made, and no more",
			run: func(c *C) {
				b := c.box()
				b.must("echo x > file && mkdir closed && echo y > closed/f && chmod 000 closed")
				c.destroy(b)
				c.stateEmpty(b)
			}},
		{ID: "destroy/fresh-instance", Proves: "another process destroys a sandbox with nothing but its handle", Fix: "put all that is needed into the handle or below the state directory, and nothing into memory",
			run: func(c *C) {
				b := c.box()
				b.must("echo x > file")
				other := c.fresh(StartOptions{})
				destroy(c, other, b.Handle())
				c.stateEmpty(b)
				if c.facts.Has(sdk.CapAttach) {
					_, err := other.Attach(c.ctx, b.Handle())
					c.wantReason(err, "attaching to it afterwards", sdk.ReasonNotFound)
				}
			}},
		// L12
		{ID: "destroy/running-elsewhere", Needs: append([]Need{needLocal}, attach...), Proves: "a command whose sandbox another process destroys ends by a signal: code 137, cause signaled or cancelled", Fix: "report an end, and no error, when the sandbox ends under a command",
			run: func(c *C) {
				b := c.box(func(r *sdk.CreateRequest) { r.Keep = true })
				r := b.beating()
				destroy(c, c.fresh(StartOptions{}), b.Handle())
				select {
				case <-r.Done():
				case <-time.After(2 * soon):
					c.Fatalf("the command had not ended after %s", 2*soon)
				}
				exit, err := r.Wait()
				if err != nil {
					c.Fatalf("the command ended with an error: %v", err)
				}
				if exit.Code != 137 || exit.Cause != sdk.CauseSignaled && exit.Cause != sdk.CauseCancelled {
					c.Fatalf("the command ended with %+v", exit)
				}
			}},
		{ID: "destroy/by-end", Proves: "a sandbox that is not to be kept is gone when its process has ended in the ordinary way", Fix: "the SDK destroys it; Destroy must not need more time than the host gives",
			run: func(c *C) {
				i := c.fresh(StartOptions{})
				b := c.boxOn(i, c.request())
				b.must("true")
				if err := c.stop(i); err != nil {
					c.Fatalf("%v", err)
				}
				c.stateEmpty(b)
				c.nothingLeft(b.ID())
			}},
		{ID: "destroy/half-made", Proves: "a handle whose state directory is gone can be destroyed", Fix: "what is not there is destroyed",
			run: func(c *C) {
				b := c.box()
				h := b.Handle()
				c.destroy(b)
				c.removeState(b)
				destroy(c, c.fresh(StartOptions{}), h)
			}},
		{ID: "attach/fresh-instance", Needs: attach, Proves: "another process finds a sandbox by its handle, with what it wrote, and runs commands in it", Fix: "put all that is needed into the handle or below the state directory",
			run: func(c *C) {
				b := c.box(func(r *sdk.CreateRequest) { r.Keep = true })
				b.must("echo kept > kept")
				other := c.fresh(StartOptions{})
				sb, err := other.Attach(c.ctx, b.Handle())
				if err != nil {
					c.Fatalf("attach: %v", err)
				}
				again := &box{Sandbox: sb, c: c, on: other, req: b.req}
				c.eq("Ready", readyText(sb.Ready()), readyText(b.Ready()))
				c.eq("the file", again.must("cat kept"), "kept\n")
			}},
		{ID: "attach/outlives", Needs: attach, Proves: "a sandbox that is to be kept outlives the process that made it", Fix: "respect Keep; put its processes into sessions of their own",
			run: func(c *C) {
				i := c.fresh(StartOptions{})
				b := c.boxOn(i, c.request(func(r *sdk.CreateRequest) { r.Keep = true }))
				b.must("echo kept > kept")
				if err := c.stop(i); err != nil {
					c.Fatalf("%v", err)
				}
				sb, err := c.shared().Attach(c.ctx, b.Handle())
				if err != nil {
					c.Fatalf("attach: %v", err)
				}
				c.eq("the file", (&box{Sandbox: sb, c: c, on: c.shared(), req: b.req}).must("cat kept"), "kept\n")
				destroy(c, c.shared(), b.Handle())
			}},
		{ID: "attach/ends-commands", Needs: append([]Need{needProcess}, attach...), Alone: true,
			Proves: "after SIGKILL of the plugin no command of its sandboxes runs once a fresh one has attached",
			Fix:    "let commands die with the plugin, or write down on the host which ones run, and end them in Attach",
			run: func(c *C) {
				i := c.fresh(StartOptions{})
				b := c.boxOn(i, c.request(func(r *sdk.CreateRequest) { r.Keep = true }))
				b.beating()
				c.kill(i)
				other := c.fresh(StartOptions{})
				sb, err := other.Attach(c.ctx, b.Handle())
				if err != nil {
					c.Fatalf("attach: %v", err)
				}
				c.still(&box{Sandbox: sb, c: c, on: other, req: b.req})
				destroy(c, other, b.Handle())
			}},
		{ID: "attach/moved", Needs: attach, Proves: "a sandbox whose state directory was moved is found and removed where it is now", Fix: "use Handle.StateDir, and no path that was noted at Create",
			run: func(c *C) {
				i := c.fresh(StartOptions{})
				b := c.boxOn(i, c.request(func(r *sdk.CreateRequest) { r.Keep = true }))
				b.must("echo kept > kept")
				if err := c.stop(i); err != nil {
					c.Fatalf("%v", err)
				}
				h := b.Handle()
				h.StateDir = b.req.StateDir + "-moved"
				if err := os.Rename(b.req.StateDir, h.StateDir); err != nil {
					c.Fatalf("%v", err)
				}
				b.req.StateDir = h.StateDir
				sb, err := c.shared().Attach(c.ctx, h)
				if err != nil {
					c.Fatalf("attach: %v", err)
				}
				c.eq("the file", (&box{Sandbox: sb, c: c, on: c.shared(), req: b.req}).must("cat kept"), "kept\n")
				destroy(c, c.shared(), h)
				c.stateEmpty(b)
			}},
		{ID: "attach/gone", Needs: attach, Proves: "attaching to a sandbox that was destroyed, or never was, gives not found", Fix: "reason not_found",
			run: func(c *C) {
				b := c.destroyed()
				_, err := c.fresh(StartOptions{}).Attach(c.ctx, b.Handle())
				c.wantReason(err, "attaching to a destroyed sandbox", sdk.ReasonNotFound)
				_, err = c.shared().Attach(c.ctx, sdk.Handle{ID: c.short + "-never-was"})
				c.wantReason(err, "attaching to a sandbox that never was", sdk.ReasonNotFound)
			}},
		{ID: "inspect/ready", Needs: inspect, Proves: "a sandbox that works is said to be ready", Fix: "state ready",
			run: func(c *C) {
				st, err := c.used().Inspect(c.ctx)
				if err != nil || st.State != sdk.StateReady {
					c.Fatalf("%+v %v", st, err)
				}
			}},
		{ID: "inspect/gone", Needs: inspect, Proves: "a sandbox that was destroyed is gone or not found", Fix: "state gone, or reason not_found",
			run: func(c *C) {
				b := c.destroyed()
				if st, err := b.Inspect(c.ctx); err != nil {
					c.wantReason(err, "inspecting it", sdk.ReasonNotFound)
				} else if st.State != sdk.StateGone {
					c.Fatalf("%+v", st)
				}
			}},
		{ID: "inspect/running", Needs: inspect, Proves: "a sandbox can be inspected while a command runs", Fix: "do not hold a lock while a command runs",
			run: func(c *C) {
				b := c.used()
				r := b.begin("echo ready; exec sleep 300")
				if _, err := b.Inspect(c.ctx); err != nil {
					c.Fatalf("%v", err)
				}
				r.Stop(sdk.CauseCancelled)
				r.end(soon)
			}},
		{ID: "list/owner", Needs: list, Proves: "a list has the sandboxes of the owner, and no others", Fix: "mark what you make with the owner",
			run: func(c *C) {
				mine := c.box(func(r *sdk.CreateRequest) { r.Owner = c.owner + "-mine" })
				other := c.box(func(r *sdk.CreateRequest) { r.Owner = c.owner + "-other" })
				c.wantListed(c.shared(), c.owner+"-mine", mine.ID(), true)
				c.wantListed(c.shared(), c.owner+"-mine", other.ID(), false)
				c.wantListed(c.shared(), c.owner+"-other", other.ID(), true)
				c.wantListed(c.shared(), c.owner+"-nobody", mine.ID(), false)
			}},
		{ID: "list/all", Needs: list, Proves: "a list for the empty owner has all sandboxes", Fix: "an empty owner means all",
			run: func(c *C) { c.wantListed(c.shared(), "", c.used().ID(), true) }},
		{ID: "list/fresh-instance", Needs: list, Proves: "another process lists what this one made", Fix: "ask the machine and not the memory",
			run: func(c *C) { c.wantListed(c.fresh(StartOptions{}), c.owner, c.used().ID(), true) }},
		{ID: "list/handles", Needs: list, Proves: "a handle from a list is enough to destroy its sandbox", Fix: "return whole handles",
			run: func(c *C) {
				b := c.box()
				other := c.fresh(StartOptions{})
				all, err := other.List(c.ctx, c.owner)
				if err != nil {
					c.Fatalf("%v", err)
				}
				for _, h := range all {
					if h.ID == b.ID() {
						destroy(c, other, h)
					}
				}
				c.stateEmpty(b)
			}},
		{ID: "list/destroyed", Needs: list, Proves: "a destroyed sandbox is not listed", Fix: "remove the mark with the sandbox",
			run: func(c *C) {
				b := c.destroyed()
				c.wantListed(c.shared(), c.owner, b.ID(), false)
				c.wantListed(c.fresh(StartOptions{}), "", b.ID(), false)
			}},
		{ID: "drain/ends-commands", Proves: "Drain ends the commands that run, and nothing is accepted afterwards", Fix: "the SDK does it; let Exec end with its context",
			run: func(c *C) {
				i := c.fresh(StartOptions{})
				b := c.boxOn(i, c.request())
				r := b.beating()
				if err := i.Drain(c.ctx); err != nil {
					c.Fatalf("drain: %v", err)
				}
				select {
				case <-r.Done():
				case <-time.After(2 * soon):
					c.Fatalf("the command had not ended after %s", 2*soon)
				}
				if _, err := i.Create(c.ctx, c.request()); err == nil {
					c.Fatalf("a sandbox was made after Drain")
				}
				c.noProcesses()
				c.stateEmpty(b)
			}},
		{ID: "drain/twice", Proves: "a second Drain does no harm", Fix: "succeed, or say that there is nobody any more",
			run: func(c *C) {
				i := c.fresh(StartOptions{})
				c.boxOn(i, c.request())
				if err := i.Drain(c.ctx); err != nil {
					c.Fatalf("%v", err)
				}
				_ = i.Drain(c.ctx) // either answer is fine, as long as there is one
			}},
	}
}

// wantListed ends the check unless the id is, or is not, listed for the owner.
func (c *C) wantListed(i *instance, owner, id string, want bool) {
	all, err := i.List(c.ctx, owner)
	if err != nil {
		c.Fatalf("list: %v", err)
	}
	got := false
	for _, h := range all {
		got = got || h.ID == id
	}
	if got != want {
		c.Fatalf("listed for the owner %q: %v, want %v", owner, got, want)
	}
}

func stopChecks() []Check {
	needs := []Need{needCap(sdk.CapStop)}
	again := append([]Need{needCap(sdk.CapAttach)}, needs...)
	kept := func(c *C) *box { return c.box(func(r *sdk.CreateRequest) { r.Keep = true }) }
	return []Check{
		{ID: "stop/keeps", Needs: needs, Proves: "what was written to workspace and output is there after a stop and a start, three times over", Fix: "stop what runs, and leave the files",
			run: func(c *C) {
				b := kept(c)
				names := env(map[string]string{"W": b.Ready().Workspace, "O": orElse(b.Ready().Output, b.Ready().Workspace)})
				b.must(`echo one > "$W/kept" && mkdir "$W/dir" && echo two > "$O/result"`, names)
				for range 3 {
					b.halt()
					b.wakeUp()
					c.eq("the files", b.must(`cat "$W/kept" "$O/result" && test -d "$W/dir"`, names), "one\ntwo\n")
				}
			}},
		{ID: "stop/state", Needs: append([]Need{needCap(sdk.CapInspect)}, needs...), Proves: "a sandbox is stopped or asleep after a stop, and ready after a start", Fix: "states stopped, asleep and ready",
			run: func(c *C) {
				b := kept(c)
				b.halt()
				b.resting()
				b.wakeUp()
				if st, err := b.Inspect(c.ctx); err != nil || st.State != sdk.StateReady {
					c.Fatalf("after the start: %+v %v", st, err)
				}
			}},
		{ID: "stop/ends-processes", Needs: needs, Proves: "a stop ends every process of the sandbox", Fix: "kill them all, and wait",
			run: func(c *C) {
				b := kept(c)
				r := b.beating()
				b.halt()
				if o := r.end(2 * soon); o.Cause == sdk.CauseExited {
					c.Fatalf("the command that ran is said to have ended by itself: %s", o.how())
				}
				c.noProcesses()
				b.wakeUp()
				c.still(b)
			}},
		{ID: "stop/twice", Needs: needs, Proves: "stopping what is stopped and starting what is ready succeed, and a start leaves alone what runs", Fix: "do nothing where nothing is to be done",
			run: func(c *C) {
				b := kept(c)
				b.halt()
				b.halt()
				b.wakeUp()
				r := b.begin("echo ready; exec sleep 300")
				b.wakeUp()
				select {
				case <-r.Done():
					c.Fatalf("the start of a sandbox that is ready ended its command: %s", r.end(soon).how())
				default:
				}
				r.Stop(sdk.CauseCancelled)
				r.end(soon)
			}},
		{ID: "stop/asleep", Needs: append([]Need{needCap(sdk.CapInspect)}, needs...), Proves: "a sandbox that is asleep takes a command, and one that is stopped refuses it", Fix: "say stopped where Exec does not start the sandbox by itself",
			run: func(c *C) {
				b := kept(c)
				b.halt()
				st := b.resting()
				exit, err := b.Exec(c.ctx, &client.Command{Argv: []string{"/bin/sh", "-c", "exit 7"}, Dir: b.Ready().Workspace})
				switch {
				case st == sdk.StateAsleep && (err != nil || exit.Cause != sdk.CauseExited || exit.Code != 7):
					c.Fatalf("asleep, it answered a command with %+v %v", exit, err)
				case st == sdk.StateStopped && err == nil && !exit.NotStarted:
					c.Fatalf("stopped, it ran a command: %+v", exit)
				}
			}},
		{ID: "stop/fresh-instance", Needs: again, Proves: "another process finds a stopped sandbox, starts it, and has its files", Fix: "nothing of a stop may be in memory alone",
			run: func(c *C) {
				b := kept(c)
				b.must("echo kept > kept")
				b.halt()
				other := c.fresh(StartOptions{})
				sb, err := other.Attach(c.ctx, b.Handle())
				if err != nil {
					c.Fatalf("attach: %v", err)
				}
				o := &box{Sandbox: sb, c: c, on: other, req: b.req}
				if c.facts.Has(sdk.CapInspect) {
					o.resting()
				}
				o.wakeUp()
				c.eq("the file", o.must("cat kept"), "kept\n")
			}},
		{ID: "stop/destroy", Needs: needs, Proves: "a stopped sandbox can be destroyed, and leaves nothing", Fix: "Destroy asks nothing of a sandbox but its handle",
			run: func(c *C) {
				b := kept(c)
				b.must("echo x > file")
				b.halt()
				c.destroy(b)
				c.stateEmpty(b)
				c.nothingLeft(b.ID())
			}},
	}
}

func orElse(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// halt stops the sandbox.
func (b *box) halt() {
	if err := b.Stop(b.c.ctx); err != nil {
		b.c.Fatalf("stop: %v", err)
	}
}

// wakeUp starts the sandbox.
func (b *box) wakeUp() {
	if err := b.Wake(b.c.ctx, nil); err != nil {
		b.c.Fatalf("start: %v", err)
	}
}

// resting looks whether the sandbox is stopped or asleep, and says which.
func (b *box) resting() sdk.State {
	st, err := b.Inspect(b.c.ctx)
	if err != nil || st.State != sdk.StateStopped && st.State != sdk.StateAsleep {
		b.c.Fatalf("a stopped sandbox is said to be %+v %v", st, err)
	}
	return st.State
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
