package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/host/units"
)

// PlanSchema identifies the JSON of a [Plan].
const PlanSchema = "hutch.plan/v1"

// Plan is what would be run where, and why there.
type Plan struct {
	Schema    string            `json:"schema"`
	Name      string            `json:"name"`
	File      string            `json:"file,omitempty"`
	OK        bool              `json:"ok"`      // it could run now
	Backend   string            `json:"backend"` // "" when none is able
	Command   []string          `json:"command"`
	Workdir   string            `json:"workdir"`
	Env       map[string]string `json:"env"` // secrets redacted
	Files     []PlannedFile     `json:"files"`
	Network   network.Network   `json:"network"`
	Workspace result.Workspace  `json:"workspace"`
	Mounts    []runfile.Mount   `json:"mounts,omitempty"`
	Limits    []result.Limit    `json:"limits"` // as the chosen backend would hold them
	Installs  []Install         `json:"dependencies,omitempty"`
	Outputs   []string          `json:"outputs"` // patterns; empty for everything
	Notes     []string          `json:"notes,omitempty"`

	Candidates  []Candidate      `json:"candidates"` // every backend of the run in order
	Diagnostics diag.Diagnostics `json:"diagnostics,omitempty"`
}

// PlannedFile is one file that the sandbox would see.
type PlannedFile struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
	From string `json:"from"` // its source, "content", or "hutch" when it is generated
}

// Install is what would be installed before the run.
type Install struct {
	Language string   `json:"language"`
	Packages []string `json:"packages"`
	Key      string   `json:"key"` // of the cache entry
}

// Candidate is one backend that was looked at.
type Candidate struct {
	Name      string           `json:"name"`
	Version   string           `json:"version,omitempty"`
	Isolation string           `json:"isolation,omitempty"`
	Chosen    bool             `json:"chosen"`
	Reasons   []string         `json:"reasons,omitempty"` // why it is not able; empty when it is
	Limits    []PlannedLimit   `json:"limits,omitempty"`
	Problems  diag.Diagnostics `json:"problems,omitempty"` // the same, with place and fix
}

// PlannedLimit is how one backend would hold one limit.
type PlannedLimit struct {
	result.Limit
	Reason string `json:"reason,omitempty"` // why it cannot be held
	Fix    string `json:"fix,omitempty"`
}

// Plan says what would run where and why, without making anything. What is wrong with the run is in the plan; the error
// is the end of ctx.
func (r *Runner) Plan(ctx context.Context, d *runfile.Definition) (*Plan, error) {
	d = r.WithBackends(d)
	c, err := r.choose(ctx, d, false, true)
	if err != nil {
		return nil, err
	}
	red := newRedactor(d)
	red.add(c)
	inv := invoke(d, "", expectedPlaces(d, len(d.Files) > 0), d.Installs())
	p := &Plan{
		Schema: PlanSchema, Name: d.Instance, File: d.File, Command: inv.argv, Workdir: inv.dir, Env: inv.env,
		Network: d.Network.OrNone(), Workspace: workspaceOf(d), Mounts: d.Mounts, Outputs: d.Outputs, Notes: c.notes,
		Candidates: c.candidates, Diagnostics: c.diags,
		Files: []PlannedFile{}, Limits: []result.Limit{},
	}
	if p.Outputs == nil {
		p.Outputs = []string{}
	}
	p.Command = red.Argv(p.Command)
	for k, v := range p.Env {
		p.Env[k] = red.Argv([]string{v})[0]
	}
	for _, f := range d.Files {
		from := f.Source
		if from == "" {
			from = "content"
		}
		p.Files = append(p.Files, PlannedFile{Path: f.Path, Size: f.Size, From: from})
	}
	for _, g := range inv.generated {
		p.Files = append(p.Files, PlannedFile{Path: g.Path, Size: int64(len(g.Content)), From: "hutch"})
	}
	if d.Installs() {
		id, _, err := r.identify(d, c)
		if err != nil {
			var ds diag.Diagnostics
			if !errors.As(err, &ds) {
				ds = diags(diag.Errorf("%s", err))
			}
			p.Diagnostics = append(p.Diagnostics, ds...)
		} else {
			packages := slices.Clone(id.Packages)
			red.Strings(packages)
			p.Installs = append(p.Installs, Install{Language: id.Language, Packages: packages, Key: id.Key()})
		}
	}
	_, bad, err := r.readSecrets(ctx, d, false)
	if err != nil {
		return nil, err
	}
	p.Diagnostics = append(p.Diagnostics, bad...)
	if c.backend != nil {
		p.Backend = c.backend.Facts.Name
		for _, cand := range c.candidates {
			if cand.Chosen {
				p.Limits = plannedLimits(d, cand.Limits)
			}
		}
	}
	p.Diagnostics = append(p.Diagnostics, c.warnings...)
	p.OK = c.backend != nil && !p.Diagnostics.HasErrors()
	if c.backend == nil && len(p.Diagnostics) == 0 {
		for _, cand := range c.candidates {
			p.Diagnostics = append(p.Diagnostics, cand.Problems...)
		}
	}
	return p, nil
}

func diags(d ...diag.Diagnostic) diag.Diagnostics { return d }

// plannedLimits joins what the backend would hold with what hutch holds.
func plannedLimits(d *runfile.Definition, l []PlannedLimit) []result.Limit {
	all := limitsOf(d, nil, false)
	have := map[string]bool{}
	for _, x := range l {
		have[string(x.Limit.Limit)] = true
	}
	all = slices.DeleteFunc(all, func(x result.Limit) bool { return have[string(x.Limit)] })
	for _, x := range l {
		if x.HeldBy != "" {
			all = append(all, x.Limit)
		}
	}
	sortLimits(all)
	return all
}

// WriteText renders the plan for a person. What is wrong with it is in p.Diagnostics and not written.
func (p *Plan) WriteText(w io.Writer) error {
	var b strings.Builder
	esc := termsafe.Line
	kind := "run"
	if len(p.Command) == 0 { // what runs in it is not known yet
		kind = "sandbox"
	}
	fmt.Fprintf(&b, "%s %s\n", kind, esc(p.Name))
	row := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "  %-10s %s\n", label, fmt.Sprintf(format, args...))
	}
	for _, c := range p.Candidates {
		what := esc(c.Name)
		if c.Version != "" {
			what += " " + esc(c.Version) + " (" + esc(c.Isolation) + ")"
		}
		switch {
		case c.Chosen:
			row("backend", "%s: chosen", what)
		case len(c.Reasons) == 0:
			row("backend", "%s: able, but an earlier one is taken", what)
		default:
			row("backend", "%s: skipped", what)
			for _, r := range c.Reasons {
				row("", "- %s", esc(r))
			}
			for _, pr := range c.Problems {
				if pr.Fix != "" {
					row("", "  fix: %s", esc(pr.Fix))
				}
			}
		}
	}
	if p.Backend == "" {
		row("backend", "none is able; the run would be refused")
	}
	if len(p.Command) > 0 {
		row("command", "%s", esc(fmt.Sprintf("%q", p.Command)))
	}
	row("workdir", "%s", esc(p.Workdir))
	ws := "an empty directory"
	if p.Workspace.Source != "" {
		ws = p.Workspace.Source + ", " + p.Workspace.Mode
	}
	row("workspace", "%s", esc(ws))
	for _, m := range p.Mounts {
		row("mount", "%s", esc(m.Target+", "+m.Source+", "+m.Mode))
	}
	row("network", "%s", esc(p.Network.String()))
	for _, s := range p.Network.Secrets {
		row("secret", "%s", esc(s.String()))
	}
	for _, f := range p.Files {
		row("file", "%s (%s, from %s)", esc(f.Path), units.FormatSize(f.Size), esc(f.From))
	}
	for _, i := range p.Installs {
		row("installs", "%s: %s", i.Language, esc(strings.Join(i.Packages, " ")))
	}
	for _, l := range p.Limits {
		row("limit", "%s", esc(l.String()))
	}
	for _, k := range slices.Sorted(maps.Keys(p.Env)) {
		row("env", "%s=%s", esc(k), esc(p.Env[k]))
	}
	outs := "everything"
	if len(p.Outputs) > 0 {
		outs = strings.Join(p.Outputs, " ")
	}
	if len(p.Command)+len(p.Outputs) > 0 {
		row("outputs", "%s", esc(outs))
	}
	for _, n := range p.Notes {
		row("note", "%s", esc(n))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// noteOf is a warning in one line, for the notes of a result.
func noteOf(w diag.Diagnostic) string {
	s := w.Summary
	if w.Range != nil {
		s = w.Range.String() + ": " + s
	}
	for _, more := range []string{w.Detail, w.Fix} {
		if more != "" {
			s += "; " + more
		}
	}
	return s
}
