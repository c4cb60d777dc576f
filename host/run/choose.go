package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-version"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/resident/handover"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/sdk"
)

// choice is what came of looking at the backends of a run.
type choice struct {
	backend    *backend.Backend // nil when none is able
	config     *runfile.BackendConfig
	candidates []Candidate
	diags      diag.Diagnostics // errors in the run file itself: no backend is looked for beyond them
	notes      []string
	warnings   diag.Diagnostics // about what is going to run all the same
	ahead      *aheadOf         // a sandbox that was made ahead and is started, until the run uses it; nil without one
}

// planned is the data of [store.EventPlan]. How the chosen one holds the limits, [store.EventSandboxReady] says.
type planned struct {
	Candidates []Candidate `json:"candidates"`
	// Config is the block of the chosen backend as it was checked, secrets redacted: what a replay needs of it.
	Config json.RawMessage `json:"config,omitempty"`
}

// maxConfig bounds, in bytes, the configuration of a backend that is recorded.
const maxConfig = 32 << 10

// recorded is the configuration of the chosen backend for the record; nil without one, or for a longer one than any
// event should hold.
func (c *choice) recorded() json.RawMessage {
	if c.config == nil || len(c.config.Redacted) > maxConfig {
		return nil
	}
	return c.config.Redacted
}

// planned is what the record says about the choice.
func (c *choice) planned() planned {
	list := slices.Clone(c.candidates)
	for i := range list {
		if list[i].Chosen {
			list[i].Limits = nil
		}
	}
	return planned{list, c.recorded()}
}

// WithBackends is d with the default backends where it names none.
func (r *Runner) WithBackends(d *runfile.Definition) *runfile.Definition {
	if len(d.Backends) > 0 {
		return d
	}
	d = Overrides{Backends: r.opt.Defaults}.Apply(d)
	for i := range d.Backends {
		d.Given[fmt.Sprintf("backend[%d]", i)] = r.opt.DefaultsFrom
	}
	return d
}

// choose looks at the backends of d in order and takes the first that can do all that is asked. It goes on after it
// found one only when all is set, for plan.
func (r *Runner) choose(ctx context.Context, d *runfile.Definition, tty, all bool) (*choice, error) {
	c := &choice{diags: append(CheckCommand(d), checkSecrets(d)...)}
	if r.opt.Store != nil {
		c.diags = append(c.diags, checkStore(d, r.opt.Store.Paths(), handover.Dir())...)
	}
	if len(d.Backends) == 0 {
		c.diags = append(c.diags, d.Diagnose("", "the run names no backend, and no default backend is installed", "",
			`hutch backend list shows what is installed: add a block such as backend "NAME" {}, or say --backend`))
		return c, nil
	}
	return c, r.goOn(ctx, d, c, tty, all)
}

// goOn looks at the backends of d that c has not seen yet.
func (r *Runner) goOn(ctx context.Context, d *runfile.Definition, c *choice, tty, all bool) error {
	for i := len(c.candidates); i < len(d.Backends); i++ {
		block := d.Backends[i]
		cand, b, cfg, err := r.look(ctx, d, i, block, tty)
		if err != nil {
			return err
		}
		if b != nil && c.backend == nil && len(cand.Reasons) == 0 {
			cand.Chosen = true
			c.backend, c.config = b, cfg
			c.warnings = cand.warnings
			switch b.Facts.Isolation {
			case sdk.IsolationNone:
				c.notes = append(c.notes, fmt.Sprintf("backend %q isolates nothing: the code ran as a plain process", block.Name))
			case sdk.IsolationProcess:
				c.notes = append(c.notes, fmt.Sprintf("backend %q isolates less than namespaces do", block.Name))
			}
		}
		c.candidates = append(c.candidates, cand.Candidate)
		if cand.fatal {
			c.diags = append(c.diags, cand.Problems...)
		}
		if (c.backend != nil || len(c.diags) > 0) && !all {
			break
		}
	}
	if len(c.diags) > 0 {
		c.backend = nil
	}
	return nil
}

// failed notes that the chosen backend, the last candidate so far, could not make the sandbox.
func (c *choice) failed(d *runfile.Definition, err *sdk.Error) {
	last := len(c.candidates) - 1
	l := &looked{Candidate: c.candidates[last], d: d}
	l.Chosen = false
	why := err.Summary
	if err.Detail != "" {
		why += ": " + err.Detail
	}
	l.cannot(fmt.Sprintf("backend[%d]", last), err.Fix, "%s", why)
	c.candidates[last] = l.Candidate
	c.backend, c.config, c.notes, c.warnings = nil, nil, nil, nil
}

// looked is a candidate under examination.
type looked struct {
	Candidate
	fatal    bool // the run file is wrong, whatever other backends can do
	warnings diag.Diagnostics
	d        *runfile.Definition
}

// cannot notes a reason why the backend is not able.
func (l *looked) cannot(path, fix, format string, args ...any) {
	why := fmt.Sprintf(format, args...)
	l.Reasons = append(l.Reasons, why)
	summary := why
	if !strings.Contains(why, strconv.Quote(l.Name)) {
		summary = fmt.Sprintf("backend %q is not able: %s", l.Name, why)
	}
	l.Problems = append(l.Problems, l.d.Diagnose(path, summary, "", fix))
}

// warn keeps the warnings among ds.
func (l *looked) warn(ds diag.Diagnostics) {
	for _, d := range ds {
		if d.Severity == diag.Warning {
			l.warnings = append(l.warnings, d)
		}
	}
}

// look examines one backend. The error is the end of ctx; what is wrong with the backend is in the candidate.
func (r *Runner) look(ctx context.Context, d *runfile.Definition, i int, block *runfile.Backend, tty bool) (*looked,
	*backend.Backend, *runfile.BackendConfig, error) {
	l := &looked{Candidate: Candidate{Name: block.Name}, d: d}
	at := fmt.Sprintf("backend[%d]", i)
	b, err := r.opt.Backends.Get(ctx, block.Name)
	if ctx.Err() != nil {
		return l, nil, nil, context.Cause(ctx)
	}
	if err != nil {
		text, fix := splitFix(err)
		var missing *backend.NotFoundError
		if req := required(d, block.Name); req != nil && req.Source != "" && errors.As(err, &missing) && !missing.Only {
			fix = "hutch init " + d.File + " brings it from " + req.Source
		}
		l.cannot(at, fix, "%s", text)
		return l, nil, nil, nil
	}
	f := &b.Facts
	l.Version, l.Isolation = f.Version, string(f.Isolation)

	if !l.asRequired(at, b) {
		return l, b, nil, nil
	}
	switch files, yours := sdk.Isolation(d.MinIsolation), r.opt.MinIsolation; {
	case f.Isolation.Rank() < 0:
		l.cannot(at, "install a version of it that fits this hutch", "it does not say how it isolates")
	case f.Isolation.Rank() < files.Rank():
		l.cannot("min_isolation", "name a backend that isolates more, or ask for less with min_isolation",
			"it has isolation %s, at least %s is wanted", f.Isolation, files)
	case f.Isolation.Rank() < yours.Rank():
		l.cannot(at,
			"name a backend that isolates more, or ask for less with --min-isolation, or min_isolation in your configuration",
			"it has isolation %s, and you want at least %s", f.Isolation, yours)
	}
	cfg, diags := block.Decode(&f.Schema)
	l.warn(diags)
	if diags.HasErrors() {
		l.fatal = true
		l.Reasons = append(l.Reasons, "its block has errors")
		l.Problems = append(l.Problems, diags...)
		return l, b, nil, nil
	}
	if mode := d.Network.OrNone().Mode; !slices.Contains(f.Networks, mode) {
		switch {
		case mode == sdk.NetworkFiltered:
			l.cannot("network.allow", "use a backend that filters the network, such as bwrap or podman",
				"it cannot hold network.allow: it offers network %s", modes(f.Networks))
		case mode == sdk.NetworkNone && slices.Contains(f.Networks, sdk.NetworkFull):
			l.cannot("network.mode",
				`use another backend, or let the run have the network: mode = "full" in its network block, or --network full`,
				"it has no network mode %q", mode)
		default:
			l.cannot("network.mode", "", "it has no network mode %q", mode)
		}
	}
	if s := d.Network.Secrets; len(s) > 0 && !f.Has(sdk.CapSecrets) {
		l.cannot(fmt.Sprintf("network.secret[%q]", s[0].Name), "use a backend that can, such as bwrap",
			"it cannot put in secrets")
	}
	if len(d.Network.Publish) > 0 && !f.Has(sdk.CapDial) {
		l.cannot("network.publish", "use a backend that can, such as bwrap or podman", "it cannot publish ports")
	}
	if rules := d.Network.Rules(); d.Network.Mode == sdk.NetworkFull && len(rules.Allow)+len(rules.Deny) > 0 &&
		!slices.Contains(f.Networks, sdk.NetworkFiltered) {
		l.cannot("network.mode", "use a backend that filters the network, such as bwrap or podman",
			"it cannot hold the rules of network")
	}
	if d.Installs() && !slices.Contains(f.Networks, sdk.NetworkFull) {
		l.cannot("dependencies", "", "its sandboxes have no network from which to install dependencies")
	}
	if d.Workspace != nil && !slices.Contains(f.Workspaces, sdk.WorkspaceMode(d.Workspace.Mode)) {
		l.cannot("workspace.mode", "", "it has no workspace mode %q", d.Workspace.Mode)
	}
	if tty && !f.Has(sdk.CapTTY) {
		l.cannot("", "leave out -t", "it cannot give a command a terminal")
	}
	if r.opt.Keep && !f.Has(sdk.CapAttach) {
		l.cannot("", "use another backend, or hutch run without --keep", "its sandboxes end with the command")
	}
	if len(d.Outputs) > 0 && !f.Has(sdk.CapGet) {
		l.cannot("outputs", "", "it gives no files out")
	}
	asked := askedLimits(d)
	for _, a := range asked {
		if !f.Holds(a.limit) {
			l.cannot("limits."+string(a.limit), "remove the limit, or use a backend that can hold it", "it cannot hold %s = %s",
				a.limit, a.value)
		}
	}
	if len(l.Reasons) > 0 || !f.Has(sdk.CapPlan) {
		for _, a := range asked {
			if f.Holds(a.limit) {
				l.Limits = append(l.Limits, PlannedLimit{Limit: result.Limit{Limit: a.limit, Asked: true, Value: a.value,
					HeldBy: "the backend"}})
			}
		}
		return l, b, cfg, nil
	}
	spec := specOf(d, cfg, tty)
	if lang := languageOf(d); d.Installs() && lang != nil && lang.Deps != nil {
		spec.Mounts = append(spec.Mounts, sdk.Mount{Target: lang.Deps.Target, ReadOnly: true}) // they are not installed yet
	}
	plan, err := r.opt.Ahead.plan(b, r.opt.Store, &spec), error(nil)
	if plan == nil {
		plan, err = b.Plan(ctx, &spec)
	}
	if ctx.Err() != nil {
		return l, nil, nil, context.Cause(ctx)
	}
	if err != nil {
		text, fix := splitFix(err)
		l.cannot(at, fix, "%s", text)
		return l, b, cfg, nil
	}
	r.applyPlan(l, d, block, plan)
	return l, b, cfg, nil
}

// applyPlan takes in what the backend says about the very run.
func (r *Runner) applyPlan(l *looked, d *runfile.Definition, block *runfile.Backend, plan *sdk.Plan) {
	found := block.Diagnose(plan.Diagnostics)
	l.warn(found)
	// What is about a value is for the run file's author to mend. What is about none of them, such as a program or a key
	// that is not here, is a matter of this machine, and another backend may be able.
	l.fatal = slices.ContainsFunc(plan.Diagnostics,
		func(d sdk.Diagnostic) bool { return d.Severity != sdk.SeverityWarning && d.Path != "" })
	for _, dg := range found {
		l.Problems = append(l.Problems, dg)
		if dg.Severity == diag.Error {
			l.Reasons = append(l.Reasons, dg.Summary)
		}
	}
	held := map[sdk.Limit]bool{}
	for _, h := range plan.Holds {
		held[h.Limit] = true
		l.Limits = append(l.Limits, PlannedLimit{
			Limit: result.Limit{Limit: h.Limit, Asked: isAsked(d, h.Limit), Value: h.Value, HeldBy: h.HeldBy,
				Visible: h.Visible},
			Reason: h.Reason, Fix: h.Fix,
		})
		if h.HeldBy == "" && !h.Default && (isAsked(d, h.Limit) || h.Limit == sdk.LimitTimeout) {
			why := h.Reason
			if why == "" {
				why = "the backend gives no reason"
			}
			fix := h.Fix
			if fix == "" {
				fix = "remove the limit, or use a backend that can hold it"
			}
			l.cannot("limits."+string(h.Limit), fix, "it cannot hold %s = %s here: %s", h.Limit, h.Value, why)
		}
	}
	for _, a := range askedLimits(d) {
		if !held[a.limit] {
			l.cannot("limits."+string(a.limit), "remove the limit, or use a backend that can hold it",
				"it does not say how it would hold %s = %s", a.limit, a.value)
		}
	}
}

// required is what the run file requires of a backend, nil for nothing.
func required(d *runfile.Definition, name string) *runfile.RequiredBackend {
	for i := range d.RequiredBackends {
		if d.RequiredBackends[i].Name == name {
			return &d.RequiredBackends[i]
		}
	}
	return nil
}

// asRequired checks the run file's required_backends. A backend that somebody develops comes from wherever that is.
func (l *looked) asRequired(at string, b *backend.Backend) bool {
	req := required(l.d, l.Name)
	if req == nil {
		return true
	}
	upgrade := "hutch init -upgrade " + l.d.File
	locked := b.Origin.Selection
	switch from := b.Origin.From; {
	case req.Source == "":
	case from == backend.FromBundle:
		l.cannot(at, "hutch init "+l.d.File,
			"the run file requires it from %s, and that is not locked; here is only the one that came with hutch", req.Source)
		return false
	case locked != nil && locked.Source != req.Source:
		l.cannot(at, upgrade, "the run file requires it from %s, and %s has it from %s", req.Source, locked.Lock,
			locked.Source)
		return false
	}
	if len(req.Constraints) == 0 {
		return true
	}
	v, err := version.NewVersion(b.Facts.Version)
	if err != nil || !req.Constraints.Check(v) {
		fix := "install a version that fits, or change required_backends"
		if locked != nil {
			fix = upgrade
		}
		l.cannot(at, fix, "it has version %s, the run file requires %s", b.Facts.Version, req.Version)
		return false
	}
	return true
}

// askedLimit is one limit that the run asks for and a backend has to hold.
type askedLimit struct {
	limit sdk.Limit
	value string
}

func askedLimits(d *runfile.Definition) (asked []askedLimit) {
	for _, l := range runfile.AllLimits {
		if value := l.Text(d.Limits); value != "" && !l.ByHost() {
			asked = append(asked, askedLimit{l.Name, value})
		}
	}
	return asked
}

func isAsked(d *runfile.Definition, l sdk.Limit) bool {
	return slices.ContainsFunc(askedLimits(d), func(a askedLimit) bool { return a.limit == l })
}

// specOf is what d asks of a backend, without the directories that do not exist yet.
func specOf(d *runfile.Definition, cfg *runfile.BackendConfig, tty bool) sdk.Spec {
	s := sdk.Spec{
		Limits: sdk.Limits{
			Timeout: timeoutOf(d, tty), Memory: int64(d.Limits.Memory), CPUs: d.Limits.CPUs,
			PIDs: d.Limits.PIDs, Disk: int64(d.Limits.Disk), Files: d.Limits.Files,
		},
		Network:   d.Network.OrNone().Mode,
		Rules:     d.Network.Rules(),
		Workspace: sdk.Workspace{Mode: sdk.WorkspacePrivate},
	}
	if cfg != nil && len(cfg.Value) > 0 {
		s.Config = cfg.Value
	}
	if d.Workspace != nil {
		s.Workspace = sdk.Workspace{Source: d.Workspace.Source, Mode: sdk.WorkspaceMode(d.Workspace.Mode)}
	}
	for _, m := range d.Mounts {
		s.Mounts = append(s.Mounts, sdk.Mount{Source: m.Source, Target: m.Target, ReadOnly: m.Mode != runfile.MountWritable})
	}
	return s
}

// modes lists network modes, as in: none or full.
func modes(all []sdk.NetworkMode) string {
	var words []string
	for _, m := range all {
		words = append(words, string(m))
	}
	return strings.Join(words, " or ")
}

// splitFix takes an error apart: what is wrong, and what to do about it.
func splitFix(err error) (text, fix string) {
	var found error
	var e *sdk.Error
	var missing *backend.NotFoundError
	var locked *backend.LockError
	var start *backend.StartError
	switch {
	case errors.As(err, &missing):
		found, fix = missing, missing.Fix
	case errors.As(err, &locked):
		found, fix = locked, locked.Fix
	case errors.As(err, &start):
		found, fix = start, start.Fix
	case errors.As(err, &e):
		found, fix = e, e.Fix
	default:
		return err.Error(), ""
	}
	if fix == "" {
		return found.Error(), ""
	}
	return strings.TrimSuffix(strings.TrimSuffix(found.Error(), "; "+fix), " ("+fix+")"), fix
}
