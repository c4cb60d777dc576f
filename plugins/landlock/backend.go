package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/confined"
	"github.com/hutch-run/hutch/sdk/gitguard"
	"github.com/hutch-run/hutch/sdk/inside"
)

// backend implements [sdk.Backend]. A sandbox is a directory, and processes that end with the plugin.
type backend struct {
	sandboxes sync.Map // id -> *sandbox
}

// Describe implements [sdk.Backend].
func (*backend) Describe() sdk.Description {
	return sdk.Description{
		Name:      "landlock",
		Version:   version,
		Summary:   "Landlock and a system call filter: works in unprivileged containers, isolates less than namespaces",
		Isolation: sdk.IsolationProcess,
		Config:    Config{},
		Limits: []sdk.Limit{sdk.LimitTimeout, sdk.LimitMemory, sdk.LimitCPUs, sdk.LimitPIDs, sdk.LimitDisk,
			sdk.LimitFiles},
		Workspaces: []sdk.WorkspaceMode{sdk.WorkspacePrivate, sdk.WorkspaceShared, sdk.WorkspaceReadOnly},
		Networks:   []sdk.NetworkMode{sdk.NetworkNone, sdk.NetworkFull},
		Formats:    []sdk.Format{sdk.FormatTar, sdk.FormatFile},
		Sandbox:    (*sandbox)(nil),
		TTY:        true,
	}
}

// supported says why this kernel cannot confine commands; nil when it can.
func supported() error { return enough(confined.Landlock()) }

func enough(abi int) error {
	switch {
	case abi >= confined.MinLandlock:
		return nil
	case abi > 0:
		return sdk.Errorf(sdk.ReasonMissing,
			"this kernel has version %d of Landlock's interface: commands could signal every process of this user", abi).
			WithFix("use Linux 6.12 or newer, which has version %d", confined.MinLandlock)
	case confined.Here():
		return sdk.Errorf(sdk.ReasonMissing, "this kernel, or the filter of this container, offers no Landlock").
			WithFix("use Linux 6.12 or newer with landlock in its lsm= list, and a container engine whose filter lets " +
				"Landlock through: Docker 20.10 or Podman 4 or newer")
	}
	return sdk.Errorf(sdk.ReasonMissing, "this kernel offers no Landlock").
		WithFix("use Linux 6.12 or newer with landlock in its lsm= list (cat /sys/kernel/security/lsm)")
}

// Plan implements [sdk.Planner].
func (*backend) Plan(_ context.Context, spec *sdk.Spec) (*sdk.Plan, error) {
	held := planLimits(spec, "/")
	p := &sdk.Plan{Holds: held.Holds, Notes: append(held.Notes(), notes(spec)...)}
	p.Notes = append(p.Notes,
		"landlock has no namespaces: commands see real paths, which HUTCH_WORKSPACE, HUTCH_INPUT, HUTCH_OUTPUT and TMPDIR "+
			"name; "+
			"they have no /proc, no /dev/shm and no sockets but pairs, and run as your user")
	if err := errors.Join(supported(), unmountable(spec), unguarded(spec, false)); err != nil {
		p.Diagnostics = append(p.Diagnostics, sdk.DiagnosticOf(err))
	}
	return p, nil
}

// unmountable refuses mounts: a path is what it is without a mount namespace.
func unmountable(spec *sdk.Spec) error {
	if len(spec.Mounts) == 0 {
		return nil
	}
	return sdk.Errorf(sdk.ReasonUnsupported, "landlock cannot show a directory at another path: %s",
		spec.Mounts[0].Target).
		WithFix("use another backend, such as bwrap or podman, or name the directory in ro_paths")
}

// unguarded refuses a shared workspace whose git repositories commands could change. A look that is not thorough sees
// the one at the top only, for a plan.
func unguarded(spec *sdk.Spec, thorough bool) error {
	ws := spec.Workspace
	if ws.Mode != sdk.WorkspaceShared || ws.Source == "" || configOf(spec).Git == gitguard.Writable {
		return nil
	}
	found := []string{".git"}
	if thorough {
		var err error
		if found, err = gitguard.Repositories(ws.Source); err != nil {
			return sdk.Errorf(sdk.ReasonConfig, "look for git repositories: %w", err)
		}
	}
	i := slices.IndexFunc(found, func(rel string) bool { return isRepository(filepath.Join(ws.Source, rel)) })
	if i < 0 {
		return nil
	}
	return sdk.Errorf(sdk.ReasonUnsupported, "landlock cannot protect the git repository %s in a shared workspace",
		filepath.Join(ws.Source, found[i])).
		WithFix("use workspace mode private and hutch apply, another backend, or git = \"writable\" in the backend's " +
			"block if commands may change it")
}

// isRepository reports whether git takes p for a repository, or for a file or link that leads to one. A directory
// without HEAD is not one yet, and what a command makes of it is new.
func isRepository(p string) bool {
	st, err := os.Lstat(p)
	if err != nil || !st.IsDir() {
		return err == nil
	}
	_, err = os.Lstat(filepath.Join(p, "HEAD"))
	return err == nil
}

// notes say what a user may not expect.
func notes(spec *sdk.Spec) []string {
	if spec.Network == sdk.NetworkFull {
		return []string{"the network is this machine's own, with its loopback and private addresses"}
	}
	return nil
}

// handle is what a fresh process needs to remove a sandbox.
type handle struct {
	Dir string `json:"dir"`
}

// layerName is the directory of a sandbox below its state directory.
const layerName = "layer"

// Create implements [sdk.Backend].
func (b *backend) Create(ctx context.Context, req *sdk.CreateRequest) (sdk.Sandbox, error) {
	if req.Keep {
		return nil,
			sdk.Errorf(sdk.ReasonUnsupported,
				"landlock has no persistent sandboxes").WithFix("use another backend, such as bwrap or podman")
	}
	held := planLimits(&req.Spec, req.StateDir)
	if err := errors.Join(supported(), held.Err(), known(req), unmountable(&req.Spec),
		unguarded(&req.Spec, true)); err != nil {
		return nil, err
	}
	data, err := json.Marshal(handle{req.StateDir})
	if err != nil {
		return nil, err
	}
	if err := req.Allocated(sdk.Handle{ID: req.ID, Data: data}); err != nil {
		return nil, err
	}
	s, err := newSandbox(ctx, req, held)
	if err != nil {
		return nil, errors.Join(err, removeLayer(req.StateDir))
	}
	b.sandboxes.Store(req.ID, s)
	return s, nil
}

// known refuses what the backend does not know, and directories that are missing.
func known(req *sdk.CreateRequest) error {
	switch req.Network {
	case "", sdk.NetworkNone, sdk.NetworkFull:
	default:
		return sdk.Errorf(sdk.ReasonUnsupported, "landlock has no network of mode %q", req.Network)
	}
	for what, dir := range map[string]string{"workspace": req.Workspace.Source, "input": req.Input} {
		if err := sdk.NeedDirectory(what, dir); err != nil {
			return err
		}
	}
	return nil
}

// Destroy implements [sdk.Backend]. Commands have ended by then: those of this process, which the SDK has ended, and
// those of another one with it.
func (b *backend) Destroy(_ context.Context, h sdk.Handle) error {
	if s, ok := b.sandboxes.LoadAndDelete(h.ID); ok {
		s.(*sandbox).close()
	}
	dir, err := dirOf(h)
	if err != nil || dir == "" {
		return err
	}
	return removeLayer(dir)
}

// dirOf is the state directory of a sandbox, "" where a handle does not say.
func dirOf(h sdk.Handle) (string, error) {
	if h.StateDir != "" || len(h.Data) == 0 {
		return h.StateDir, nil
	}
	var old handle
	if err := json.Unmarshal(h.Data, &old); err != nil || !filepath.IsAbs(old.Dir) {
		return "", sdk.Errorf(sdk.ReasonConfig, "the handle of %s is not one of landlock's", h.ID)
	}
	return filepath.Clean(old.Dir), nil
}

// removeLayer removes what a sandbox made below its state directory, also what its commands closed to their user.
func removeLayer(dir string) error {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return inside.RemoveAll(root, layerName)
}
