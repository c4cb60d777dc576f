package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
	rules "github.com/hutch-run/hutch/sdk/network"
)

// Inside is a command for a persistent sandbox. What it does not say, the sandbox's definition does.
type Inside struct {
	Sandbox *client.Sandbox // attached
	Backend *backend.Backend
	Record  *store.SandboxRecord // locked, alone or shared

	ID      string            // of the run, from [store.Store.NewID]; "" for a new one
	Parent  string            // the loop that the run is part of; "" for none
	Name    string            // of the run, for people; "" for the program's
	Argv    []string          // nil for what the run runs that the sandbox was made from
	Env     map[string]string // on top of the sandbox's own; the values are not recorded
	Passed  []string          // names in Env whose values came from the caller's environment, and are secrets
	Workdir string            // absolute inside the sandbox, or relative to the workspace; "" for the sandbox's own
	User    string            // "" for the sandbox's own
	Timeout time.Duration     // 0 for the sandbox's own
	Publish []string          // ports, besides those of the sandbox that are free: see [network.ParsePort]
	Budget  *sdk.Budget       // of the requests to hosts of the sandbox's secrets; nil: none
	Allow   []string          // rules of the network for this command alone, besides those of the sandbox
	Output  int64             // bytes kept of each stream; 0 for the sandbox's own

	// Begun is called once the record of the run is on disk, before the command starts; it may be nil.
	Begun func()
	// Over is called once nothing of this run is asked of the backend any more, before its record is completed; it may be
	// nil.
	Over func()
}

// Exec runs one command in a persistent sandbox. It is a run like any other, with a record, logs and a result, except
// that no outputs are collected, no changes are listed, and the sandbox stays. The chain of the sandbox has an event
// when it begins and one when it ends. Result and error are those of [Runner.Run].
func (r *Runner) Exec(ctx context.Context, in Inside, s Streams) (*result.Result, error) {
	var own surroundings
	if err := in.Record.ReadPrivate(&own); err != nil {
		return nil, err
	}
	info := in.Record.Info()
	stdin := (*string)(nil)
	if in.Argv == nil {
		if in.Argv, stdin = own.Argv, own.Stdin; len(in.Argv) == 0 {
			return nil, fmt.Errorf("sandbox %s was made without a command", info.Name)
		}
	}
	d := &runfile.Definition{
		Parent: in.Parent,
		Name:   path.Base(in.Argv[0]), Instance: cmp.Or(in.Name, path.Base(in.Argv[0])),
		Backends: []*runfile.Backend{runfile.NewBackend(info.Backend)},
		Command:  slices.Clone(in.Argv), Env: merged(own.Env, in.Env), Workdir: own.Workdir, Limits: own.Limits,
		Network: info.Network, Stdin: stdin,
	}
	if len(in.Publish) > 0 {
		d.Given = map[string]string{"network.publish": flags["network.publish"]}
	}
	d.Network.Publish = slices.Concat(in.Publish, slices.DeleteFunc(slices.Clone(info.Network.Publish),
		func(p string) bool { return slices.Contains(in.Publish, p) }))
	if len(in.Allow) > 0 {
		d.Network.Allow = slices.Concat(d.Network.Allow, in.Allow)
	}
	d.HideEnv(append(slices.Collect(maps.Keys(in.Env)), own.Hidden...), in.Passed)
	set(&d.Workdir, in.Workdir)
	set(&d.Limits.Timeout, units.Duration(in.Timeout))
	set(&d.Limits.Output, units.Size(in.Output))
	if info.Workspace.Source != "" {
		d.Workspace = &runfile.Workspace{Source: info.Workspace.Source, Mode: info.Workspace.Mode, Project: info.Project}
	}
	j := r.newJob(d, s)
	if in.ID != "" {
		j.id, j.res.ID = in.ID, in.ID
	}
	defer j.span.end()
	j.box, j.user, j.chosen = in.Record, in.User, &choice{backend: in.Backend}
	j.secrets.Add(own.Secrets...)
	j.wall = own.Wall
	j.res.Sandbox = &result.Sandbox{ID: info.ID, Name: info.Name}
	b := in.Backend
	j.res.Backend = result.Backend{Name: b.Facts.Name, Version: b.Facts.Version, Isolation: string(b.Facts.Isolation),
		Path: b.Path, SHA256: b.SHA256}

	rec, err := r.opt.Store.CreateRun(store.NewRun{ID: j.id, Name: d.Instance, Backend: info.Backend, Parent: d.Parent,
		Sandbox: info.Name, Definition: j.secrets.Value(d)})
	if err != nil {
		j.fail("record", err)
		j.seal()
		return j.res, err
	}
	j.rec = rec
	j.res.Dir = rec.Dir()
	if in.Begun != nil {
		in.Begun()
	}
	j.inside(ctx, in)
	if in.Over != nil {
		in.Over()
	}
	return j.res, j.finish()
}

// inside runs the command in the sandbox that is there.
func (j *job) inside(ctx context.Context, in Inside) {
	if err := j.takeSecrets(ctx); err != nil {
		j.fail("secrets", err)
		return
	}
	defer j.listen(in.Backend)()
	ready := in.Sandbox.Ready()
	ready.Holds = held(ready.Holds, in.Record.Info().Limits)
	j.input = ready.Input
	if j.s.TTY != nil && !in.Backend.Facts.Has(sdk.CapTTY) {
		j.fail("plan", &sdk.Error{Reason: sdk.ReasonUnsupported,
			Summary: "backend \"" + in.Backend.Facts.Name + "\" cannot give a command a terminal", Fix: "leave out -t"})
		return
	}
	if j.budget = in.Budget; j.budget != nil {
		if err := checkBudget(in); err != nil {
			j.fail("plan", err)
			return
		}
	}
	if j.allow = in.Allow; len(j.allow) > 0 {
		if err := checkAllow(in); err != nil {
			j.fail("plan", err)
			return
		}
	}
	if err := j.checkHolds(ready); err != nil {
		j.fail("plan", err)
		return
	}
	if err := j.publish(in.Backend, len(in.Publish)); err != nil {
		j.fail("publish", err)
		return
	}
	defer j.unpublish()
	argv := slices.Clone(in.Argv)
	j.secrets.Strings(argv)
	j.note(in.Record.Event(store.EventExecStart, map[string]any{"run": j.id, "argv": argv, "env": envNames(in.Env),
		"tty": j.s.TTY != nil}), "write the sandbox's event")
	j.exec(ctx, &place{Sandbox: in.Sandbox, b: in.Backend})
	if j.res.Cause == sdk.CauseBackend {
		j.note(j.endCommand(ctx, in), "end the command that its backend left")
	}
	j.note(in.Record.Event(store.EventExecEnd, map[string]any{"run": j.id, "cause": j.res.Cause,
		"exit_code": j.res.ExitCode}), "write the sandbox's event")
	j.res.ChangesKnown = false
}

// checkBudget refuses a budget that would not hold.
func checkBudget(in Inside) error {
	switch {
	case len(in.Record.Info().Network.Secrets) == 0:
		return &sdk.Error{Reason: sdk.ReasonConfig,
			Summary: "a budget counts requests to the hosts of secrets, and the sandbox has none"}
	case !in.Backend.Facts.Has(sdk.CapBudget):
		return &sdk.Error{Reason: sdk.ReasonUnsupported, Summary: "backend \"" + in.Backend.Facts.Name +
			"\" cannot hold a budget", Fix: "use a backend that can, such as bwrap"}
	}
	return nil
}

// checkAllow refuses rules that would not hold for one command.
func checkAllow(in Inside) error {
	mode := in.Record.Info().Network.OrNone().Mode
	more, err := rules.Parse(mode, sdk.NetworkRules{Allow: in.Allow})
	fix := "make a sandbox that allows it: hutch create --allow-host " + strings.Join(in.Allow, " --allow-host ") + " …"
	switch {
	case err != nil:
		return &sdk.Error{Reason: sdk.ReasonConfig, Summary: err.Error()}
	case mode == sdk.NetworkNone:
		return &sdk.Error{Reason: sdk.ReasonConfig, Summary: "the sandbox was made without a network", Fix: fix}
	case !in.Backend.Facts.Has(sdk.CapAllow):
		return &sdk.Error{Reason: sdk.ReasonUnsupported, Summary: "backend \"" + in.Backend.Facts.Name +
			"\" cannot allow more for one command", Fix: fix}
	case len(more.Loopback()) > 0:
		return &sdk.Error{Reason: sdk.ReasonUnsupported,
			Summary: "ports of this machine's loopback are shown when a sandbox is made", Fix: fix}
	}
	return nil
}

// endCommand ends what a backend that died may have left running: attaching with a new one does.
func (j *job) endCommand(ctx context.Context, in Inside) error {
	ctx, cancel := j.afterwards(ctx)
	defer cancel()
	b, err := j.r.opt.Backends.Open(ctx, in.Backend.Path)
	if err != nil {
		return err
	}
	_, err = b.Attach(ctx, in.Sandbox.Handle())
	return errors.Join(err, b.Stop(ctx))
}

// held adds to what a backend says on attaching what it said when the sandbox was made, for backends that say it once.
func held(now []sdk.Hold, made json.RawMessage) []sdk.Hold {
	var limits []result.Limit
	if json.Unmarshal(made, &limits) != nil {
		return now
	}
	for _, l := range limits {
		if l.Limit == runfile.LimitOutput || l.Limit == runfile.LimitOutputTotal ||
			slices.ContainsFunc(now, func(h sdk.Hold) bool { return h.Limit == l.Limit }) {
			continue
		}
		now = append(now, sdk.Hold{Limit: l.Limit, Value: l.Value, Default: !l.Asked, HeldBy: l.HeldBy, Visible: l.Visible})
	}
	return now
}
