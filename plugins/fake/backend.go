package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/limits"
)

// holdable are the limits that a machine with cgroups can hold. disk is left out,
// so that the refusal of a limit has something to be tested with.
var holdable = []sdk.Limit{sdk.LimitTimeout, sdk.LimitMemory, sdk.LimitCPUs, sdk.LimitPIDs, sdk.LimitFiles}

type backend struct {
	probe sync.Once
	found *limits.Support

	always config // lies without any block, for tests inside this process

	mu   sync.Mutex
	mine map[string]bool // ids made by this process, for the lies destroy_needs_self and attach_needs_self
}

func (b *backend) Describe() sdk.Description {
	isolation := sdk.IsolationNone
	switch {
	case b.always.lies("claims_vm"):
		isolation = sdk.IsolationVM
	case b.always.lies("claims_namespace"):
		isolation = sdk.IsolationNamespace
	}
	networks := []sdk.NetworkMode{sdk.NetworkNone, sdk.NetworkFull}
	if traffic != nil {
		networks = append(networks, sdk.NetworkFiltered)
	}
	return sdk.Description{
		Name: name, Version: version, Summary: "plain processes, and faults on request; for tests only",
		Isolation:  isolation,
		Config:     config{},
		Limits:     holdable,
		Workspaces: []sdk.WorkspaceMode{sdk.WorkspacePrivate, sdk.WorkspaceShared},
		Networks:   networks,
		Formats:    []sdk.Format{sdk.FormatTar, sdk.FormatFile},
		Sandbox:    (&sandbox{}).offered(),
		TTY:        true,
		Fork:       true,
	}
}

func (b *backend) support() *limits.Support {
	b.probe.Do(func() { b.found = limits.Probe() })
	return b.found
}

// Check looks at what the fake needs: cgroups to hold limits, and a registry.
func (b *backend) Check(ctx context.Context) ([]sdk.Finding, error) {
	group := sdk.Finding{Name: "limits", Status: sdk.SeverityOK, Detail: b.support().String()}
	if err := b.support().Try(ctx); err != nil {
		group.Status, group.Detail = sdk.SeverityWarning, "some limits cannot be held: "+err.Error()
		group.Fix = "run it as root, or where cgroups are delegated to you"
	}
	reg := sdk.Finding{Name: "registry", Status: sdk.SeverityOK, Detail: registry()}
	if err := os.MkdirAll(registry(), 0o700); err != nil {
		reg.Status, reg.Detail, reg.Fix = sdk.SeverityError, err.Error(), "set TMPDIR to a directory that you may write to"
	}
	out := []sdk.Finding{group, reg}
	if b.always.lies("check_no_fix") {
		out = append(out, sdk.Finding{Name: "weather", Status: sdk.SeverityWarning, Detail: "it rains"})
	}
	return out, nil
}

// defaultFiles is the one default that there is.
const defaultFiles = 512

// request is what package limits is asked for. The timeout is the SDK's.
func request(c *config, l sdk.Limits) limits.Request {
	r := limits.Request{Memory: uint64(l.Memory), CPUs: l.CPUs, PIDs: l.PIDs, Files: uint64(l.Files)}
	if c.Defaults && r.Files == 0 && !c.lies("default_unheld") {
		r.Files = defaultFiles
	}
	return r
}

// holds says how the limits asked for would be held, refused ones included.
func (b *backend) holds(c *config, l sdk.Limits) []sdk.Hold {
	var out []sdk.Hold
	add := func(limit sdk.Limit, value string, how limits.How) {
		h := sdk.Hold{Limit: limit, Value: value, HeldBy: how.By, Reason: how.Reason, Fix: how.Fix}
		if h.HeldBy != "" {
			h.HeldBy, h.Reason, h.Fix = h.HeldBy+", per command", "", ""
		} else if c.lies("unheld_limit") && limit != sdk.LimitDisk {
			h.HeldBy, h.Reason, h.Fix = "good will", "", ""
		}
		if slices.Contains(c.Refuse, string(limit)) {
			h.HeldBy, h.Reason, h.Fix = "", "the block says refuse_limits", "take "+string(limit)+" out of refuse_limits"
		}
		out = append(out, h)
	}
	if l.Timeout > 0 {
		add(sdk.LimitTimeout, l.Timeout.String(), limits.How{By: "timer"})
	}
	for _, p := range b.support().Plan(request(&config{}, l)) {
		value := fmt.Sprint(p.Asked)
		if p.Limit == limits.Memory {
			value = sdk.Bytes(p.Asked).String()
		}
		how := p.How
		// what a bomb leaves behind would get away from the tracker
		if p.Limit == limits.PIDs && how.Scope != limits.WholeGroup {
			how = limits.How{Reason: "without a cgroup, orphans cannot be distinguished from others: " + how.Reason,
				Fix: how.Fix}
		}
		add(sdk.Limit(p.Limit), value, how)
	}
	if c.Defaults && (l.Files == 0 || c.lies("default_stays")) {
		if i := slices.IndexFunc(out, func(h sdk.Hold) bool { return h.Limit == sdk.LimitFiles }); i >= 0 {
			out = slices.Delete(out, i, i+1)
		}
		out = append(out, sdk.Hold{Limit: sdk.LimitFiles, Value: fmt.Sprint(defaultFiles), Default: true,
			HeldBy: "rlimit NOFILE, per command"})
	}
	if l.Disk > 0 {
		add(sdk.LimitDisk, sdk.Bytes(l.Disk).String(), limits.How{Reason: "plain processes write where they like",
			Fix: "use another backend"})
	}
	return out
}

// Plan implements [sdk.Planner].
func (b *backend) Plan(_ context.Context, spec *sdk.Spec) (*sdk.Plan, error) {
	c := spec.Config.(*config)
	c.fault("plan")
	p := &sdk.Plan{Holds: b.holds(c, spec.Limits),
		Notes: []string{"nothing is isolated: the code is able to do all that you are able to do"}}
	if c.lies("default_unsaid") {
		p.Holds = slices.DeleteFunc(p.Holds, func(h sdk.Hold) bool { return h.Default })
	}
	if c.lies("plan_differs") {
		for i := range p.Holds {
			if p.Holds[i].HeldBy != "" {
				p.Holds[i].HeldBy += " (promised)"
			}
		}
	}
	if c.lies("plan_holds_less") {
		for i := range p.Holds {
			if h := &p.Holds[i]; h.Limit == sdk.LimitFiles {
				h.HeldBy, h.Reason, h.Fix = "", "it is said so", "do not lie"
			}
		}
	}
	if c.lies("plan_gives_less") && spec.Network == sdk.NetworkFull {
		p.Diagnostics = append(p.Diagnostics, sdk.Diagnostic{Severity: sdk.SeverityError, Summary: "there is no network",
			Fix: "do not lie"})
	}
	return p, nil
}

// state is the handle's data, and all that a fresh process needs.
type state struct {
	Dir       string          `json:"dir"`
	Source    string          `json:"source,omitempty"`
	Shared    bool            `json:"shared,omitempty"`
	Owner     string          `json:"owner,omitempty"`
	Input     bool            `json:"input,omitempty"`
	Isolated  bool            `json:"isolated,omitempty"` // from the network
	Network   sdk.NetworkMode `json:"network,omitempty"`  // that is claimed
	Request   limits.Request  `json:"request"`
	Holds     []sdk.Hold      `json:"holds,omitempty"`
	Config    config          `json:"config"`
	Workspace string          `json:"workspace"`
}

// moveTo notes where the state directory is now.
func (st *state) moveTo(dir string) {
	if dir == "" {
		return
	}
	if st.Workspace == filepath.Join(st.Dir, "workspace") {
		st.Workspace = filepath.Join(dir, "workspace")
	}
	st.Dir = dir
}

// sound refuses a state whose directory could be anybody's: what is below it gets removed, and a relative one would
// be that of the process that started the plugin.
func (st *state) sound() error {
	if filepath.IsAbs(st.Dir) && strings.Count(filepath.Clean(st.Dir), "/") >= 2 {
		return nil
	}
	return sdk.Errorf(sdk.ReasonConfig,
		"%q is no directory for the state of a sandbox: it must be absolute and no top-level one", st.Dir)
}

func handle(id string, st *state) sdk.Handle {
	data, err := json.Marshal(st)
	if err != nil {
		panic(err) // a struct of plain values
	}
	return sdk.Handle{ID: id, Data: data}
}

// Destroy implements [sdk.Backend].
func (b *backend) Destroy(ctx context.Context, h sdk.Handle) error {
	reg, known := lookup(h.ID)
	dir := h.StateDir
	if known {
		h = reg
	}
	if !known && b.always.lies("destroy_unknown") {
		return sdk.Errorf(sdk.ReasonNotFound, "there is no sandbox %s", h.ID)
	}
	var st state
	if h.Data != nil {
		if err := json.Unmarshal(h.Data, &st); err != nil {
			return sdk.Errorf(sdk.ReasonConfig, "the handle of sandbox %s is not one of mine: %w", h.ID, err)
		}
		st.moveTo(dir)
		if err := st.sound(); err != nil {
			return err
		}
	}
	st.Config.fault("destroy")
	if !ours(st.Dir, h.ID) { // never heard of it, removed already, or somebody else's directory
		return errors.Join(killAll(ctx, h.ID, brand(st.Dir, h.ID)), unregister(h.ID))
	}
	b.mu.Lock()
	mine := b.mine[h.ID]
	b.mu.Unlock()
	if !mine && st.Config.lies("destroy_needs_self") {
		return nil
	}
	return b.remove(ctx, h.ID, &st)
}

// brand is a file by which a state directory is known to be the sandbox's: a
// handle comes from a file, and must not be able to have anything else removed.
func brand(dir, id string) string { return filepath.Join(dir, ".fake-"+id) }

func ours(dir, id string) bool {
	if !filepath.IsAbs(dir) || id == "" || id != filepath.Base(id) {
		return false
	}
	_, err := os.Lstat(brand(dir, id))
	return err == nil
}

// remove undoes build. It may be called for what is half made, or gone.
func (b *backend) remove(ctx context.Context, id string, st *state) error {
	if err := killAll(ctx, id, brand(st.Dir, id)); err != nil {
		return err
	}
	for _, d := range []string{"workspace", "nothing", "output", "tmp", "home", "exchange", "input"} {
		if d == "workspace" && st.Config.lies("destroy_keeps") {
			continue
		}
		if err := removeTree(filepath.Join(st.Dir, d)); err != nil {
			return err
		}
	}
	if st.Config.lies("list_gone") {
		return nil
	}
	if err := unregister(id); err != nil {
		return err
	}
	if err := os.Remove(brand(st.Dir, id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Attach implements [sdk.Attacher].
func (b *backend) Attach(ctx context.Context, h sdk.Handle) (sdk.Sandbox, error) {
	reg, ok := lookup(h.ID)
	if !ok && h.Data != nil && b.always.lies("attach_gone") {
		reg, ok = h, true
	}
	b.mu.Lock()
	mine := b.mine[h.ID]
	b.mu.Unlock()
	if !ok || !mine && b.always.lies("attach_needs_self") {
		return nil, sdk.Errorf(sdk.ReasonNotFound, "there is no sandbox %s", h.ID)
	}
	var st state
	if err := json.Unmarshal(reg.Data, &st); err != nil {
		return nil, sdk.Errorf(sdk.ReasonInternal, "the registry entry of sandbox %s is broken: %w", h.ID, err)
	}
	st.moveTo(h.StateDir)
	if err := endOrphans(ctx, h.ID, brand(st.Dir, h.ID)); err != nil {
		return nil, err
	}
	sb := &sandbox{b: b, id: h.ID, st: &st, turn: make(chan struct{}, 1)}
	return sb.offered(), nil
}

// List implements [sdk.Lister].
func (b *backend) List(_ context.Context, owner string) ([]sdk.Handle, error) {
	entries, err := os.ReadDir(registry())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []sdk.Handle
	for _, e := range entries {
		h, ok := lookup(strings.TrimSuffix(e.Name(), ".json"))
		var st state
		if !ok || json.Unmarshal(h.Data, &st) != nil {
			continue
		}
		if owner == "" || st.Owner == owner || st.Config.lies("list_all") {
			out = append(out, h)
		}
	}
	return out, nil
}
