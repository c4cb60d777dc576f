package backendtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hutch-run/hutch/sdk"
)

// plan asks how a sandbox would be made.
func (c *C) plan(change ...ask) *sdk.Plan {
	p, err := c.shared().Plan(c.ctx, &c.request(change...).Spec)
	c.ok("plan", err)
	return p
}

// unheld are those of the limits that this machine lacks something for, as the backend's plan says with reason and fix.
// A backend claims what it holds on a machine that has all it needs.
func (c *C) unheld(l sdk.Limits) []sdk.Hold {
	if !c.facts.Has(sdk.CapPlan) {
		return nil
	}
	return slices.DeleteFunc(c.plan(withLimits(l)).Holds, func(h sdk.Hold) bool {
		return h.HeldBy != "" || h.Default || h.Reason == "" || h.Fix == ""
	})
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
	for _, d := range c.plan(withNetwork(m)).Diagnostics {
		if d.Severity == sdk.SeverityError && d.Summary != "" && d.Fix != "" {
			return &d
		}
	}
	return nil
}

func planChecks() []Check {
	return needing([]Need{needCap(sdk.CapPlan)},
		row("plan/quick", "Plan takes no time", "look at the machine once and remember it", func(c *C) {
			c.quickest(50*time.Millisecond, func() { c.plan(c.generous) }) // 5 ms are the goal
		}),
		row("plan/every-limit",
			"each limit that is asked for is answered by exactly one hold, with its value, and either a mechanism or a "+
				"reason and a fix",
			"return one Hold for each limit of the spec", func(c *C) {
				for _, l := range limitNames {
					n := 0
					for _, h := range c.plan(withLimits(limitOf(l, someValue[l]))).Holds {
						if h.Limit != l || h.Default {
							continue
						}
						n++
						if h.Value == "" || h.HeldBy == "" && (h.Reason == "" || h.Fix == "") {
							c.Fatalf("%+v", h)
						}
						if !c.facts.Holds(l) && h.HeldBy != "" {
							c.Fatalf("the limit %s is not claimed, and the plan says it is held by %q", l, h.HeldBy)
						}
					}
					if n != 1 && (c.facts.Holds(l) || n > 1) {
						c.Fatalf("the limit %s has %d holds", l, n)
					}
				}
			}),
		row("plan/agrees-with-create", "what Plan says holds a limit is what holds it in the sandbox",
			"let Plan and Create ask the same function", func(c *C) {
				held := map[sdk.Limit]string{}
				for _, h := range c.plan(c.generous).Holds {
					if h.HeldBy == "" && !h.Default {
						c.Fatalf("the limit %s is claimed and cannot be held on this machine: %s (%s)",
							h.Limit, h.Reason, h.Fix)
					}
					held[h.Limit] = h.HeldBy
				}
				for _, h := range c.usedFor("limits", c.generous).Ready().Holds {
					if want, ok := held[h.Limit]; ok && h.HeldBy != want {
						c.Fatalf("the plan says %s is held by %q, the sandbox says by %q", h.Limit, want, h.HeldBy)
					}
				}
			}),
		row("plan/defaults",
			"Plan shows every default that a sandbox has for which nobody asked, as a default with its value",
			"let Plan and Create ask the same function, and set Hold.Default", func(c *C) {
				holds := c.used().Ready().Holds // first: a machine may be known once it has run
				planned := map[sdk.Limit]sdk.Hold{}
				for _, h := range c.plan().Holds {
					planned[h.Limit] = h
				}
				if len(holds) != len(planned) {
					c.Fatalf("without limits the plan has %+v, the sandbox %+v", planned, holds)
				}
				for _, h := range holds {
					p, ok := planned[h.Limit]
					if !ok || !p.Default || !h.Default || p.HeldBy != h.HeldBy ||
						h.HeldBy != "" && (h.Value == "" || p.Value == "") {
						c.Fatalf("the plan has %+v, the sandbox %+v", p, h)
					}
				}
			}),
		row("plan/refusals",
			"what Plan says this machine cannot hold or give, Create refuses with a reason and a fix, and leaves nothing",
			"let Plan and Create ask the same function, before anything is made", func(c *C) {
				n := 0
				refused := func(what string, change ask, reasons ...sdk.Reason) *sdk.Error {
					n++
					req := c.request(change)
					e := c.refused(what, req, reasons...)
					if e.Fix == "" {
						c.Fatalf("%s is refused without a fix: %v", what, e)
					}
					c.nothingLeft(req.ID)
					return e
				}
				asks := []sdk.Limits{}
				for _, l := range c.facts.Limits {
					asks = append(asks, limitOf(l, someValue[l]))
					if l == sdk.LimitCPUs {
						asks = append(asks, limitOf(l, fewCPUs))
					}
				}
				for _, l := range asks {
					for _, h := range c.unheld(l) {
						e := refused("the limit "+string(h.Limit), withLimits(l), sdk.ReasonLimit)
						c.eq("the limit that the failure names", string(e.Limit), string(h.Limit))
					}
				}
				for _, m := range c.facts.Networks {
					if c.lacking(m) != nil {
						refused("the network mode "+string(m), withNetwork(m), sdk.ReasonMissing, sdk.ReasonUnsupported)
					}
				}
				if n == 0 {
					c.skipf("this machine can hold and give all that is claimed")
				}
			}),
		row("plan/pure", "Plan makes nothing", "decide in Plan, make in Create", func(c *C) {
			req := c.request(c.generous)
			_, err := c.shared().Plan(c.ctx, &req.Spec)
			c.ok("plan", err)
			if left := c.traces(req.ID); left != "" {
				c.Fatalf("there is %s", left)
			}
		}),
		row("plan/repeatable", "Plan says the same again",
			"do not let the order of a map decide the order of holds", func(c *C) {
				c.repeats(func() string { return fmt.Sprintf("%+v", c.plan(c.generous)) })
			}),
	)
}

func configChecks() []Check {
	list := json.RawMessage(`[1]`)
	return []Check{
		row("config/accepted", "the configuration of this suite is accepted",
			"give the suite a configuration with which sandboxes can be made here", func(c *C) {
				if bad := c.complaintsAbout(c.config); len(bad) > 0 {
					c.Fatalf("it is not: %v", bad)
				}
			}),
		row("config/not-json", "a configuration that is no JSON is refused, and the backend lives",
			"answer with a config failure, or an error diagnostic", func(c *C) {
				for _, raw := range []string{`{`, `]`, `{"a":}`, "\x00", `"text"`, `[1]`} {
					c.wrongConfig(json.RawMessage(raw))
				}
				c.describe()
			}),
		row("config/wrong-type", "a value of the wrong type is refused at the path of its attribute",
			"put the attribute's name into the path of the failure or diagnostic", func(c *C) {
				n := 0
				for _, a := range c.facts.Schema.Attributes {
					if wrong := wrongFor(a.Type); wrong != "" {
						n++
						c.refusedAt(c.configWith(a.Name, wrong), a.Name)
					}
				}
				if n == 0 {
					c.skipf("needs an attribute with a type")
				}
			}),
		row("config/missing-required",
			"a configuration without a required attribute is refused, and the attribute is named",
			"check what is required although the host has done so", func(c *C) {
				n := 0
				for _, a := range c.facts.Schema.Attributes {
					if a.Required {
						n++
						c.refusedAt(c.configWith(a.Name, ""), a.Name)
					}
				}
				if n == 0 {
					c.skipf("needs a required attribute")
				}
			}),
		row("config/wrong-block", "a nested block of the wrong shape is refused at its path",
			"put the block's name into the path", func(c *C) {
				if len(c.facts.Schema.Blocks) == 0 {
					c.skipf("needs a nested block")
				}
				for _, b := range c.facts.Schema.Blocks {
					c.refusedAt(c.configWith(b.Name, `"text"`), b.Name)
				}
			}),
		row("config/author", "each of Suite.BadConfigs is refused at its path",
			"see Validator: a diagnostic carries the path of the value it is about", func(c *C) {
				for _, bad := range c.bad {
					raw, err := json.Marshal(bad.Config)
					c.ok(bad.Name, err)
					found := c.wrongConfig(raw)
					if bad.Path != "" && !slices.ContainsFunc(found, func(p complaint) bool { return p.path == bad.Path }) {
						c.Fatalf("%s: the path must be %q; got %v", bad.Name, bad.Path, found)
					}
				}
			}, needBadConfigs),
		row("config/refused-by-create", "Create itself refuses a wrong configuration before it allocates anything",
			"check the configuration first", func(c *C) {
				req := c.request()
				req.Config = list
				allocated := false
				req.Allocated = func(sdk.Handle) error { allocated = true; return nil }
				c.refused("creating with a configuration that is a list", req, sdk.ReasonConfig)
				if allocated {
					c.Fatalf("a handle was allocated first")
				}
			}),
		row("config/repeatable", "the same wrong configuration gives the same complaint each time",
			"do not let the order of a map decide what is said", func(c *C) {
				c.repeats(func() string { return fmt.Sprint(c.complaintsAbout(list)) })
			}),
	}
}

// complaint is one thing that is wrong with a configuration.
type complaint struct{ path, text string }

// complaintsAbout asks, by Plan where there is one and by Create otherwise, what is
// wrong with a configuration.
func (c *C) complaintsAbout(raw json.RawMessage) (out []complaint) {
	req := c.request()
	req.Config = raw
	var err error
	if c.facts.Has(sdk.CapPlan) {
		var p *sdk.Plan
		if p, err = c.shared().Plan(c.ctx, &req.Spec); err == nil {
			for _, d := range p.Diagnostics {
				if d.Severity == sdk.SeverityError {
					out = append(out, complaint{d.Path, d.Summary})
				}
			}
		}
	} else {
		_, err = c.create(c.ctx, c.shared(), req)
	}
	if err == nil {
		return out
	}
	var e *sdk.Error
	if !errors.As(err, &e) || e.Reason != sdk.ReasonConfig {
		c.Fatalf("a wrong configuration gave %v, and not a failure with reason config", err)
	}
	return []complaint{{e.Path, e.Summary}}
}

// wrongConfig ends the check unless there are complaints about the configuration.
func (c *C) wrongConfig(raw json.RawMessage) []complaint {
	found := c.complaintsAbout(raw)
	if len(found) == 0 {
		c.Fatalf("%s is accepted", raw)
	}
	return found
}

// refusedAt ends the check unless the configuration is refused at the attribute.
func (c *C) refusedAt(raw json.RawMessage, name string) {
	found := c.wrongConfig(raw)
	if !slices.ContainsFunc(found, func(f complaint) bool {
		return f.path == name || strings.HasPrefix(f.path, name+".") || strings.HasPrefix(f.path, name+"[") ||
			f.path == "" && strings.Contains(f.text, name)
	}) {
		c.Fatalf("%s is refused, but not at %s: %v", raw, name, found)
	}
}

// configWith returns the configuration of the suite with one value replaced, or
// taken away when value is empty.
func (c *C) configWith(name, value string) json.RawMessage {
	m := map[string]json.RawMessage{}
	if len(c.config) > 0 {
		c.ok("the configuration of the suite is no object", json.Unmarshal(c.config, &m))
	}
	if delete(m, name); value != "" {
		m[name] = json.RawMessage(value)
	}
	raw, err := json.Marshal(m)
	c.own(err)
	return raw
}

// wrongFor is a value that no attribute of the type can take; "" when all can.
func wrongFor(typ string) string {
	switch typ {
	case "any":
		return ""
	case "string":
		return `["a list"]`
	case "bool":
		return `{"an":"object"}`
	case "number":
		return `"not a number"`
	}
	return `17`
}

func machineChecks() []Check {
	// each proves something of each finding.
	each := func(good func(sdk.Finding) bool) func(*C) {
		return func(c *C) { c.wantFindings(c.findings(), good) }
	}
	fixed := func(f sdk.Finding) bool { return f.Status == sdk.SeverityOK || f.Fix != "" }
	names := func(findings []sdk.Finding) (out []string) {
		for _, f := range findings {
			out = append(out, f.Name)
		}
		return out
	}
	return []Check{
		row("check/answers", "Check looks at the machine and says what it found",
			"return one finding for each thing that the backend needs", func(c *C) {
				if len(c.findings()) == 0 {
					c.Fatalf("there is no finding at all")
				}
			}),
		row("check/findings-complete", "each finding has a name, a status and what was found, and no name is there twice",
			"fill in Name, Status and Detail", func(c *C) {
				seen := map[string]bool{}
				c.wantFindings(c.findings(), func(f sdk.Finding) bool {
					known := slices.Contains([]sdk.Severity{sdk.SeverityOK, sdk.SeverityWarning, sdk.SeverityError}, f.Status)
					again := seen[f.Name]
					seen[f.Name] = true
					return known && f.Name != "" && f.Detail != "" && !again
				})
			}),
		row("check/fix", "each finding that is not well says what mends it",
			"put the command or the change into Fix", each(fixed)),
		row("check/able", "this machine is able to run the backend, which all other checks need",
			"do what the findings say", each(func(f sdk.Finding) bool { return f.Status != sdk.SeverityError })),
		row("check/repeatable", "Check looks at the same things each time",
			"name findings after what is looked at, not after what is found", func(c *C) {
				if first, again := names(c.findings()), names(c.look()); !slices.Equal(first, again) {
					c.Fatalf("first %v, then %v", first, again)
				}
			}),
		row("check/empty-path", "where no program is found, Check still answers, and says what to install",
			"give each missing program a finding of its own, with a fix", func(c *C) {
				found, err := c.fresh(StartOptions{EmptyPath: true}).Check(c.ctx)
				c.ok("check", err)
				c.wantFindings(found, fixed)
			}, needProcess),
	}
}

// wantFindings ends the check at the first finding that is not good.
func (c *C) wantFindings(findings []sdk.Finding, good func(sdk.Finding) bool) {
	for _, f := range findings {
		if !good(f) {
			c.Fatalf("%q (%s: %s) with the fix %q", f.Name, f.Status, f.Detail, f.Fix)
		}
	}
}

// findings are what Check said first.
func (c *C) findings() []sdk.Finding {
	c.session.mu.Lock()
	f := c.found
	c.session.mu.Unlock()
	if f == nil {
		f = c.look()
	}
	return f
}

// look has the backend look at the machine.
func (c *C) look() []sdk.Finding {
	f, err := c.shared().Check(c.ctx)
	c.ok("check", err)
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	c.found = f
	return f
}
