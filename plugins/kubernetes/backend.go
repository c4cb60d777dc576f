package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/hutch-run/hutch/plugins/kubernetes/internal/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/guestpath"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/registry"
)

// backend implements [sdk.Backend].
type backend struct {
	sandboxes registry.Registry[*sandbox]

	mu        sync.Mutex
	clusters  map[place]*cluster // by the place of a block
	witnesses map[string]func() ([]string, error)
}

func newBackend() *backend {
	return &backend{clusters: map[place]*cluster{}, witnesses: map[string]func() ([]string, error){}}
}

// Describe implements [sdk.Backend].
func (b *backend) Describe() sdk.Description {
	return sdk.Description{
		Name:       "kubernetes",
		Version:    version,
		Summary:    "pods of a Kubernetes cluster, of the Pod Security Standard restricted",
		Isolation:  sdk.IsolationContainer,
		Config:     Config{},
		Limits:     []sdk.Limit{sdk.LimitTimeout, sdk.LimitMemory, sdk.LimitCPUs, sdk.LimitFiles},
		Workspaces: []sdk.WorkspaceMode{sdk.WorkspacePrivate},
		Networks:   []sdk.NetworkMode{sdk.NetworkNone, sdk.NetworkFull},
		Formats:    []sdk.Format{sdk.FormatTar, sdk.FormatFile},
		Sandbox:    (*sandbox)(nil),
		TTY:        true,

		Environment: []string{"KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", imageVariable},
	}
}

// cluster returns the cluster of a place, opened once.
func (b *backend) cluster(p place) (*cluster, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.clusters[p]; c != nil {
		return c, nil
	}
	c, err := openCluster(p)
	if err != nil {
		return nil, err
	}
	if same := b.clusters[c.place]; same != nil {
		c = same
	}
	b.clusters[p], b.clusters[c.place] = c, c
	return c, nil
}

func placeOf(c *Config) place { return place{c.Kubeconfig, c.Context, c.Namespace} }

// minMemory is what the agent needs beside a command.
const minMemory = 48 << 20

// planLimits says how each limit is held. It is the same on every cluster: one that cannot hold a pod's limits has no
// kubelet.
func planLimits(l sdk.Limits, cfg *Config) (h sdk.Holds) {
	if l.Timeout > 0 {
		h.Hold(sdk.LimitTimeout, l.Timeout.String(), "SIGTERM, grace, then SIGKILL to the command's processes in the pod")
	}
	if l.Memory > 0 {
		const by = "the memory limit of the pod's container, a cgroup of its node"
		if value := sdk.Bytes(l.Memory).String(); l.Memory < minMemory {
			h.Refuse(sdk.LimitMemory, value, "hutch's program in the pod needs memory too",
				"ask for at least "+sdk.Bytes(minMemory).String())
		} else {
			h.Hold(sdk.LimitMemory, value, by)
		}
	}
	if l.CPUs > 0 {
		value := strconv.FormatFloat(l.CPUs, 'g', -1, 64)
		if milliCPUs(l.CPUs) < 10 {
			h.Refuse(sdk.LimitCPUs, value, "ten thousandths of a processor are the least that a pod can have",
				"ask for 0.01 or more")
		} else {
			h.Hold(sdk.LimitCPUs, value, "the cpu limit of the pod's container, a cgroup of its node")
		}
	}
	if l.PIDs > 0 {
		h.Refuse(sdk.LimitPIDs, strconv.FormatInt(l.PIDs, 10), "no field of a pod sets it",
			"leave the limit away, and have the kubelet's podPidsLimit bound every pod")
	}
	if l.Disk > 0 {
		h.Refuse(sdk.LimitDisk, sdk.Bytes(l.Disk).String(), "the kubelet measures what a pod writes about once a minute",
			"leave the limit away, and set storage in the backend's block: a pod beyond it is evicted")
	} else {
		h.Default(sdk.LimitDisk, cfg.Storage.String(), "the kubelet evicts the pod, up to a minute or so later")
	}
	if l.Files > 0 && l.Files < limits.MinFiles {
		h.Refuse(sdk.LimitFiles, strconv.FormatInt(l.Files, 10), "no program can be loaded with so few descriptors",
			fmt.Sprintf("ask for at least %d", limits.MinFiles))
	} else if l.Files > 0 {
		h.Hold(sdk.LimitFiles, strconv.FormatInt(l.Files, 10), "rlimit RLIMIT_NOFILE in the pod")
	}
	return h
}

// Plan implements [sdk.Planner].
func (b *backend) Plan(_ context.Context, spec *sdk.Spec) (*sdk.Plan, error) {
	cfg := configOf(spec)
	p := &sdk.Plan{Holds: planLimits(spec.Limits, cfg), Notes: notes(spec)}
	_, err := b.cluster(placeOf(cfg))
	_, missing := findAgent()
	for _, err := range []error{err, missing, unsupported(spec)} {
		if err != nil {
			p.Diagnostics = append(p.Diagnostics, sdk.DiagnosticOf(err))
		}
	}
	return p, nil
}

// notes say what a user may not expect.
func notes(spec *sdk.Spec) []string {
	if spec.Network != sdk.NetworkFull {
		return nil
	}
	return []string{"network is full: where the cluster enforces NetworkPolicy, commands reach public addresses and " +
		"name servers; where it does not, all that its pods reach"}
}

// unsupported refuses what no pod of this backend can do.
func unsupported(spec *sdk.Spec) error {
	switch spec.Workspace.Mode {
	case "", sdk.WorkspacePrivate:
	default:
		return sdk.Errorf(sdk.ReasonUnsupported, "a workspace in a pod is a copy of its own, so its mode cannot be %q",
			spec.Workspace.Mode).WithFix("take the mode private, and hutch diff and hutch apply")
	}
	switch spec.Network {
	case "", sdk.NetworkNone, sdk.NetworkFull:
	default:
		return sdk.Errorf(sdk.ReasonUnsupported, "there is no network %q in a pod: this backend cannot allow names",
			spec.Network).WithFix("take mode none or full, or the backend bwrap or podman")
	}
	if len(spec.Mounts) > 0 {
		return sdk.Errorf(sdk.ReasonUnsupported, "a pod sees no directory of this machine, so nothing can be mounted at %s",
			spec.Mounts[0].Target).WithFix("leave dependencies out of the run, and take an image that has them")
	}
	return nil
}

// Create implements [sdk.Backend].
func (b *backend) Create(ctx context.Context, req *sdk.CreateRequest) (sdk.Sandbox, error) {
	return b.sandboxes.Once(ctx, req.ID, func() (*sandbox, error) {
		if err := unsupported(&req.Spec); err != nil {
			return nil, err
		}
		cfg := configOf(&req.Spec)
		holds := planLimits(req.Limits, cfg)
		if err := holds.Err(); err != nil {
			return nil, err
		}
		for what, dir := range map[string]string{"workspace": req.Workspace.Source, "input": req.Input} {
			if err := sdk.NeedDirectory(what, dir); err != nil {
				return nil, err
			}
		}
		c, err := b.cluster(placeOf(cfg))
		if err != nil {
			return nil, err
		}
		if err := c.remember(); err != nil { // the host has the handle all the same
			sdk.Log(ctx).Warn("hutch gc will not look into this cluster by itself: " + err.Error())
		}
		project := req.Workspace.Source != ""
		rec := record{ID: req.ID, Owner: req.Owner, StateDir: req.StateDir, Source: req.Workspace.Source,
			Box: wire.Box{Output: guestpath.Output(project), Files: uint64(req.Limits.Files)},
			Ready: sdk.Ready{Workspace: guestpath.Workspace, Output: guestpath.Output(project), Holds: holds,
				Notes: notes(&req.Spec)}}
		if req.Input != "" {
			rec.Ready.Input = guestpath.Input(project)
		}
		s := &sandbox{cluster: c, place: c.place, pod: podName(req.ID), rec: rec}
		if err := s.make(ctx, b, cfg, req); err != nil {
			after, cancel := context.WithTimeout(context.WithoutCancel(ctx), goneTime)
			defer cancel()
			return nil, errors.Join(err, s.close(after))
		}
		return s, nil
	})
}

// handle is what a fresh process needs to find a sandbox. The rest is in the pod's annotation.
type handle struct {
	place
	Pod   string   `json:"pod"`
	UID   string   `json:"uid,omitempty"`
	Notes []string `json:"notes,omitempty"` // of Ready, that were learnt after the pod was made
}

func (s *sandbox) handle() (sdk.Handle, error) {
	data, err := json.Marshal(handle{s.place, s.pod, s.uid, s.notes})
	return sdk.Handle{ID: s.rec.ID, Data: data}, err
}

func readHandle(h sdk.Handle) (old handle, err error) {
	if len(h.Data) == 0 {
		return old, sdk.Errorf(sdk.ReasonNotFound, "there is no sandbox %s", h.ID)
	}
	if err := json.Unmarshal(h.Data, &old); err != nil || old.Pod != podName(h.ID) {
		return old, sdk.Errorf(sdk.ReasonConfig, "the handle of %s is not one of kubernetes'", h.ID)
	}
	return old, nil
}

// Attach implements [sdk.Attacher].
func (b *backend) Attach(ctx context.Context, h sdk.Handle) (sdk.Sandbox, error) {
	old, err := readHandle(h)
	if err != nil {
		return nil, err
	}
	return b.sandboxes.Once(ctx, h.ID, func() (*sandbox, error) {
		c, err := b.cluster(old.place)
		if err != nil {
			return nil, err
		}
		pod, err := c.getPod(ctx, old.Pod)
		if err != nil {
			return nil, err
		}
		if pod == nil || old.UID != "" && string(pod.UID) != old.UID {
			return nil, sdk.Errorf(sdk.ReasonNotFound, "the pod %s is gone, and the sandbox %s with it", old.Pod, h.ID)
		}
		s := &sandbox{cluster: c, place: old.place, pod: old.Pod, uid: string(pod.UID), notes: old.Notes}
		if err := json.Unmarshal([]byte(pod.Annotations[recordNote]), &s.rec); err != nil || s.rec.ID != h.ID {
			return nil, sdk.Errorf(sdk.ReasonNotFound, "the pod %s is not the sandbox %s", old.Pod, h.ID)
		}
		spec := &sdk.Spec{Workspace: sdk.Workspace{Source: s.rec.Source}}
		spec.Relocate(s.rec.StateDir, h.StateDir)
		s.rec.Source = spec.Workspace.Source
		if why := ending(pod); why != "" {
			exit, err := verdict(old.Pod, pod)
			if exit != nil {
				err = sdk.Errorf(sdk.ReasonUnavailable, "the pod %s ended: %s", old.Pod, exit.Evidence).
					WithFix("hutch rm %s", h.ID)
			}
			return nil, err
		}
		return s, nil
	})
}

// Destroy implements [sdk.Backend].
func (b *backend) Destroy(ctx context.Context, h sdk.Handle) error {
	here, err := b.sandboxes.End(ctx, h.ID, func(s *sandbox) error { return s.close(ctx) })
	if here || err != nil || len(h.Data) == 0 {
		return err
	}
	old, err := readHandle(h)
	if err != nil {
		return err
	}
	c, err := b.cluster(old.place)
	if err != nil {
		return err
	}
	return (&sandbox{cluster: c, pod: old.Pod, uid: old.UID}).close(ctx)
}

// List implements [sdk.Lister]. It asks the clusters in which this user has made sandboxes, and no other that a
// kubeconfig may lead to.
func (b *backend) List(ctx context.Context, owner string) ([]sdk.Handle, error) {
	places, err := rememberedPlaces()
	if err != nil {
		return nil, err
	}
	selector := labelSandbox + "=true"
	if owner != "" {
		selector += "," + labelOwner + "=" + hashed(owner)
	}
	var out []sdk.Handle
	seen := map[string]bool{}
	for _, p := range places {
		c, err := b.cluster(p)
		if err != nil {
			continue // its kubeconfig or context is gone
		}
		pods, err := c.listPods(ctx, selector)
		if err != nil {
			return nil, err
		}
		for i := range pods {
			s := &sandbox{place: p, pod: pods[i].Name, uid: string(pods[i].UID)}
			if seen[s.uid] || json.Unmarshal([]byte(pods[i].Annotations[recordNote]), &s.rec) != nil ||
				s.pod != podName(s.rec.ID) || pods[i].DeletionTimestamp != nil {
				continue
			}
			seen[s.uid] = true
			h, err := s.handle()
			if err != nil {
				return nil, err
			}
			out = append(out, h)
		}
	}
	return out, nil
}

// goneTime bounds the wait for a pod that was deleted.
const goneTime = time.Minute

// awaitGone waits until nothing of a pod is left.
func (c *cluster) awaitGone(ctx context.Context, pod, uid string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, goneTime, sdk.Errorf(sdk.ReasonUnavailable,
		"the pod %s was deleted, and its node does not say that it has ended", pod).
		WithFix("see how the node is: kubectl describe pod %s", pod))
	defer cancel()
	return c.await(ctx, pod, uid, func(p *core.Pod) (bool, error) { return p == nil, nil })
}
