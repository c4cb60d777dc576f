package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/holder"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/inside"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/network"
	"github.com/hutch-run/hutch/sdk/overlay"
)

// sandbox is one sandbox of this process.
type sandbox struct {
	id       string
	spec     sdk.Spec
	dir      string // on the host; the sandbox's own
	keep     bool
	ahead    *ahead // of a sandbox that was made ahead of its use and is not in use yet; guarded by aheadMu
	cgroup   string // its name, also before it is made; empty when no limit needs one
	held     *held
	snapshot *overlay.Snapshot // of a shared workspace before the first command
	notes    []string          // gathered on the way to ready
	support  *limits.Support
	spares   *spares

	aheadMu sync.Mutex

	mu     sync.RWMutex // held shared while the world is used, alone while it is recreated
	*world              // nil when the sandbox is gone, or asleep
	owner  string       // what it was made for
	closed bool         // it was destroyed

	runMu   sync.Mutex
	running map[*holder.Process]bool
	ending  bool // every command that starts now is killed
}

// handle is what a fresh process needs to remove a sandbox, or to find a kept one again.
type handle struct {
	Dir    string `json:"dir"`
	Owner  string `json:"owner"`
	Cgroup string `json:"cgroup,omitempty"` // its name; it may not exist yet
	// Kept is the spec of a sandbox that outlives its plugin process.
	Kept *keptSpec `json:"kept,omitempty"`
}

// readHandle reads what create wrote. A handle of another sandbox must not lead to this one's files or cgroup.
func readHandle(h sdk.Handle) (old handle, err error) {
	err = json.Unmarshal(h.Data, &old)
	if err == nil && (!filepath.IsAbs(old.Dir) || old.Cgroup != "" && old.Cgroup != groupName(h.ID) ||
		old.Kept != nil && old.Kept.Config == nil) {
		err = errors.New("invalid state directory, cgroup or configuration")
	}
	if err != nil {
		return handle{}, sdk.Errorf(sdk.ReasonConfig, "the handle of %s is not one of bwrap's: %w", h.ID, err)
	}
	return old, nil
}

// groupName ends with what no id holds, so that it is no prefix of another.
func groupName(id string) string { return "bwrap-" + id + "." }

// keptSpec is a [sdk.Spec] that survives JSON.
type keptSpec struct {
	Config    *Config          `json:"config"`
	Limits    sdk.Limits       `json:"limits"`
	Network   sdk.NetworkMode  `json:"network"`
	Rules     sdk.NetworkRules `json:"rules,omitzero"`
	Workspace sdk.Workspace    `json:"workspace"`
	Input     string           `json:"input"`
	Mounts    []sdk.Mount      `json:"mounts"`

	DefaultMemory int64 `json:"default_memory"` // bytes, chosen when the sandbox was made
}

// planSandbox decides how a sandbox will be; nothing exists of it yet.
func planSandbox(id, dir string, spec sdk.Spec, keep bool, support *limits.Support, spares *spares,
	defaultMemory int64) (*sandbox, error) {
	s := &sandbox{id: id, spec: spec, dir: dir, keep: keep, held: planLimits(&spec, keep, dir, support, defaultMemory),
		support: support,
		spares:  spares, running: map[*holder.Process]bool{}}
	if err := errors.Join(s.held.Err(), network.Check(&spec)); err != nil {
		return nil, err
	}
	if s.held.inGroup() {
		s.cgroup = groupName(id)
	}
	return s, nil
}

// create makes a sandbox. On an error nothing is left.
func create(ctx context.Context, req *sdk.CreateRequest, support *limits.Support, spares *spares) (*sandbox, error) {
	s, err := planSandbox(req.ID, req.StateDir, req.Spec, req.Keep, support, spares, 0)
	if err != nil {
		return nil, err
	}
	s.owner = req.Owner
	if req.Ahead {
		if s.ahead, err = newAhead(&req.Spec); err != nil {
			return nil, err
		}
	}
	h := handle{Dir: req.StateDir, Owner: req.Owner, Cgroup: s.cgroup}
	if req.Keep {
		h.Kept = &keptSpec{configOf(&req.Spec), req.Limits, req.Network, req.Rules, req.Workspace, req.Input, req.Mounts,
			s.held.DefaultMemory}
	}
	data, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	if err := req.Allocated(sdk.Handle{ID: req.ID, Data: data}); err != nil {
		return nil, err
	}
	if req.From != nil {
		err = s.fork(ctx, *req.From) // whose first command makes its world
	} else {
		err = s.open(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// open makes the sandbox's world.
func (s *sandbox) open(ctx context.Context) (err error) {
	if ws := s.spec.Workspace; ws.Mode == sdk.WorkspaceShared && ws.Source != "" {
		var note string
		if s.snapshot, note, err = inside.Snapshot(ctx, ws.Source); err != nil {
			return err
		}
		if note != "" {
			s.notes = append(s.notes, note)
		}
	}
	s.world, err = s.makeWorld(ctx)
	return err
}

// Ready implements [sdk.Sandbox].
func (s *sandbox) Ready() sdk.Ready {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.world == nil {
		return s.asleep()
	}
	return s.ready
}

// use keeps the world as it is until the returned function is called. That of a persistent sandbox is made if
// it does not exist.
func (s *sandbox) use() (release func(), err error) {
	for range 5 {
		s.mu.RLock()
		switch {
		case s.closed || s.world == nil && !s.keep:
			s.mu.RUnlock()
			return nil, sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone", s.id)
		case s.world != nil && !(s.keep && isClosed(s.holder.Gone())):
			if err := s.begin(); err != nil {
				s.mu.RUnlock()
				return nil, err
			}
			return s.mu.RUnlock, nil
		}
		s.mu.RUnlock()
		if err := s.wake(); err != nil {
			return nil, err
		}
	}
	return nil, sdk.Errorf(sdk.ReasonInternal, "the holder of the sandbox %s ends as soon as it is there", s.id)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// run notes that a command runs, and kills it when the sandbox is about to end.
func (s *sandbox) run(p *holder.Process) (done func()) {
	s.runMu.Lock()
	defer s.runMu.Unlock()
	s.running[p] = true
	if s.ending {
		_ = p.Kill()
	}
	return func() {
		s.runMu.Lock()
		defer s.runMu.Unlock()
		delete(s.running, p)
	}
}

// alone kills all commands, waits for their ends to be reported, and calls fn while
// nothing else uses the sandbox.
func (s *sandbox) alone(fn func() error) error {
	s.runMu.Lock()
	s.ending = true
	for p := range s.running {
		_ = p.Kill()
	}
	s.runMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	err := fn()
	s.runMu.Lock()
	s.ending = false
	s.runMu.Unlock()
	return err
}

// close ends all commands and removes everything. It may be called twice.
func (s *sandbox) close() error {
	return s.alone(func() (err error) {
		s.closed = true
		if s.world != nil {
			err = s.world.close()
			s.world = nil
		}
		if s.keep {
			err = errors.Join(err, s.endOther())
		}
		return errors.Join(err, removeLayer(s.dir, s.keep))
	})
}

// Reset implements [sdk.Resetter]. All commands die. A soft reset empties /tmp and
// /dev/shm and leaves workspace and output; a hard one recreates the sandbox.
func (s *sandbox) Reset(ctx context.Context, hard bool) error {
	if s.keep {
		return s.alone(func() error { return s.renew(ctx, hard) })
	}
	return s.alone(func() error {
		if s.world == nil {
			return sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone", s.id)
		}
		if !hard {
			return errors.Join(s.empty("tmp"), s.empty("dev/shm"))
		}
		err := s.world.close()
		s.world = nil
		if err = errors.Join(err, removeLayer(s.dir, false)); err != nil {
			return err
		}
		return s.open(ctx)
	})
}

// empty removes all that is in a directory of the sandbox.
func (s *sandbox) empty(dir string) error {
	root, err := openDir(s.root)
	if err != nil {
		return err
	}
	defer root.Close()
	d, err := root.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	for _, name := range names {
		err = errors.Join(err, inside.RemoveAll(root, filepath.Join(dir, name)))
	}
	return err
}

// Inspect implements [sdk.Inspector].
func (s *sandbox) Inspect(context.Context) (sdk.Status, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	here := s.world != nil && !isClosed(s.holder.Gone())
	switch {
	case s.closed || !here && !s.keep:
		return sdk.Status{State: sdk.StateGone}, nil
	case !here: // nobody's command runs, and the next one finds it as after a reset
		return sdk.Status{State: sdk.StateAsleep, Details: map[string]string{"holder": "none; the next command starts one",
			"layer": s.layerText()}}, nil
	}
	s.runMu.Lock()
	defer s.runMu.Unlock()
	return sdk.Status{State: sdk.StateReady, Details: map[string]string{
		sdk.DetailPID: fmt.Sprint(s.holder.PID()),
		"host uid":    fmt.Sprint(s.ident.hostUID),
		"commands":    fmt.Sprint(len(s.running)),
		"layer":       s.layerText(),
	}}, nil
}

func (s *sandbox) layerText() string {
	if s.held.InMemory {
		return "in memory, " + sdk.Bytes(s.held.scratch).String()
	}
	return filepath.Join(s.dir, "layer")
}

// configOf returns the configuration of spec; a spec without one has the defaults.
func configOf(spec *sdk.Spec) *Config {
	if c, ok := spec.Config.(*Config); ok && c != nil {
		return c
	}
	return &Config{TmpSize: 1 << 30, UID: 1000}
}
