// Package observe finds out what a run needs: it opens the network, reads from the result what was used, and writes the
// run file that allows that and nothing more.
//
// Open makes the run to observe, From reads its result, Narrow applies what was found, Prove drops what the run
// succeeds without, and Needs.Blocks and Needs.File write it down.
package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/sdk"
	rules "github.com/hutch-run/hutch/sdk/network"
)

// Needs are what a run used.
type Needs struct {
	Allow []string // rules of the destinations that it reached, sorted
	// Mounts are those of the run that it used and, when it failed, read-only directories that it asked for in vain.
	Mounts []runfile.Mount
	// Files are single files that a failed run asked for in vain, and that no mount can show.
	Files []string
	// Secrets are those whose values were put into requests.
	Secrets []network.Secret
	Limits  runfile.Limits // the peaks with headroom: see From
	// Notes are one line each: destinations that were tried in vain, and what could not be observed.
	Notes []string

	usage   result.Usage
	backend string
	asked   map[string]string // by the target of a mount: why it is there
}

// Open returns the run to observe: every public name and address is reachable, besides what d allows itself. Rules that
// deny, and secrets, stay as they are. Backends that do not record what a command connects to are left out; it is an
// error when there are no others.
func Open(ctx context.Context, d *runfile.Definition,
	facts func(ctx context.Context, backend string) (*sdk.Facts, error)) (*runfile.Definition, error) {
	c := *d
	c.Backends = slices.DeleteFunc(slices.Clone(d.Backends), func(b *runfile.Backend) bool {
		f, err := facts(ctx, b.Name)
		return err == nil && !slices.Contains(f.Networks, sdk.NetworkFiltered) // the run will say what the error is
	})
	if len(c.Backends) == 0 && len(d.Backends) > 0 {
		return nil, &sdk.Error{Reason: sdk.ReasonUnsupported,
			Summary: fmt.Sprintf("backend %q does not record what a command connects to", d.Backends[0].Name),
			Fix:     "use one that filters the network, such as bwrap or podman"}
	}
	c.Network.Mode, c.Observe = sdk.NetworkFull, true
	c.Given = maps.Clone(d.Given)
	if c.Given == nil {
		c.Given = map[string]string{}
	}
	c.Given["network.mode"] = "hutch observe"
	return &c, nil
}

// From reads what an observed run used. The timeout is three times the wall time, memory and processes are twice the
// peak, and zero when the backend does not measure it, or held no such limit in the observed run.
func From(d *runfile.Definition, r *result.Result) Needs {
	n := Needs{Mounts: d.Mounts, usage: r.Usage, backend: r.Backend.Name}
	n.files(d, r)
	used := map[string]bool{}
	for _, t := range r.Network.Traffic {
		for _, s := range t.Secrets {
			used[s] = true
		}
		what := network.Destination(t)
		rule, err := rules.ParseRule(cmp.Or(t.Rule, what))
		switch {
		case !t.Allowed:
			text, fix := network.Denial(t)
			if fix != "" {
				text += "; to allow it: " + fix
			}
			n.note("denied: %s", text)
		case t.Reason != "" && t.Received == 0:
			n.note("not reached: %q: %q", what, t.Reason)
		case err != nil:
			n.note("no rule can name the destination %q", what)
		default:
			n.Allow = append(n.Allow, rule.String())
		}
	}
	if r.Network.TrafficMore > 0 {
		n.note("%d more destinations are not in the record", r.Network.TrafficMore)
	}
	slices.Sort(n.Allow)
	n.Allow = slices.Compact(n.Allow)

	for _, s := range d.Network.Secrets {
		if used[s.Name] {
			n.Secrets = append(n.Secrets, s)
		} else {
			n.note("the secret %s was not used", s.Name)
		}
	}

	n.Limits.Timeout = units.Duration(roundUp(max(10*time.Second, 3*r.Usage.Wall.Duration()), 10*time.Second))
	held := func(limit sdk.Limit) bool {
		return slices.ContainsFunc(r.Limits, func(l result.Limit) bool { return l.Limit == limit })
	}
	if p := r.Usage.PeakMemory; !held(sdk.LimitMemory) {
		n.note("the backend held no limit of memory")
	} else if p != nil && *p > 0 {
		n.Limits.Memory = units.Size(roundUp(max(64<<20, 2**p), 32<<20))
	} else {
		n.note("the backend does not measure memory")
	}
	if p := r.Usage.PIDs; !held(sdk.LimitPIDs) {
		n.note("the backend held no limit of processes")
	} else if p != nil && *p > 0 {
		n.Limits.PIDs = roundUp(max(16, 2**p), 16)
	} else {
		n.note("the backend does not count processes")
	}
	if w := d.Workspace; w != nil && w.Mode == string(sdk.WorkspaceShared) && r.ChangesKnown && len(r.Changes) == 0 {
		n.note(`nothing in the workspace changed: mode = "readonly" would do`)
	}
	return n
}

// note adds a line, whose arguments may come from the sandbox and are quoted by the caller where they do.
func (n *Needs) note(format string, args ...any) {
	n.Notes = append(n.Notes, fmt.Sprintf(format, args...))
}

func roundUp[T ~int64](v, unit T) T { return (v + unit - 1) / unit * unit }

// Narrow returns d with nothing but what n allows.
func (n Needs) Narrow(d *runfile.Definition) *runfile.Definition {
	c := *d
	c.Network.Allow, c.Network.Mode, c.Network.Secrets = n.Allow, sdk.NetworkFiltered, nil
	for _, s := range n.Secrets {
		s.Hosts = slices.DeleteFunc(slices.Clone(s.Hosts), func(host string) bool {
			_, problem, _ := c.Network.Misfit(network.Secret{Name: s.Name, Hosts: []string{host}}, nil)
			return problem != ""
		})
		if len(s.Hosts) > 0 {
			c.Network.Secrets = append(c.Network.Secrets, s)
		}
	}
	if len(n.Allow) == 0 {
		c.Network.Mode, c.Network.Deny = sdk.NetworkNone, nil
	}
	c.Mounts, c.Limits = n.Mounts, d.Limits
	c.Limits.Override(n.Limits)
	return &c
}

// ErrNotEnough says that a run does not succeed with all that was observed.
var ErrNotEnough = errors.New("the run does not succeed with what it used when it was observed")

// Prove runs d with what n has, then without each rule and mount in turn, and returns n without those that d does not
// need. try runs one definition, and reports whether it did what is expected of it. The error is ErrNotEnough when the
// first try fails.
func (n Needs) Prove(d *runfile.Definition, try func(what string, d *runfile.Definition) (bool, error)) (Needs, error) {
	ok, err := try("with all that was observed", n.Narrow(d))
	if err == nil && !ok {
		err = ErrNotEnough
	}
	if err != nil {
		return n, err
	}
	for _, rule := range slices.Clone(n.Allow) {
		less := n
		less.Allow = slices.DeleteFunc(slices.Clone(n.Allow), func(r string) bool { return r == rule })
		if ok, err = try("without "+rule, less.Narrow(d)); err != nil {
			return n, err
		} else if ok {
			n = less
		}
	}
	for _, m := range slices.Clone(n.Mounts) {
		less := n
		less.Mounts = slices.DeleteFunc(slices.Clone(n.Mounts), func(x runfile.Mount) bool { return x == m })
		if ok, err = try("without the mount "+m.Target, less.Narrow(d)); err != nil {
			return n, err
		} else if ok {
			n = less
		}
	}
	return n, nil
}
