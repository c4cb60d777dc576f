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

func configChecks() []Check {
	return []Check{
		{ID: "config/accepted", Proves: "the configuration of this suite is accepted", Fix: "give the suite a configuration with which sandboxes can be made here",
			run: func(c *C) {
				if bad := c.complaintsAbout(c.config); len(bad) > 0 {
					c.Fatalf("it is not: %v", bad)
				}
			}},
		{ID: "config/not-json", Proves: "a configuration that is no JSON is refused, and the backend lives", Fix: "answer with a config failure, or an error diagnostic",
			run: func(c *C) {
				for _, raw := range []string{`{`, `]`, `{"a":}`, "\x00", `"text"`, `[1]`} {
					if len(c.complaintsAbout(json.RawMessage(raw))) == 0 {
						c.Fatalf("%q is accepted", raw)
					}
				}
				c.describe()
			}},
		{ID: "config/wrong-type", Proves: "a value of the wrong type is refused at the path of its attribute", Fix: "put the attribute's name into the path of the failure or diagnostic",
			run: func(c *C) {
				n := 0
				for _, a := range c.facts.Schema.Attributes {
					wrong := wrongFor(a.Type)
					if wrong == nil {
						continue
					}
					n++
					c.refusedAt(c.configWith(a.Name, wrong), a.Name)
				}
				if n == 0 {
					c.skipf("needs an attribute with a type")
				}
			}},
		{ID: "config/missing-required", Proves: "a configuration without a required attribute is refused, and the attribute is named", Fix: "check what is required although the host has done so",
			run: func(c *C) {
				n := 0
				for _, a := range c.facts.Schema.Attributes {
					if !a.Required {
						continue
					}
					n++
					c.refusedAt(c.configWith(a.Name, nil), a.Name)
				}
				if n == 0 {
					c.skipf("needs a required attribute")
				}
			}},
		{ID: "config/wrong-block", Proves: "a nested block of the wrong shape is refused at its path", Fix: "put the block's name into the path",
			run: func(c *C) {
				if len(c.facts.Schema.Blocks) == 0 {
					c.skipf("needs a nested block")
				}
				for _, b := range c.facts.Schema.Blocks {
					c.refusedAt(c.configWith(b.Name, json.RawMessage(`"text"`)), b.Name)
				}
			}},
		{ID: "config/author", Needs: []Need{needBadConfigs}, Proves: "each of Suite.BadConfigs is refused at its path", Fix: "see Validator: a diagnostic carries the path of the value it is about",
			run: func(c *C) {
				for _, bad := range c.bad {
					raw, err := json.Marshal(bad.Config)
					if err != nil {
						c.Fatalf("%s: %v", bad.Name, err)
					}
					found := c.complaintsAbout(raw)
					if len(found) == 0 {
						c.Fatalf("%s: %s is accepted", bad.Name, raw)
					}
					if bad.Path != "" && !slices.ContainsFunc(found, func(p complaint) bool { return p.path == bad.Path }) {
						c.Fatalf("%s: the path must be %q; got %v", bad.Name, bad.Path, found)
					}
				}
			}},
		{ID: "config/refused-by-create", Proves: "Create itself refuses a wrong configuration before it allocates anything", Fix: "check the configuration first",
			run: func(c *C) {
				req := c.request()
				req.Config = json.RawMessage(`[1]`)
				allocated := false
				req.Allocated = func(sdk.Handle) error { allocated = true; return nil }
				_, err := c.create(c.shared(), req)
				c.wantReason(err, "creating with a configuration that is a list", sdk.ReasonConfig)
				if allocated {
					c.Fatalf("a handle was allocated first")
				}
			}},
		{ID: "config/repeatable", Proves: "the same wrong configuration gives the same complaint each time", Fix: "do not let the order of a map decide what is said",
			run: func(c *C) {
				first := fmt.Sprint(c.complaintsAbout(json.RawMessage(`[1]`)))
				for range 5 {
					if again := fmt.Sprint(c.complaintsAbout(json.RawMessage(`[1]`))); again != first {
						c.Fatalf("first %s, then %s", first, again)
					}
				}
			}},
	}
}

// complaint is one thing that is wrong with a configuration.
type complaint struct{ path, text string }

// complaintsAbout asks, by Plan where there is one and by Create otherwise, what is
// wrong with a configuration.
func (c *C) complaintsAbout(raw json.RawMessage) []complaint {
	req := c.request()
	req.Config = raw
	if c.facts.Has(sdk.CapPlan) {
		p, err := c.shared().Plan(c.ctx, &req.Spec)
		if err != nil {
			return c.fromError(err)
		}
		var out []complaint
		for _, d := range p.Diagnostics {
			if d.Severity == sdk.SeverityError {
				out = append(out, complaint{d.Path, d.Summary})
			}
		}
		return out
	}
	_, err := c.create(c.shared(), req)
	return c.fromError(err)
}

func (c *C) fromError(err error) []complaint {
	if err == nil {
		return nil
	}
	var e *sdk.Error
	if !errors.As(err, &e) || e.Reason != sdk.ReasonConfig {
		c.Fatalf("a wrong configuration gave %v, and not a failure with reason config", err)
	}
	return []complaint{{e.Path, e.Summary}}
}

// refusedAt ends the check unless the configuration is refused at the attribute.
func (c *C) refusedAt(raw json.RawMessage, name string) {
	found := c.complaintsAbout(raw)
	if len(found) == 0 {
		c.Fatalf("%s is accepted", raw)
	}
	for _, f := range found {
		if f.path == name || strings.HasPrefix(f.path, name+".") || strings.HasPrefix(f.path, name+"[") {
			return
		}
		if f.path == "" && strings.Contains(f.text, name) {
			return
		}
	}
	c.Fatalf("%s is refused, but not at %s: %v", raw, name, found)
}

// configWith returns the configuration of the suite with one value replaced, or
// taken away when value is nil.
func (c *C) configWith(name string, value json.RawMessage) json.RawMessage {
	m := map[string]json.RawMessage{}
	if len(c.config) > 0 {
		if err := json.Unmarshal(c.config, &m); err != nil {
			c.Fatalf("the configuration of the suite is no object: %v", err)
		}
	}
	if delete(m, name); value != nil {
		m[name] = value
	}
	raw, err := json.Marshal(m)
	if err != nil {
		c.Fatalf("%v", err)
	}
	return raw
}

// wrongFor is a value that no attribute of the type can take; nil when all can.
func wrongFor(typ string) json.RawMessage {
	switch {
	case typ == "any":
		return nil
	case typ == "string":
		return json.RawMessage(`["a list"]`)
	case typ == "bool":
		return json.RawMessage(`{"an":"object"}`)
	case typ == "number":
		return json.RawMessage(`"not a number"`)
	}
	return json.RawMessage(`17`)
}

func machineChecks() []Check {
	return []Check{
		{ID: "check/answers", Proves: "Check looks at the machine and says what it found", Fix: "return one finding for each thing that the backend needs",
			run: func(c *C) {
				if len(c.findings()) == 0 {
					c.Fatalf("there is no finding at all")
				}
			}},
		{ID: "check/findings-complete", Proves: "each finding has a name, a status and what was found, and no name is there twice", Fix: "fill in Name, Status and Detail",
			run: func(c *C) {
				seen := map[string]bool{}
				for _, f := range c.findings() {
					known := slices.Contains([]sdk.Severity{sdk.SeverityOK, sdk.SeverityWarning, sdk.SeverityError}, f.Status)
					if f.Name == "" || f.Detail == "" || !known || seen[f.Name] {
						c.Fatalf("%+v", f)
					}
					seen[f.Name] = true
				}
			}},
		{ID: "check/fix", Proves: "each finding that is not well says what mends it", Fix: "put the command or the change into Fix",
			run: func(c *C) {
				for _, f := range c.findings() {
					if f.Status != sdk.SeverityOK && f.Fix == "" {
						c.Fatalf("%q (%s: %s) has no fix", f.Name, f.Status, f.Detail)
					}
				}
			}},
		{ID: "check/able", Proves: "this machine is able to run the backend, which all other checks need", Fix: "do what the findings say",
			run: func(c *C) {
				for _, f := range c.findings() {
					if f.Status == sdk.SeverityError {
						c.Fatalf("%s: %s (%s)", f.Name, f.Detail, f.Fix)
					}
				}
			}},
		{ID: "check/repeatable", Proves: "Check looks at the same things each time", Fix: "name findings after what is looked at, not after what is found",
			run: func(c *C) {
				names := func(findings []sdk.Finding) (out []string) {
					for _, f := range findings {
						out = append(out, f.Name)
					}
					return out
				}
				if first, again := names(c.findings()), names(c.look()); !sameStrings(first, again) {
					c.Fatalf("first %v, then %v", first, again)
				}
			}},
		{ID: "check/empty-path", Needs: []Need{needProcess}, Proves: "where no program is found, Check still answers, and says what to install", Fix: "give each missing program a finding of its own, with a fix",
			run: func(c *C) {
				found, err := c.fresh(StartOptions{EmptyPath: true}).Check(c.ctx)
				if err != nil {
					c.Fatalf("%v", err)
				}
				for _, f := range found {
					if f.Status != sdk.SeverityOK && f.Fix == "" {
						c.Fatalf("%q (%s: %s) has no fix", f.Name, f.Status, f.Detail)
					}
				}
			}},
	}
}

// findings are what Check said first.
func (c *C) findings() []sdk.Finding {
	c.session.mu.Lock()
	f := c.session.found
	c.session.mu.Unlock()
	if f == nil {
		f = c.look()
	}
	return f
}

// look has the backend look at the machine.
func (c *C) look() []sdk.Finding {
	f, err := c.shared().Check(c.ctx)
	if err != nil {
		c.Fatalf("check: %v", err)
	}
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	c.session.found = f
	return f
}
