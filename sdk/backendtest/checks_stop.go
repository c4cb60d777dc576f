package backendtest

import (
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

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
