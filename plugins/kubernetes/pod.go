package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/hutch-run/hutch/plugins/kubernetes/internal/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/guestpath"
)

// What hutch writes on its pods.
const (
	labelPrefix  = "run.hutch."
	labelSandbox = labelPrefix + "sandbox" // "true"
	labelOwner   = labelPrefix + "owner"   // a hash of it
	labelNetwork = labelPrefix + "network" // which of the policies is about the pod
	recordNote   = labelPrefix + "record"  // an annotation: the record as JSON
)

// record is what a fresh process has to know of a sandbox. It does not change.
type record struct {
	ID       string    `json:"id"`
	Owner    string    `json:"owner"`
	StateDir string    `json:"state_dir,omitempty"`
	Source   string    `json:"source,omitempty"` // of the workspace, on the host
	Box      wire.Box  `json:"box"`
	Ready    sdk.Ready `json:"ready"`
}

// Names and bounds of a pod.
const (
	initContainer = "init"
	mainContainer = "sandbox"
	agentInImage  = "/hutch-kubernetes-agent"
	inputInInit   = "/hutch-input"
	graceSeconds  = 1
	agentSpace    = 64 << 20
	lease         = 2 * time.Minute // how long a sandbox that is not to be kept lives without a client
)

// podName is the name of a sandbox's pod. It begins with the id as far as a name can hold it.
func podName(id string) string {
	sum := sha256.Sum256([]byte(id))
	short := strings.Trim(id, "-")
	short = strings.TrimRight(short[:min(len(short), 40)], "-")
	return strings.TrimRight("hutch-"+short, "-") + "-" + hex.EncodeToString(sum[:5])
}

// hashed is any text as a label or the name of a file can hold it.
func hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// podOptions say what a pod is for.
type podOptions struct {
	name    string
	cfg     *Config
	limits  sdk.Limits
	network string // a key of policies
	input   bool
	lease   time.Duration // how long it lives without a client; 0 for as long as the pod may
	rec     *record       // nil for a witness
}

// newPod is the pod of a sandbox. It meets the Pod Security Standard restricted.
func newPod(o podOptions) (*core.Pod, error) {
	cfg, no, yes, user := o.cfg, false, true, int64(o.cfg.User)
	hostUsers := !cfg.UserNS
	seconds, grace := int64(cfg.Lifetime.Seconds()), int64(graceSeconds)
	security := &core.SecurityContext{AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
		Capabilities: &core.Capabilities{Drop: []core.Capability{"ALL"}}}
	data := func(at, part string, readOnly bool) core.VolumeMount {
		return core.VolumeMount{Name: "data", MountPath: at, SubPath: part, ReadOnly: readOnly}
	}
	project := o.rec != nil && o.rec.Source != ""
	wait := ""
	if o.input {
		wait = " --wait"
	}
	init := core.Container{Name: initContainer, Image: cfg.image(), ImagePullPolicy: core.PullPolicy(pulls[cfg.Pull]),
		// The agent comes by an exec. Where none does, nobody will ask for the pod any more.
		Command: []string{"sh", "-c", fmt.Sprintf("i=0; until [ -e %[1]s ]; do i=$((i+1)); [ $i -lt 3000 ] || exit %[2]d; "+
			"sleep 0.1 || sleep 1; done; exec %[1]s init%[3]s", wire.Agent, wire.Lost, wait)},
		VolumeMounts: []core.VolumeMount{{Name: "agent", MountPath: wire.Dir}, data(inputInInit, "input", false)},
	}
	if cfg.AgentImage != "" {
		init.Image, init.Command = cfg.AgentImage, strings.Fields(agentInImage+" init --copy"+wait)
	}
	serve := []string{wire.Agent, "serve"}
	if o.lease > 0 {
		serve = append(serve, "--lease="+o.lease.String())
	}
	main := core.Container{Name: mainContainer, Image: cfg.image(), ImagePullPolicy: init.ImagePullPolicy, Command: serve,
		VolumeMounts: []core.VolumeMount{
			{Name: "agent", MountPath: wire.Dir, ReadOnly: true},
			data(wire.State, "state", false), data(guestpath.Workspace, "workspace", false),
			data(guestpath.Output(project), "output", false), data("/tmp", "tmp", false),
			data("/var/tmp", "vartmp", false), data(wire.Home, "home", false),
		},
		Resources: resources(o.limits, int64(cfg.Storage)),
	}
	if o.input {
		main.VolumeMounts = append(main.VolumeMounts, data(guestpath.Input(project), "input", true))
	}
	init.Resources = resources(sdk.Limits{}, int64(cfg.Storage))
	for _, c := range []*core.Container{&init, &main} {
		c.WorkingDir, c.SecurityContext = "/", security
		c.TerminationMessagePolicy = core.TerminationMessageFallbackToLogsOnError
	}
	pod := &core.Pod{
		ObjectMeta: meta.ObjectMeta{Name: o.name, Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec: core.PodSpec{
			RestartPolicy: core.RestartPolicyNever, ActiveDeadlineSeconds: &seconds, TerminationGracePeriodSeconds: &grace,
			AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
			NodeSelector: map[string]string{core.LabelArchStable: runtime.GOARCH, core.LabelOSStable: "linux"},
			SecurityContext: &core.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &user, RunAsGroup: &user, FSGroup: &user,
				SeccompProfile: &core.SeccompProfile{Type: core.SeccompProfileTypeRuntimeDefault}},
			InitContainers: []core.Container{init}, Containers: []core.Container{main},
			Volumes: []core.Volume{emptyDir("agent", agentSpace), emptyDir("data", int64(cfg.Storage))},
		},
	}
	if !hostUsers {
		pod.Spec.HostUsers = &hostUsers
	}
	for k, v := range cfg.NodeSelector {
		pod.Spec.NodeSelector[k] = v
	}
	for _, s := range cfg.PullSecrets {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, core.LocalObjectReference{Name: s})
	}
	for k, v := range cfg.Labels {
		pod.Labels[k] = v
	}
	pod.Labels[labelNetwork] = o.network
	if o.rec != nil {
		rec, err := json.Marshal(o.rec)
		if err != nil {
			return nil, err
		}
		pod.Labels[labelSandbox], pod.Labels[labelOwner] = "true", hashed(o.rec.Owner)
		pod.Annotations[recordNote] = string(rec)
	}
	return pod, nil
}

func emptyDir(name string, size int64) core.Volume {
	return core.Volume{Name: name, VolumeSource: core.VolumeSource{EmptyDir: &core.EmptyDirVolumeSource{
		SizeLimit: resource.NewQuantity(size, resource.BinarySI)}}}
}

// resources are the limits that the kubelet holds. What is asked of the scheduler is little: sandboxes mostly wait.
func resources(l sdk.Limits, storage int64) core.ResourceRequirements {
	bytes := func(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.BinarySI) }
	r := core.ResourceRequirements{
		Limits: core.ResourceList{core.ResourceEphemeralStorage: bytes(storage + agentSpace)},
		Requests: core.ResourceList{core.ResourceEphemeralStorage: bytes(min(storage, 64<<20)),
			core.ResourceMemory: bytes(minMemory), core.ResourceCPU: *resource.NewMilliQuantity(10, resource.DecimalSI)},
	}
	if l.Memory > 0 {
		r.Limits[core.ResourceMemory] = bytes(l.Memory)
	}
	if l.CPUs > 0 {
		r.Limits[core.ResourceCPU] = *resource.NewMilliQuantity(milliCPUs(l.CPUs), resource.DecimalSI)
	}
	return r
}

func milliCPUs(cpus float64) int64 { return int64(cpus*1000 + 0.5) }

// admitted looks whether the cluster took the pod's limits as they were asked for: what admits pods may change them.
func admitted(asked, got *core.Pod) error {
	if len(got.Spec.Containers) == 0 || got.Spec.Containers[0].Name != mainContainer {
		return sdk.Errorf(sdk.ReasonUnsupported, "something in the cluster has put another container into the pod %s",
			got.Name)
	}
	for name, want := range asked.Spec.Containers[0].Resources.Limits {
		if is := got.Spec.Containers[0].Resources.Limits[name]; is.Cmp(want) != 0 {
			return sdk.Errorf(sdk.ReasonLimit, "the cluster has changed the pod's limit of %s from %s to %s", name,
				want.String(), is.String())
		}
	}
	return nil
}

// Networks of pods: values of labelNetwork, and keys of policies.
const (
	networkNone    = "none"
	networkFull    = "full"
	networkWitness = "witness" // all that there is: no command of a user ever runs in such a pod
)

// policies are the NetworkPolicies, one for each network. They are about all pods that have it, so none is made or
// deleted with a pod, which would have an open network for a moment.
var policies = map[string]networking.NetworkPolicySpec{
	networkNone:    {},
	networkWitness: {Egress: []networking.NetworkPolicyEgressRule{{}}},
	networkFull: {Egress: []networking.NetworkPolicyEgressRule{
		{To: []networking.NetworkPolicyPeer{
			{IPBlock: &networking.IPBlock{CIDR: "0.0.0.0/0", Except: []string{"10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16",
				"172.16.0.0/12", "192.168.0.0/16"}}},
			{IPBlock: &networking.IPBlock{CIDR: "::/0", Except: []string{"fc00::/7", "fe80::/10"}}},
		}},
		{Ports: []networking.NetworkPolicyPort{port(core.ProtocolUDP, 53), port(core.ProtocolTCP, 53)}},
	}},
}

func port(p core.Protocol, n int32) networking.NetworkPolicyPort {
	return networking.NetworkPolicyPort{Protocol: &p, Port: &intstr.IntOrString{IntVal: n}}
}

// newPolicy is the policy of a network.
func newPolicy(network string) *networking.NetworkPolicy {
	p := &networking.NetworkPolicy{ObjectMeta: meta.ObjectMeta{Name: "hutch-" + network}, Spec: policies[network]}
	p.Spec.PodSelector = meta.LabelSelector{MatchLabels: map[string]string{labelNetwork: network}}
	p.Spec.PolicyTypes = []networking.PolicyType{networking.PolicyTypeIngress, networking.PolicyTypeEgress}
	return p
}
