package run

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
)

// A persistent sandbox has a record from before anything of it exists. The record is locked until the sandbox is ready
// or gone again, so a process that finds it half made and not locked, such as gc, knows that nobody goes on with it.

// chronicle is where events and declared files go: the record of the run, or of the sandbox when nothing is run.
type chronicle interface {
	Event(typ store.EventType, data any, files ...store.FileRef) error
	WriteCode(name string, mode fs.FileMode, content io.Reader) (store.FileRef, error)
	CodeDir() string
}

func (j *job) chronicle() chronicle {
	if j.rec == nil {
		return j.box
	}
	return j.rec
}

// beginBox begins the record of the persistent sandbox that j makes.
func (j *job) beginBox(name string) error {
	b, ws := j.chosen.backend, workspaceOf(j.d)
	info := store.SandboxInfo{
		ID: j.id, Name: name, Backend: b.Facts.Name, BackendVersion: b.Facts.Version, Binary: b.Path, BinarySHA256: b.SHA256,
		File: j.d.File, Workspace: store.SandboxWorkspace{Source: ws.Source, Mode: ws.Mode}, Network: j.d.Network.OrNone(),
	}
	info.EndsWith = j.r.opt.EndsWith
	if j.d.File != "" {
		info.Run = j.d.Instance
	}
	if j.d.Workspace != nil {
		info.Project, info.Workspace.Omit = j.d.Workspace.Project, j.d.Workspace.Omit
	}
	if j.rec != nil {
		info.MadeBy = j.id
	}
	box, err := j.r.opt.Store.BeginSandbox(info, cmp.Or(j.d.Name, info.Project, filepath.Base(ws.Source), info.Backend))
	if err != nil {
		return err
	}
	j.box = box
	j.res.Sandbox = &result.Sandbox{ID: box.ID(), Name: box.Info().Name}
	return nil
}

// endBox lets go of the record, and removes one of which nothing was made.
func (j *job) endBox() {
	if j.box == nil {
		return
	}
	if j.box.Info().State != store.SandboxReady {
		j.note(j.dropBox(), "remove the sandbox's record")
		return
	}
	j.note(j.box.Close(), "close the sandbox's record")
}

// dropBox removes the record of a sandbox of which nothing is left.
func (j *job) dropBox() error {
	err := j.box.Forget()
	if err == nil {
		j.box, j.res.Sandbox = nil, nil
	}
	return err
}

// leaveBox lets go of the record of a sandbox that could not be destroyed, for gc to go on with.
func (j *job) leaveBox() {
	if j.box != nil {
		_ = j.box.Close()
		j.box, j.res.Sandbox = nil, nil
	}
}

// takeBase writes down what the project looks like that the sandbox is about to get layers upon. A fork has the base of
// its parent.
func (j *job) takeBase(ctx context.Context, w sdk.Workspace) error {
	if j.from != nil {
		return j.box.LinkBase(j.from.ID)
	}
	take := j.r.opt.TakeBase
	if take == nil || w.Source == "" || w.Mode != sdk.WorkspacePrivate {
		return nil
	}
	if err := j.box.NewBase(func(to io.Writer) error { return take(ctx, w.Source, to) }); err != nil {
		return fmt.Errorf("look at what the workspace is like: %w", err)
	}
	return j.box.PlaceBase()
}

// surroundings are what commands of a persistent sandbox get besides what they are started with. They hold secrets in
// clear, because later commands need them, and lie in the private part of the record.
type surroundings struct {
	Env     map[string]string `json:"env,omitempty"`
	Hidden  []string          `json:"hidden,omitempty"` // names in Env of which no record has the value
	Workdir string            `json:"workdir,omitempty"`
	Limits  runfile.Limits    `json:"limits"`
	Argv    []string          `json:"argv,omitempty"` // what the run that it was made from runs
	Stdin   *string           `json:"stdin,omitempty"`
	Secrets []string          `json:"secrets,omitempty"`
	Wall    *wall             `json:"wall,omitempty"`

	// Spec is what the backend was asked for, and State the directory that the sandbox's state lay in then; nil where no
	// fork can be made. See Fork.
	Spec  *sdk.Spec `json:"spec,omitempty"`
	State string    `json:"state,omitempty"`
}

// fulfil makes the sandbox p a persistent one: from here on its record speaks for it, and no intent does.
func (j *job) fulfil(p *place) error {
	ready := p.Ready()
	at := j.places(ready)
	inv := invoke(j.d, "", at, len(j.mounts) > 0)
	for _, name := range []string{"HUTCH_WORKSPACE", "HUTCH_INPUT", "HUTCH_OUTPUT"} {
		delete(inv.env, name) // each command gets them again
	}
	// What is secret in the backend's block alone, such as the key of a service, no command needs: it stays out.
	own := surroundings{Env: inv.env, Hidden: j.d.HiddenEnv(), Workdir: inv.dir, Limits: j.d.Limits, Argv: inv.argv,
		Stdin: j.d.Stdin, Secrets: j.d.OwnSecrets(), Wall: j.wall}
	if p.b.Facts.Has(sdk.CapFork) {
		own.Spec, own.State = &p.spec, j.r.opt.Store.Paths().SandboxState(j.box.ID())
	}
	if err := j.box.WritePrivate(own); err != nil {
		return err
	}
	limits, err := json.Marshal(limitsOf(j.d, ready.Holds, false))
	if err != nil {
		return err
	}
	if j.rec != nil { // else the chain of the sandbox says so already
		if err := j.box.Event(store.EventSandboxReady, map[string]any{"run": j.id, "workspace": ready.Workspace,
			"limits": json.RawMessage(limits)}); err != nil {
			return err
		}
		if err := j.rec.SetSandbox(j.box.Info().Name); err != nil {
			return err
		}
	}
	err = j.box.Update(func(i *store.SandboxInfo) {
		i.State, i.Handle, i.Limits = store.SandboxReady, p.Handle().Data, limits
		i.Workspace.Path, i.Workdir, i.EnvNames = ready.Workspace, inv.dir, envNames(inv.env)
		i.Workspace.Input, i.Workspace.Output, i.Workspace.Layers = ready.Input, ready.Output,
			(*store.SandboxLayers)(ready.Layers)
		for _, m := range slices.Concat(j.mounts, j.trust) {
			i.Mounts = append(i.Mounts, m.Source)
		}
		for _, m := range j.d.Mounts {
			i.Mounts = append(i.Mounts, m.Source)
		}
		if len(i.Handle) == 0 {
			i.Handle = json.RawMessage("null")
		}
	})
	if err != nil {
		return err
	}
	j.note(p.intent.Commit(), "forget the intent") // were it to stay, gc would find the record and commit it
	return nil
}

// Create makes a persistent sandbox as d says, with its files and dependencies, and runs nothing in it. Options.Name
// names it. An error is a [*result.Failure] when it is about what was asked; then, as with every other error, nothing
// is left, or what is left is an intent that gc finishes.
func (r *Runner) Create(ctx context.Context, d *runfile.Definition) (*store.SandboxInfo, error) {
	keep := *r
	keep.opt.Keep = true
	d = r.WithBackends(d)
	j := keep.newJob(d, Streams{})
	defer j.span.end()
	c, err := keep.choose(ctx, d, false, false)
	j.steps(ctx, c, err)
	for _, e := range j.deps {
		_ = e.Release() // they are in the sandbox's record by now
	}
	if f := j.res.Error; f != nil {
		for _, l := range j.res.Leaks {
			f.Summary += fmt.Sprintf("; %s; hutch gc removes it", l)
		}
		j.secrets.result(j.res)
		return nil, f
	}
	info := j.box.Info()
	return &info, nil
}

// newJob is a job that has looked at nothing yet.
func (r *Runner) newJob(d *runfile.Definition, s Streams) *job {
	j := &job{r: r, d: d, s: s, id: cmp.Or(r.opt.ID, r.opt.Store.NewID()), secrets: newRedactor(d)}
	j.span = r.opt.Trace.run(j.id, d.Instance)
	j.res = &result.Result{
		ID: j.id, Name: d.Instance, Parent: d.Parent, File: d.File, Started: time.Now().UTC(), TTY: s.TTY != nil,
		Network: result.NetworkOf(d.Network), Expected: d.Expect != nil, Workspace: workspaceOf(d),
	}
	if at, ok := d.RangeOf(""); ok {
		j.res.Source = &at
	}
	return j
}

// merged is base with over on top; neither is changed.
func merged(base, over map[string]string) map[string]string {
	m := maps.Clone(base)
	if m == nil {
		m = map[string]string{}
	}
	maps.Copy(m, over)
	return m
}
