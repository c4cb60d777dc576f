package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-run/hutch/sdk"
)

// Config is the backend "kubernetes" block of a run file.
type Config struct {
	Image        string            `hutch:"image" doc:"Image that commands see as their root, as the nodes pull it. By default the one that KUBERNETES_IMAGE names in the environment of hutch, else docker.io/library/python:3-slim."`
	Pull         string            `hutch:"pull" default:"missing" doc:"When a node asks the registry for the image: missing (only if it is not on the node), always, or never."`
	PullSecrets  []string          `hutch:"pull_secrets" doc:"Names of the namespace's secrets with which nodes pull images."`
	Kubeconfig   string            `hutch:"kubeconfig" doc:"Absolute path of the kubeconfig. By default those of KUBECONFIG, else ~/.kube/config, else in a pod its service account."`
	Context      string            `hutch:"context" doc:"Context of the kubeconfig, by default its current one."`
	Namespace    string            `hutch:"namespace" doc:"Namespace of the pods, by default that of the context."`
	AgentImage   string            `hutch:"agent_image" doc:"Image that has hutch's own program at /hutch-kubernetes-agent, for an image without a shell. By default that program is copied into the pod, for which the image needs sh, cat, chmod, mv and sleep."`
	User         int               `hutch:"user" default:"1000" doc:"Numeric user and group of commands, 1 to 65534. It need not be known to the image."`
	UserNS       bool              `hutch:"user_namespace" default:"false" doc:"Whether the pod has a user namespace of its own (hostUsers: false), so that its user is not a user of the node. The node must have Linux 6.3 or newer and a runtime that can."`
	NodeSelector map[string]string `hutch:"node_selector" doc:"Labels of the nodes that pods may run on, besides the processor's kind."`
	Labels       map[string]string `hutch:"labels" doc:"Further labels of the pod."`
	Storage      sdk.Bytes         `hutch:"storage" default:"1GiB" doc:"What workspace, output, home and temporary files may take on the node together, at least 16MiB. The kubelet measures it about once a minute and evicts a pod that is beyond."`
	Lifetime     time.Duration     `hutch:"lifetime" default:"24h" doc:"How long the pod may live, 1m to 720h; the cluster ends it then, whatever became of hutch."`
	StartTimeout time.Duration     `hutch:"start_timeout" default:"5m" doc:"How long the pod may wait for room in the cluster, for its image and for its start, 1s to 2h."`
}

// pulls are the values of pull, and what the API calls them.
var pulls = map[string]string{"missing": "IfNotPresent", "always": "Always", "never": "Never"}

// Bounds of a pod.
const (
	maxUser     = 65534
	minStorage  = 16 << 20
	minLifetime = time.Minute
	maxLifetime = 720 * time.Hour
)

// Forms of names.
var (
	imageName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,511}$`)
	dnsLabel  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	labelKey  = regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?` +
		`[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	labelValue = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$`)
)

// Validate implements [sdk.Validator].
func (c *Config) Validate() (ds []sdk.Diagnostic) {
	bad := func(path, summary string, is any) {
		ds = append(ds, sdk.Diagnostic{Severity: sdk.SeverityError, Path: path, Summary: summary,
			Detail: fmt.Sprintf("it is %#v", is)})
	}
	if !imageName.MatchString(c.image()) {
		bad("image", "this is no name of an image", c.image())
	}
	if c.AgentImage != "" && !imageName.MatchString(c.AgentImage) {
		bad("agent_image", "this is no name of an image", c.AgentImage)
	}
	if pulls[c.Pull] == "" {
		bad("pull", "pull must be missing, always or never", c.Pull)
	}
	for i, s := range c.PullSecrets {
		if !dnsLabel.MatchString(s) {
			bad(fmt.Sprintf("pull_secrets[%d]", i), "this is no name of a secret", s)
		}
	}
	if c.Kubeconfig != "" && !filepath.IsAbs(c.Kubeconfig) {
		bad("kubeconfig", "the path of a kubeconfig must be absolute", c.Kubeconfig)
	}
	if c.Namespace != "" && !dnsLabel.MatchString(c.Namespace) {
		bad("namespace", "this is no name of a namespace", c.Namespace)
	}
	if c.User < 1 || c.User > maxUser {
		bad("user", "a user is a number from 1 to "+strconv.Itoa(maxUser)+"; pods are not run as root", c.User)
	}
	for name, m := range map[string]map[string]string{"node_selector": c.NodeSelector, "labels": c.Labels} {
		for k, v := range m {
			if at := fmt.Sprintf("%s[%q]", name, k); !labelKey.MatchString(k) || !labelValue.MatchString(v) {
				bad(at, "this is no label", k+"="+v)
			} else if strings.HasPrefix(k, labelPrefix) {
				bad(at, "labels that begin with "+labelPrefix+" are hutch's own", k)
			}
		}
	}
	if c.Storage < minStorage {
		bad("storage", "a pod needs at least "+sdk.Bytes(minStorage).String()+" of storage", c.Storage.String())
	}
	if c.Lifetime < minLifetime || c.Lifetime > maxLifetime {
		bad("lifetime", fmt.Sprintf("a pod may live %s to %s", minLifetime, maxLifetime), c.Lifetime.String())
	}
	if c.StartTimeout < time.Second || c.StartTimeout > 2*time.Hour {
		bad("start_timeout", "a start may take 1s to 2h", c.StartTimeout.String())
	}
	slices.SortFunc(ds, func(a, b sdk.Diagnostic) int { return cmp.Compare(a.Path, b.Path) })
	return ds
}

// imageVariable names the image of blocks that name none, in the user's environment.
const imageVariable = "KUBERNETES_IMAGE"

// image is the image in use.
func (c *Config) image() string {
	return cmp.Or(c.Image, os.Getenv(imageVariable), "docker.io/library/python:3-slim")
}

func configOf(spec *sdk.Spec) *Config { return sdk.ConfigOf[Config](spec) }
