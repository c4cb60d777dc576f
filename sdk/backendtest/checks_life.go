package backendtest

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hutch-run/hutch/sdk"
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
