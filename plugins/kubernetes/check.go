package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	apiversion "k8s.io/apimachinery/pkg/version"

	"github.com/hutch-run/hutch/sdk"
)

// rights are what this backend needs in its namespace: API group, resource, subresource, and verbs.
var rights = []struct{ group, resource, sub, verbs string }{
	{"", "pods", "", "create get list watch delete"},
	{"", "pods", "exec", "create get"},
	{"networking.k8s.io", "networkpolicies", "", "create get"},
}

// Check implements [sdk.Backend]. It looks at the user's own context and namespace. It makes pods there only for a user
// who has named their image: the context may be that of any cluster. What cannot work because of an earlier finding is
// not tried.
func (b *backend) Check(ctx context.Context) ([]sdk.Finding, error) {
	c, err := b.cluster(place{})
	if err != nil {
		return []sdk.Finding{sdk.Failed("kubeconfig", err)}, nil
	}
	out := []sdk.Finding{{Name: "kubeconfig", Status: sdk.SeverityOK,
		Detail: fmt.Sprintf("the API server %s, the namespace %s", c.cfg.Host, c.Namespace)}}
	if _, err := findAgent(); err != nil {
		return append(out, sdk.Failed("agent", err)), nil
	}
	v, err := c.version(ctx)
	if err != nil {
		return append(out, sdk.Failed("API server", err)), nil
	}
	out = append(out, sdk.Finding{Name: "API server", Status: sdk.SeverityOK, Detail: "Kubernetes " + v})
	if err := c.checkRights(ctx); err != nil {
		return append(out, sdk.Failed("rights", err)), nil
	}
	out = append(out, sdk.Finding{Name: "rights", Status: sdk.SeverityOK, Detail: "all that sandboxes need"})
	if os.Getenv(imageVariable) == "" {
		return append(out, sdk.Finding{Name: "pods", Status: sdk.SeverityWarning,
			Detail: "not tried: this makes two pods for a moment", Fix: "set " + imageVariable + " to the image for them"}), nil
	}
	return append(out, checkPods(ctx, c)...), nil
}

func (c *cluster) version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	data, err := c.pods.Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return "", c.explain("ask for the version", err)
	}
	var info apiversion.Info
	err = json.Unmarshal(data, &info)
	return strings.TrimPrefix(info.GitVersion, "v"), err
}

func (c *cluster) checkRights(ctx context.Context) error {
	var missing []string
	for _, r := range rights {
		for verb := range strings.FieldsSeq(r.verbs) {
			ok, err := c.may(ctx, r.group, r.resource, r.sub, verb)
			if err != nil {
				return err
			}
			if !ok {
				missing = append(missing, strings.Trim(verb+" "+r.resource+"/"+r.sub, "/"))
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return sdk.Errorf(sdk.ReasonDenied, "in the namespace %s this account may not: %s", c.Namespace,
		strings.Join(missing, ", ")).WithFix("have an administrator apply: hutch-backend-kubernetes manifests")
}

// checkPods makes a pod as a sandbox would be, and looks whether its network is closed.
func checkPods(ctx context.Context, c *cluster) (out []sdk.Finding) {
	cfg := sdk.ConfigOf[Config](&sdk.Spec{})
	targets, err := c.askWitness(ctx, cfg)
	if err != nil {
		return append(out, sdk.Failed("pods", err))
	}
	out = append(out, sdk.Finding{Name: "pods", Status: sdk.SeverityOK,
		Detail: "one of the image " + cfg.image() + " was made, started, and took commands"})
	err = c.ensurePolicy(ctx, networkNone)
	if err == nil {
		err = c.probeOne(ctx, cfg, targets)
	}
	if err != nil {
		f := sdk.Failed("network policy", err)
		f.Status = sdk.SeverityWarning // with mode full the backend works
		return append(out, f)
	}
	return append(out, sdk.Finding{Name: "network policy", Status: sdk.SeverityOK,
		Detail: "enforced: a closed pod does not reach " + strings.Join(targets, " or ")})
}

// probeOne makes a pod without a network and probes it.
func (c *cluster) probeOne(ctx context.Context, cfg *Config, targets []string) (err error) {
	s := &sandbox{cluster: c, pod: newWitnessName()}
	defer func() { err = errors.Join(err, c.deletePod(context.WithoutCancel(ctx), s.pod, s.uid)) }()
	err = s.startPod(ctx, podOptions{name: s.pod, cfg: brief(cfg), network: networkNone, lease: lease}, quiet, nobody)
	if err != nil {
		return err
	}
	l, err := s.connected(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	return s.probe(ctx, l, func() ([]string, error) { return targets, nil })
}
