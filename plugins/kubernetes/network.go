package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hutch-run/hutch/plugins/kubernetes/internal/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/atomicfile"
)

// A cluster takes every NetworkPolicy, and many enforce none: that needs an engine. So a sandbox without a network is
// probed from inside before its first command. A probe that fails to connect proves nothing of an address that no pod
// reaches, so there is a witness: once an hour, a pod that hutch lets reach all says which addresses answer.

// ensurePolicy makes the policy of a network where it is missing, and refuses one that is not as hutch makes it.
func (c *cluster) ensurePolicy(ctx context.Context, network string) error {
	ctx, cancel := context.WithTimeout(ctx, apiTime)
	defer cancel()
	want, got := newPolicy(network), &networking.NetworkPolicy{}
	get := func() error {
		return c.policies.Get().Namespace(c.Namespace).Resource("networkpolicies").Name(want.Name).Do(ctx).Into(got)
	}
	err := get()
	if apierrors.IsNotFound(err) {
		err = c.policies.Post().Namespace(c.Namespace).Resource("networkpolicies").Body(want).Do(ctx).Into(got)
		if apierrors.IsAlreadyExists(err) {
			err = get()
		}
	}
	if err != nil {
		return c.explain("make the NetworkPolicy "+want.Name, err)
	}
	if !equality.Semantic.DeepEqual(want.Spec, got.Spec) {
		return sdk.Errorf(sdk.ReasonDenied, "the NetworkPolicy %s of the namespace %s is not as hutch makes it", want.Name,
			c.Namespace).
			WithFix("have it deleted; hutch makes it again: kubectl -n %s delete networkpolicy %s", c.Namespace, want.Name)
	}
	return nil
}

// witnessTime is how long the word of a witness counts.
const witnessTime = time.Hour

// witness returns a function that waits for the addresses which pods without a policy reach. Looking for them begins at
// once.
func (b *backend) witness(c *cluster, cfg *Config) func() ([]string, error) {
	key := c.cfg.Host + "/" + c.Namespace
	b.mu.Lock()
	defer b.mu.Unlock()
	if f := b.witnesses[key]; f != nil {
		return f
	}
	f := sync.OnceValues(func() ([]string, error) {
		targets, err := b.hear(c, cfg)
		if err != nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			delete(b.witnesses, key) // the next sandbox tries again
		}
		return targets, err
	})
	b.witnesses[key] = f
	go func() { _, _ = f() }() // who asks for it gets the error
	return f
}

// hear asks a witness, or remembers what one said.
func (b *backend) hear(c *cluster, cfg *Config) ([]string, error) {
	file := witnessFile(c)
	if st, err := os.Stat(file); err == nil && time.Since(st.ModTime()) < witnessTime {
		var old []string
		if data, err := os.ReadFile(file); err == nil && json.Unmarshal(data, &old) == nil && len(old) > 0 {
			return old, nil
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), cfg.StartTimeout+attachTime)
	defer cancel()
	targets, err := c.askWitness(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if data, err := json.Marshal(targets); err == nil && file != "" && os.MkdirAll(filepath.Dir(file), 0o700) == nil {
		_ = atomicfile.Write(file, data, 0o600, false) // without it the next process asks again
	}
	return targets, nil
}

// witnessFile is where the word of a cluster's witness is kept; "" for nowhere.
func witnessFile(c *cluster) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "hutch", "kubernetes", hashed(c.cfg.Host+"/"+c.Namespace)+".json")
}

// askWitness makes a pod that reaches all, and asks it.
func (c *cluster) askWitness(ctx context.Context, cfg *Config) (targets []string, err error) {
	if err := c.ensurePolicy(ctx, networkWitness); err != nil {
		return nil, err
	}
	old, err := c.listPods(ctx, labelNetwork+"="+networkWitness)
	if err != nil {
		return nil, err
	}
	for i := range old { // of processes that were killed
		if ending(&old[i]) != "" {
			if err := c.deletePod(ctx, old[i].Name, string(old[i].UID)); err != nil {
				return nil, err
			}
		}
	}
	s := &sandbox{cluster: c, pod: newWitnessName()}
	defer func() {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), goneTime)
		defer cancel()
		err = errors.Join(err, c.deletePod(after, s.pod, s.uid))
	}()
	err = s.startPod(ctx, podOptions{name: s.pod, cfg: brief(cfg), network: networkWitness, lease: lease}, quiet, nobody)
	if err != nil {
		return nil, err
	}
	l, err := s.connected(ctx)
	if err != nil {
		return nil, err
	}
	defer l.close()
	reply, err := l.ask(ctx, wire.Request{Op: wire.OpProbe, Targets: []string{c.address(), ""}}, nil)
	if err != nil {
		return nil, err
	}
	if targets = strings.Fields(reply.State); len(targets) == 0 {
		return nil, sdk.Errorf(sdk.ReasonUnsupported, "that the network %q is closed cannot be shown: no pod of the "+
			"namespace %s reaches the API server, at %s or by its service, so a probe of it proves nothing", networkNone,
			c.Namespace, c.address()).WithFix("see whether another policy keeps pods with the label %s=%s from it, or take network mode full",
			labelNetwork, networkWitness)
	}
	return targets, nil
}

// brief is a block for a pod that is soon done with. Should nobody be left to delete it, the next witness does.
func brief(cfg *Config) *Config {
	c := *cfg
	c.Lifetime = min(cfg.Lifetime, cfg.StartTimeout+attachTime)
	return &c
}

// newWitnessName is the name of a pod that is no sandbox.
func newWitnessName() string { return podName("witness-" + strings.ToLower(rand.Text())) }

// quiet asks for nothing and hears nothing.
var quiet = &sdk.CreateRequest{Progress: func(string, int64, int64) {}}

// nobody keeps the handle of a pod that is no sandbox: it ends by itself.
func nobody() error { return nil }

// enforceTime bounds how long an engine may take to close the network of a new pod.
const enforceTime = 10 * time.Second

// probe waits until nothing that the witness reached is reached from the sandbox, and fails when that does not come.
func (s *sandbox) probe(ctx context.Context, l *link, witness func() ([]string, error)) error {
	targets, err := witness()
	if err != nil {
		return err
	}
	for end := time.Now().Add(enforceTime); ; {
		reply, err := l.ask(ctx, wire.Request{Op: wire.OpProbe, Targets: targets}, nil)
		if err != nil || reply.State == "" {
			return err
		}
		if time.Now().After(end) {
			return sdk.Errorf(sdk.ReasonUnsupported, "the cluster does not enforce NetworkPolicy: %s after its start the "+
				"pod %s still reached %s", enforceTime, s.pod, reply.State).
				WithFix("install a network that enforces it, such as Calico or Cilium, or take network mode full")
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}
