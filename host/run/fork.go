package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/overlay"
)

// Fork makes persistent sandboxes that begin with a copy of what another one has written, whose backend is b and whose
// lock the caller holds alone. There are as many as names, of which "" stands for one like want. They
// have the parent's surroundings, and copies of what lies in the parent's directories, so that they outlive it. They
// are asleep or ready. Those that could be made are returned with an error, too; of the others nothing is left, or an
// intent is that gc finishes.
func (r *Runner) Fork(ctx context.Context, parent *store.SandboxRecord, b *backend.Backend, want string,
	names []string) (made []store.SandboxInfo, err error) {
	var own surroundings
	if err := parent.ReadPrivate(&own); err != nil {
		return nil, err
	}
	info := parent.Info()
	if own.Spec == nil {
		return nil, errors.New("it was made by a version of hutch whose sandboxes cannot be forked")
	}
	child := info
	child.ID, child.Parent = "", info.ID
	child.MadeBy, child.EndsWith, child.Started, child.Handle = "", nil, nil, nil
	child.Binary, child.BinarySHA256, child.BackendVersion = b.Path, b.SHA256, b.Facts.Version
	boxes, err := r.opt.Store.BeginSandboxes(child, want, names)
	if err != nil {
		return nil, err
	}
	// The others are forks of the first, in which nothing has run: its backend can share what it copied once. It is locked
	// until they are made.
	handle := func(i store.SandboxInfo) *sdk.Handle {
		return &sdk.Handle{ID: i.ID, Data: i.Handle, StateDir: r.opt.Store.Paths().SandboxState(i.ID)}
	}
	first, err := r.fork(ctx, own, info, handle(info), boxes[0], b)
	if err != nil {
		for _, box := range boxes[1:] {
			err = errors.Join(err, box.Forget())
		}
		return nil, errors.Join(err, first())
	}
	made = append(made, boxes[0].Info())
	from := handle(made[0])
	var mu sync.Mutex
	var forks sync.WaitGroup
	turns := make(chan struct{}, forksAtOnce)
	for _, box := range boxes[1:] {
		turns <- struct{}{}
		forks.Go(func() {
			defer func() { <-turns }()
			end, e := r.fork(ctx, own, info, from, box, b)
			is := box.Info()
			e = errors.Join(e, end())
			mu.Lock()
			defer mu.Unlock()
			if err = errors.Join(err, e); e == nil {
				made = append(made, is)
			}
		})
	}
	forks.Wait()
	err = errors.Join(err, first())
	slices.SortFunc(made, func(a, b store.SandboxInfo) int { return strings.Compare(a.ID, b.ID) })
	return made, err
}

// forksAtOnce is how many forks are made at the same time.
const forksAtOnce = 8

// fork makes the sandbox that box is the record of, from the one that from leads to. The caller calls end, also after
// an error.
func (r *Runner) fork(ctx context.Context, own surroundings, parent store.SandboxInfo, from *sdk.Handle,
	box *store.SandboxRecord, b *backend.Backend) (end func() error, err error) {
	keep := *r
	keep.opt.Keep = true
	d := &runfile.Definition{Instance: parent.Name, Limits: own.Limits, Network: parent.Network}
	if ws := parent.Workspace; ws.Source != "" {
		d.Workspace = &runfile.Workspace{Source: ws.Source, Mode: ws.Mode, Project: parent.Project, Omit: ws.Omit}
	}
	j := keep.newJob(d, Streams{})
	j.id, j.box, j.chosen = box.ID(), box, &choice{backend: b}
	j.secrets.Add(own.Secrets...)
	j.from = from
	return func() (err error) {
		j.endBox()
		for _, l := range j.res.Leaks {
			err = errors.Join(err, fmt.Errorf("%s; hutch gc removes it", l))
		}
		j.span.end()
		return err
	}, j.fork(ctx, own, parent.ID)
}

// fork makes the sandbox with copies of what lies in the record and the state directory of parent.
func (j *job) fork(ctx context.Context, own surroundings, parent string) error {
	paths := j.r.opt.Store.Paths()
	spec := *own.Spec
	spec.Mounts = slices.Clone(spec.Mounts)
	spec.Relocate(own.State, paths.SandboxState(parent))
	// The record vouches for what lies in input and trust; code, which events speak of, becomes input.
	was, is := paths.Sandbox(parent), paths.Sandbox(j.id)
	move := func(p string) string {
		switch p {
		case filepath.Join(was, "code"), filepath.Join(was, "input"):
			return filepath.Join(is, "input")
		case filepath.Join(was, "trust"):
			return filepath.Join(is, "trust")
		}
		return p
	}
	places := []*string{&spec.Input}
	for i := range spec.Mounts {
		places = append(places, &spec.Mounts[i].Source)
	}
	for _, p := range places {
		to := move(*p)
		if to != *p {
			if err := overlay.Copy(ctx, *p, to, nil); err != nil {
				return err
			}
		}
		*p = to
	}
	p, err := j.create(ctx, j.id, spec, true)
	if err != nil {
		return err
	}
	ready := p.Ready()
	if rest, ok := strings.CutPrefix(own.Workdir, j.box.Info().Workspace.Path); ok && ready.Workspace != "" {
		own.Workdir = ready.Workspace + rest // there are backends where each sandbox has its files elsewhere
	}
	own.Spec, own.State = &spec, paths.SandboxState(j.id)
	err = j.box.WritePrivate(own)
	if err == nil { // what the run file put into its home, which is put back when it wakes
		err = ignore(overlay.Copy(ctx, filepath.Join(paths.SandboxState(parent), keptHome),
			filepath.Join(own.State, keptHome), nil), fs.ErrNotExist)
	}
	if err == nil {
		err = j.box.Update(func(i *store.SandboxInfo) {
			i.State, i.Handle = store.SandboxReady, p.Handle().Data
			i.Workspace.Path, i.Workspace.Input, i.Workspace.Output = ready.Workspace, ready.Input, ready.Output
			i.Workspace.Layers, i.Workdir = (*store.SandboxLayers)(ready.Layers), own.Workdir
			mounts := make([]string, len(i.Mounts))
			for k, m := range i.Mounts {
				mounts[k] = move(m)
			}
			i.Mounts = mounts
		})
	}
	if err != nil {
		after, cancel := j.afterwards(ctx)
		defer cancel()
		j.remove(after, p, p.Handle())
		return err
	}
	j.note(p.intent.Commit(), "forget the intent")
	return nil
}

// ignore is err unless it is the one that does not matter.
func ignore(err, not error) error {
	if errors.Is(err, not) {
		return nil
	}
	return err
}
