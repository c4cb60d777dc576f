package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/hutch-run/hutch/plugins/kubernetes/internal/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/guestpath"
	"github.com/hutch-run/hutch/sdk/remoteexec"
	"github.com/hutch-run/hutch/sdk/supervise"
)

// sandbox is one sandbox of this process.
type sandbox struct {
	cluster *cluster
	place   place
	pod     string
	uid     string // "" until it is made
	rec     record
	notes   []string

	mu   sync.RWMutex // held shared while the sandbox is used, alone while it is removed or reset
	gone bool

	linking sync.Mutex
	link    *link
}

// Ready implements [sdk.Sandbox].
func (s *sandbox) Ready() sdk.Ready {
	r := s.rec.Ready
	r.Notes = slices.Concat(r.Notes, s.notes)
	return r
}

// make makes the pod, and brings into it what it begins with.
func (s *sandbox) make(ctx context.Context, b *backend, cfg *Config, req *sdk.CreateRequest) error {
	tell := func() error {
		h, err := s.handle()
		if err != nil {
			return err
		}
		return req.Allocated(h)
	}
	if err := tell(); err != nil {
		return err
	}
	network := networkNone
	if req.Network == sdk.NetworkFull {
		network = networkFull
	}
	if err := s.cluster.ensurePolicy(ctx, network); err != nil {
		return err
	}
	var targets func() ([]string, error)
	if network == networkNone {
		targets = b.witness(s.cluster, cfg) // beside the start of the pod
	}
	o := podOptions{name: s.pod, cfg: cfg, limits: req.Limits, network: network, input: req.Input != "", lease: lease,
		rec: &s.rec}
	if req.Keep {
		o.lease = 0
	}
	if err := s.startPod(ctx, o, req, tell); err != nil {
		return err
	}
	l, err := s.connected(ctx)
	if err != nil {
		return err
	}
	if cfg.UserNS && strings.HasPrefix(l.hello.UIDMap, "0 0 ") {
		return sdk.Errorf(sdk.ReasonUnsupported, "the pod %s has no user namespace of its own: its users are the node's",
			s.pod).WithFix("leave user_namespace away, or take nodes with Linux 6.3 and a container runtime that has them")
	}
	// The network is looked at while files are copied; no command runs before both are done.
	closed := make(chan error, 1)
	go func() {
		if targets == nil {
			closed <- nil
		} else {
			closed <- s.probe(ctx, l, targets)
		}
	}()
	req.Progress("copying the workspace into the pod", 0, 0)
	err = errors.Join(s.fillWorkspace(ctx, l), <-closed)
	if err == nil && len(s.notes) > 0 {
		err = tell()
	}
	return err
}

// startPod makes the pod, brings the agent and the input into it, and waits until its container runs.
func (s *sandbox) startPod(ctx context.Context, o podOptions, req *sdk.CreateRequest, made func() error) error {
	agent, err := findAgent()
	if err != nil {
		return err
	}
	pod, err := newPod(o)
	if err != nil {
		return err
	}
	got, err := s.cluster.createPod(ctx, pod)
	if err != nil {
		return err
	}
	s.uid = string(got.UID)
	if err := errors.Join(made(), admitted(pod, got)); err != nil {
		return err
	}
	step := ""
	late := sdk.Errorf(sdk.ReasonUnavailable, "the pod %s did not start within %s", s.pod, o.cfg.StartTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, o.cfg.StartTimeout, late)
	defer cancel()
	running := func(container string) error {
		err := s.cluster.await(ctx, s.pod, s.uid, func(p *core.Pod) (bool, error) {
			if p != nil && ending(p) == "" {
				if runs(p, container) {
					return true, nil
				}
				next, err := waiting(p)
				if next != "" && next != step {
					step = next
					req.Progress(step, 0, 0)
				}
				return false, err
			}
			if p != nil {
				if _, err := waiting(p); err != nil {
					return false, err
				}
			}
			exit, err := verdict(s.pod, p)
			if exit != nil {
				err = sdk.Errorf(sdk.ReasonUnavailable, "the pod %s ended before it had started: %s", s.pod, exit.Evidence)
			}
			return false, err
		})
		if context.Cause(ctx) == error(late) && step != "" {
			late.Detail = step
			return late
		}
		return err
	}
	if err := running(initContainer); err != nil {
		return err
	}
	program := agentInImage
	if o.cfg.AgentImage == "" {
		program = wire.Agent
		if err := s.bringAgent(ctx, agent); err != nil {
			return err
		}
	}
	if o.input {
		req.Progress("copying the input into the pod", 0, 0)
		if err := s.bringInput(ctx, program, req.Input); err != nil {
			return err
		}
	}
	return running(mainContainer)
}

// runs says whether a container of a pod runs, or one that comes after it does.
func runs(p *core.Pod, container string) bool {
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == mainContainer && c.State.Running != nil {
			return true
		}
	}
	for _, c := range p.Status.InitContainerStatuses {
		if c.Name == container && c.State.Running != nil {
			return true
		}
	}
	return false
}

// bringAgent copies our program into the pod, for which its image needs a shell. Only a whole one gets its name.
func (s *sandbox) bringAgent(ctx context.Context, agent string) error {
	f, err := os.Open(agent)
	if err != nil {
		return err
	}
	defer f.Close()
	said := &supervise.Tail{}
	script := fmt.Sprintf("cat >%[1]s.new && chmod 755 %[1]s.new && mv %[1]s.new %[1]s", wire.Agent)
	err = s.cluster.exec(ctx, s.pod, initContainer, []string{"sh", "-c", script}, f, said, said)
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	e := sdk.Errorf(sdk.ReasonUnavailable, "hutch's program cannot be copied into the pod %s: %w", s.pod, err).
		WithFix(needsShell, agentInImage)
	e.Detail = said.String()
	return e
}

// bringInput copies the input into the pod while its container, which sees it read-only, waits for that.
func (s *sandbox) bringInput(ctx context.Context, program, dir string) error {
	l, err := s.cluster.attach(ctx, s.pod, initContainer, program, &s.rec.Box)
	if err != nil {
		return err
	}
	defer l.close()
	if err := s.fill(ctx, l, inputInInit, "input", dir); err != nil {
		return err
	}
	_, err = l.ask(ctx, wire.Request{Op: wire.OpReady}, nil)
	return err
}

// fill copies a directory of the host into one of the pod.
func (s *sandbox) fill(ctx context.Context, l *link, to, part, dir string) error {
	_, err := l.ask(ctx, wire.Request{Op: wire.OpFill, Dir: to}, func(w io.Writer) error {
		note, err := remoteexec.Pack(ctx, dir, part, w)
		if note != "" {
			s.notes = append(s.notes, note)
		}
		return err
	})
	return err
}

// fillWorkspace copies the source into the workspace and remembers what it looked like.
func (s *sandbox) fillWorkspace(ctx context.Context, l *link) error {
	if s.rec.Source == "" {
		return nil
	}
	if err := s.fill(ctx, l, guestpath.Workspace, "workspace", s.rec.Source); err != nil {
		return err
	}
	_, err := l.ask(ctx, wire.Request{Op: wire.OpSnapshot}, nil)
	return err
}

// connected returns a connection to the agent. One that broke is made again: its commands are over.
func (s *sandbox) connected(ctx context.Context) (*link, error) {
	s.linking.Lock()
	defer s.linking.Unlock()
	if s.link != nil && s.link.client.Alive() {
		return s.link, nil
	}
	l, err := s.cluster.attach(ctx, s.pod, mainContainer, wire.Agent, &s.rec.Box)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		exit, why := verdict(s.pod, s.look(ctx, 2*time.Second))
		switch {
		case exit != nil:
			return nil, sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone: %s", s.rec.ID, exit.Evidence)
		case why != nil:
			return nil, why
		}
		return nil, err
	}
	s.link = l
	return l, nil
}

// use keeps the sandbox as it is until release is called, and gives a connection to its pod.
func (s *sandbox) use(ctx context.Context) (l *link, release func(), err error) {
	s.mu.RLock()
	if s.gone {
		err = sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone", s.rec.ID)
	} else {
		l, err = s.connected(ctx)
	}
	if err != nil {
		s.mu.RUnlock()
		return nil, nil, err
	}
	return l, s.mu.RUnlock, nil
}

// close ends everything and removes it. It may be called twice.
func (s *sandbox) close(ctx context.Context) error {
	if err := s.cluster.deletePod(ctx, s.pod, s.uid); err != nil {
		return err
	}
	if err := s.cluster.awaitGone(ctx, s.pod, s.uid); err != nil {
		return err
	}
	s.mu.Lock() // the commands have reported their ends
	defer s.mu.Unlock()
	s.gone = true
	if s.link != nil {
		s.link.close()
	}
	return nil
}

// Inspect implements [sdk.Inspector].
func (s *sandbox) Inspect(ctx context.Context) (sdk.Status, error) {
	pod, err := s.cluster.getPod(ctx, s.pod)
	if err != nil {
		return sdk.Status{}, err
	}
	if pod == nil || string(pod.UID) != s.uid || ending(pod) != "" {
		return sdk.Status{State: sdk.StateGone}, nil
	}
	return sdk.Status{State: sdk.StateReady, Details: map[string]string{"pod": pod.Name, "namespace": pod.Namespace,
		"node": pod.Spec.NodeName, "image": pod.Spec.Containers[0].Image}}, nil
}

// Reset implements [sdk.Resetter].
func (s *sandbox) Reset(ctx context.Context, hard bool) error {
	l, release, err := s.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	if _, err := l.ask(ctx, wire.Request{Op: wire.OpReset, Hard: hard}, nil); err != nil || !hard {
		return err
	}
	return s.fillWorkspace(ctx, l)
}

// Changes implements [sdk.ChangeLister].
func (s *sandbox) Changes(ctx context.Context) ([]sdk.Change, error) {
	l, release, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	reply, err := l.ask(ctx, wire.Request{Op: wire.OpChanges}, nil)
	if err != nil {
		return nil, err
	}
	out := remoteexec.ChangesOf(reply)
	slices.SortStableFunc(out, func(a, b sdk.Change) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}
