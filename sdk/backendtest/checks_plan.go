package backendtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/hutch-run/hutch/sdk"
)

// someLimits asks for everything that is claimed, generously.
func (c *C) someLimits() sdk.Limits {
	l := c.claimed(sdk.Limits{Timeout: time.Minute, Memory: 256 << 20, CPUs: 1, PIDs: 100, Disk: 64 << 20, Files: 256})
	for _, h := range c.unheld(l) {
		switch h.Limit {
		case sdk.LimitMemory:
			l.Memory = 0
		case sdk.LimitCPUs:
			l.CPUs = 0
		case sdk.LimitPIDs:
			l.PIDs = 0
		case sdk.LimitDisk:
			l.Disk = 0
		case sdk.LimitFiles:
			l.Files = 0
		}
	}
	return l
}

// asked names the limits that l asks for.
func asked(l sdk.Limits) (names []sdk.Limit) {
	for name, on := range map[sdk.Limit]bool{
		sdk.LimitTimeout: l.Timeout > 0, sdk.LimitMemory: l.Memory > 0, sdk.LimitCPUs: l.CPUs > 0,
		sdk.LimitPIDs: l.PIDs > 0, sdk.LimitDisk: l.Disk > 0, sdk.LimitFiles: l.Files > 0,
	} {
		if on {
			names = append(names, name)
		}
	}
	return names
}

// unheld are those of the limits that this machine lacks something for, as the backend's plan says with reason and fix.
// A backend claims what it holds on a machine that has all it needs.
func (c *C) unheld(l sdk.Limits) []sdk.Hold {
	if !c.facts.Has(sdk.CapPlan) {
		return nil
	}
	p, err := c.shared().Plan(c.ctx, &c.request(withLimits(l)).Spec)
	if err != nil {
		c.Fatalf("plan: %v", err)
	}
	return slices.DeleteFunc(p.Holds, func(h sdk.Hold) bool { return h.HeldBy != "" || h.Default || h.Reason == "" || h.Fix == "" })
}

// needHeld skips the check where this machine cannot hold the limits. plan/refusals sees to it that they are refused.
func (c *C) needHeld(l sdk.Limits) {
	for _, h := range c.unheld(l) {
		c.skipf("this machine cannot hold %s = %s: %s (%s)", h.Limit, h.Value, h.Reason, h.Fix)
	}
}

// needNetwork skips the check where this machine lacks what a network mode needs. plan/refusals sees to it that it is
// refused.
func (c *C) needNetwork(m sdk.NetworkMode) {
	if d := c.lacking(m); d != nil {
		c.skipf("this machine cannot give the network mode %s: %s (%s)", m, d.Summary, d.Fix)
	}
}

// lacking is what the backend's plan says stands against a network mode on this machine, with what to do; nil
// when nothing does. As with limits, a backend claims what it gives on a machine that has all it needs.
func (c *C) lacking(m sdk.NetworkMode) *sdk.Diagnostic {
	if !c.facts.Has(sdk.CapPlan) {
		return nil
	}
	p, err := c.shared().Plan(c.ctx, &c.request(func(r *sdk.CreateRequest) { r.Network = m }).Spec)
	if err != nil {
		c.Fatalf("plan: %v", err)
	}
	i := slices.IndexFunc(p.Diagnostics, func(d sdk.Diagnostic) bool {
		return d.Severity == sdk.SeverityError && d.Summary != "" && d.Fix != ""
	})
	if i < 0 {
		return nil
	}
	return &p.Diagnostics[i]
}

// claimed leaves of the limits those that are claimed.
func (c *C) claimed(l sdk.Limits) sdk.Limits {
	if !c.facts.Holds(sdk.LimitTimeout) {
		l.Timeout = 0
	}
	if !c.facts.Holds(sdk.LimitMemory) {
		l.Memory = 0
	}
	if !c.facts.Holds(sdk.LimitCPUs) {
		l.CPUs = 0
	}
	if !c.facts.Holds(sdk.LimitPIDs) {
		l.PIDs = 0
	}
	if !c.facts.Holds(sdk.LimitDisk) {
		l.Disk = 0
	}
	if !c.facts.Holds(sdk.LimitFiles) {
		l.Files = 0
	}
	return l
}

func planChecks() []Check {
	plan := func(c *C, l sdk.Limits) *sdk.Plan {
		p, err := c.shared().Plan(c.ctx, &c.request(withLimits(l)).Spec)
		if err != nil {
			c.Fatalf("plan: %v", err)
		}
		return p
	}
	needs := []Need{needCap(sdk.CapPlan)}
	return []Check{
		{ID: "plan/quick", Needs: needs, Proves: "Plan takes no time", Fix: "look at the machine once and remember it",
			run: func(c *C) {
				best := time.Hour
				for range 20 {
					began := time.Now()
					plan(c, c.someLimits())
					best = min(best, time.Since(began))
				}
				if best > 50*time.Millisecond {
					c.Fatalf("the quickest of 20 calls took %s; 5ms are the goal", best)
				}
			}},
		{ID: "plan/every-limit", Needs: needs, Proves: "each limit that is asked for is answered by exactly one hold, with its value, and either a mechanism or a reason and a fix", Fix: "return one Hold for each limit of the spec",
			run: func(c *C) {
				for _, name := range limitNames {
					l := limitOf(name, c.someValue(name))
					n := 0
					for _, h := range plan(c, l).Holds {
						if h.Limit != name || h.Default {
							continue
						}
						n++
						if h.Value == "" || h.HeldBy == "" && (h.Reason == "" || h.Fix == "") {
							c.Fatalf("%+v", h)
						}
						if !c.facts.Holds(name) && h.HeldBy != "" {
							c.Fatalf("the limit %s is not claimed, and the plan says it is held by %q", name, h.HeldBy)
						}
					}
					if n != 1 && (c.facts.Holds(name) || n > 1) {
						c.Fatalf("the limit %s has %d holds", name, n)
					}
				}
			}},
		{ID: "plan/agrees-with-create", Needs: needs, Proves: "what Plan says holds a limit is what holds it in the sandbox", Fix: "let Plan and Create ask the same function",
			run: func(c *C) {
				l := c.someLimits()
				held := map[sdk.Limit]string{}
				for _, h := range plan(c, l).Holds {
					if h.HeldBy == "" && !h.Default {
						c.Fatalf("the limit %s is claimed and cannot be held on this machine: %s (%s)", h.Limit, h.Reason, h.Fix)
					}
					held[h.Limit] = h.HeldBy
				}
				for _, h := range c.usedFor("limits", withLimits(l)).Ready().Holds {
					if want, ok := held[h.Limit]; ok && h.HeldBy != want {
						c.Fatalf("the plan says %s is held by %q, the sandbox says by %q", h.Limit, want, h.HeldBy)
					}
				}
			}},
		{ID: "plan/defaults", Needs: needs, Proves: "Plan shows every default that a sandbox has for which nobody asked, as a default with its value", Fix: "let Plan and Create ask the same function, and set Hold.Default",
			run: func(c *C) {
				holds := c.used().Ready().Holds // first: a machine may be known once it has run
				planned := map[sdk.Limit]sdk.Hold{}
				for _, h := range plan(c, sdk.Limits{}).Holds {
					planned[h.Limit] = h
				}
				if len(holds) != len(planned) {
					c.Fatalf("without limits the plan has %+v, the sandbox %+v", planned, holds)
				}
				for _, h := range holds {
					p, ok := planned[h.Limit]
					if !ok || !p.Default || !h.Default || p.HeldBy != h.HeldBy || h.HeldBy != "" && (h.Value == "" || p.Value == "") {
						c.Fatalf("the plan has %+v, the sandbox %+v", p, h)
					}
				}
			}},
		{ID: "plan/refusals", Needs: needs, Proves: "what Plan says this machine cannot hold or give, Create refuses with a reason and a fix, and leaves nothing", Fix: "let Plan and Create ask the same function, before anything is made",
			run: func(c *C) {
				n := 0
				refused := func(what string, change func(*sdk.CreateRequest), reasons ...sdk.Reason) *sdk.Error {
					n++
					req := c.request(change)
					_, err := c.create(c.shared(), req)
					e := c.wantReason(err, what, reasons...)
					if e.Fix == "" {
						c.Fatalf("%s is refused without a fix: %v", what, err)
					}
					c.nothingLeft(req.ID)
					return e
				}
				asks := []sdk.Limits{{CPUs: fewCPUs}}
				for _, name := range limitNames {
					asks = append(asks, limitOf(name, c.someValue(name)))
				}
				for _, l := range asks {
					l = c.claimed(l)
					for _, h := range c.unheld(l) {
						if e := refused("the limit "+string(h.Limit), withLimits(l), sdk.ReasonLimit); e.Limit != h.Limit {
							c.Fatalf("the failure names the limit %q and not %q", e.Limit, h.Limit)
						}
					}
				}
				for _, m := range c.facts.Networks {
					if c.lacking(m) != nil {
						refused("the network mode "+string(m), func(r *sdk.CreateRequest) { r.Network = m }, sdk.ReasonMissing, sdk.ReasonUnsupported)
					}
				}
				if n == 0 {
					c.skipf("this machine can hold and give all that is claimed")
				}
			}},
		{ID: "plan/pure", Needs: needs, Proves: "Plan makes nothing", Fix: "decide in Plan, make in Create",
			run: func(c *C) {
				req := c.request(withLimits(c.someLimits()))
				if _, err := c.shared().Plan(c.ctx, &req.Spec); err != nil {
					c.Fatalf("%v", err)
				}
				if left := c.traces(req.ID); left != "" {
					c.Fatalf("there is %s", left)
				}
			}},
		{ID: "plan/repeatable", Needs: needs, Proves: "Plan says the same again", Fix: "do not let the order of a map decide the order of holds",
			run: func(c *C) {
				first := fmt.Sprintf("%+v", plan(c, c.someLimits()))
				for range 5 {
					if again := fmt.Sprintf("%+v", plan(c, c.someLimits())); again != first {
						c.Fatalf("first %s, then %s", first, again)
					}
				}
			}},
	}
}
