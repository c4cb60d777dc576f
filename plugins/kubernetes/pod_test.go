package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hutch-run/hutch/plugins/kubernetes/internal/wire"
	"github.com/hutch-run/hutch/sdk"
)

// TestPodIsRestricted holds the pod to the Pod Security Standard restricted, and to what the threat model says.
func TestPodIsRestricted(t *testing.T) {
	for name, cfg := range map[string]*Config{
		"defaults": sdk.ConfigOf[Config](&sdk.Spec{}), "agent image": {AgentImage: "agent", User: 1, UserNS: true, Lifetime: time.Hour},
	} {
		pod, err := newPod(podOptions{name: "x", cfg: cfg, network: networkNone, input: true, rec: &record{}})
		if err != nil {
			t.Fatal(err)
		}
		s := pod.Spec
		switch {
		case s.HostNetwork || s.HostPID || s.HostIPC || cfg.UserNS != (s.HostUsers != nil && !*s.HostUsers):
			t.Errorf("%s: a namespace of the node: %+v", name, s)
		case !*s.SecurityContext.RunAsNonRoot || *s.SecurityContext.RunAsUser == 0 ||
			s.SecurityContext.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault:
			t.Errorf("%s: the pod's security context is %+v", name, s.SecurityContext)
		case *s.AutomountServiceAccountToken || *s.EnableServiceLinks:
			t.Errorf("%s: the pod learns of the cluster", name)
		case *s.ActiveDeadlineSeconds != int64(cfg.Lifetime.Seconds()) || *s.TerminationGracePeriodSeconds != 1 ||
			s.RestartPolicy != core.RestartPolicyNever:
			t.Errorf("%s: the pod's life is %v, %v, %v", name, s.ActiveDeadlineSeconds, s.TerminationGracePeriodSeconds, s.RestartPolicy)
		case pod.Labels[labelNetwork] != networkNone:
			t.Errorf("%s: no policy is about it: %v", name, pod.Labels)
		}
		for _, v := range s.Volumes {
			if v.EmptyDir == nil || v.EmptyDir.SizeLimit.IsZero() != (cfg.Storage == 0 && v.Name == "data") {
				t.Errorf("%s: the volume %+v", name, v)
			}
		}
		for _, c := range append(s.InitContainers, s.Containers...) {
			sc := c.SecurityContext
			if *sc.AllowPrivilegeEscalation || !*sc.ReadOnlyRootFilesystem || len(sc.Capabilities.Drop) != 1 ||
				sc.Capabilities.Drop[0] != "ALL" || len(sc.Capabilities.Add) > 0 || sc.Privileged != nil {
				t.Errorf("%s: %s has the security context %+v", name, c.Name, sc)
			}
			for _, m := range c.VolumeMounts {
				if c.Name == mainContainer && (m.MountPath == wire.Dir || strings.HasSuffix(m.MountPath, "input")) && !m.ReadOnly {
					t.Errorf("%s: commands may write to %s", name, m.MountPath)
				}
			}
		}
	}
}

func TestPodName(t *testing.T) {
	for _, id := range []string{"a", "-", strings.Repeat("x-", 32), "run-1"} {
		if name := podName(id); !dnsLabel.MatchString(name) || len(name) > 63 {
			t.Errorf("the pod of %q is called %q", id, name)
		}
	}
	if podName("a") == podName("a-") {
		t.Error("two sandboxes have one name")
	}
}

// TestVerdict has what the API shows of pods whose commands ended with them.
func TestVerdict(t *testing.T) {
	pod := func(phase core.PodPhase, reason, message string, ended *core.ContainerStateTerminated) *core.Pod {
		return &core.Pod{Status: core.PodStatus{Phase: phase, Reason: reason, Message: message,
			ContainerStatuses: []core.ContainerStatus{{Name: mainContainer, State: core.ContainerState{Terminated: ended}}}}}
	}
	oom := &core.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}
	deleted := pod(core.PodRunning, "", "", nil)
	deleted.DeletionTimestamp = &meta.Time{}
	for _, tc := range []struct {
		name  string
		pod   *core.Pod
		cause sdk.Cause // "" for an error or nothing
		text  string    // of the evidence or the error
	}{
		{"it lives", pod(core.PodRunning, "", "", nil), "", ""},
		{"it is gone", nil, sdk.CauseSignaled, "was deleted"},
		{"it is being deleted", deleted, sdk.CauseSignaled, "was deleted"},
		{"out of memory", pod(core.PodFailed, "", "", oom), sdk.CauseOOM, "OOMKilled"},
		{"out of time", pod(core.PodFailed, "DeadlineExceeded", "", &core.ContainerStateTerminated{}), sdk.CauseTimeout, "lifetime"},
		{"out of storage", pod(core.PodFailed, "Evicted", `Usage of EmptyDir volume "data" exceeds the limit "16Mi".`, oom),
			sdk.CauseDisk, "exceeds the limit"},
		{"out of storage, all of it", pod(core.PodFailed, "Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers 80Mi.", nil),
			sdk.CauseDisk, "total limit"},
		{"a node without memory", pod(core.PodFailed, "Evicted", "The node was low on resource: memory.", oom), "", "low on resource"},
		{"preempted", pod(core.PodFailed, "Preempting", "", nil), "", "Preempting"},
		{"a node that is lost", pod(core.PodFailed, "NodeLost", "", nil), "", "NodeLost"},
		{"nobody came", pod(core.PodFailed, "", "", &core.ContainerStateTerminated{ExitCode: wire.Lost}), "", "no hutch was connected"},
		{"process 1 was killed", pod(core.PodFailed, "", "", &core.ContainerStateTerminated{ExitCode: 137, Reason: "Error"}), "", "137 Error"},
		{"it is said to be well", pod(core.PodSucceeded, "", "", nil), "", "Succeeded"},
	} {
		exit, err := verdict("p", tc.pod)
		switch {
		case tc.text == "" && exit == nil && err == nil:
		case exit != nil && exit.Cause == tc.cause && exit.Code == 137 && strings.Contains(exit.Evidence, tc.text):
		case exit == nil && tc.cause == "" && err != nil && strings.Contains(err.Error(), tc.text) && sdk.ReasonOf(err) == sdk.ReasonUnavailable:
		default:
			t.Errorf("%s: %+v, %v", tc.name, exit, err)
		}
	}
}

// TestWaiting has pods that do not start.
func TestWaiting(t *testing.T) {
	state := func(reason string, w bool) *core.Pod {
		s := core.ContainerStatus{Name: initContainer, Image: "i"}
		if w {
			s.State.Waiting = &core.ContainerStateWaiting{Reason: reason, Message: "why"}
		} else {
			s.State.Terminated = &core.ContainerStateTerminated{ExitCode: 127, Message: "sh: not found"}
		}
		return &core.Pod{Status: core.PodStatus{InitContainerStatuses: []core.ContainerStatus{s}}}
	}
	full := &core.Pod{Status: core.PodStatus{Conditions: []core.PodCondition{{Type: core.PodScheduled,
		Status: core.ConditionFalse, Message: "0/3 nodes are available"}}}}
	for _, tc := range []struct {
		pod  *core.Pod
		step string
		err  sdk.Reason
	}{
		{full, "waiting for room in the cluster: 0/3 nodes are available", ""},
		{state("ErrImagePull", true), "waiting for the image i", ""},
		{state("ImagePullBackOff", true), "", sdk.ReasonMissing},
		{state("ErrImageNeverPull", true), "", sdk.ReasonMissing},
		{state("CreateContainerError", true), "", sdk.ReasonConfig},
		{state("", false), "", sdk.ReasonConfig},
		{&core.Pod{}, "", ""},
	} {
		step, err := waiting(tc.pod)
		if step != tc.step || (err == nil) != (tc.err == "") || err != nil && sdk.ReasonOf(err) != tc.err {
			t.Errorf("%+v: %q, %v", tc.pod.Status, step, err)
		}
	}
}

// apiServer is a cluster whose API server answers all with one status, and one that is not there.
func apiServer(t *testing.T, code int, reason meta.StatusReason, message string) *cluster {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(meta.Status{TypeMeta: meta.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status: meta.StatusFailure, Code: int32(code), Reason: reason, Message: message})
	}))
	if code == 0 {
		server.Close()
	}
	t.Cleanup(server.Close)
	return clusterOf(t, server.URL, "")
}

func clusterOf(t *testing.T, url, user string) *cluster {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"` + url +
		`"}}],"users":[{"name":"u","user":{` + user + `}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u","namespace":"ns"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := openCluster(place{Kubeconfig: file})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestExplain has what an API server may answer.
func TestExplain(t *testing.T) {
	for _, tc := range []struct {
		name    string
		code    int
		reason  meta.StatusReason
		message string
		want    sdk.Reason
		fix     string
	}{
		{"nobody is there", 0, "", "", sdk.ReasonUnavailable, "API server"},
		{"an expired token", 401, meta.StatusReasonUnauthorized, "Unauthorized", sdk.ReasonDenied, "log in again"},
		{"a right that is missing", 403, meta.StatusReasonForbidden, `pods is forbidden`, sdk.ReasonDenied, "manifests"},
		{"a full quota", 403, meta.StatusReasonForbidden, `pods "x" is forbidden: exceeded quota: hutch`, sdk.ReasonQuota, "quota"},
		{"a stricter namespace", 403, meta.StatusReasonForbidden, `pods "x" is forbidden: violates PodSecurity "restricted"`, sdk.ReasonDenied, "restricted"},
		{"no namespace", 404, meta.StatusReasonNotFound, `namespaces "ns" not found`, sdk.ReasonNotFound, "get ns"},
		{"a pod that cannot be", 422, meta.StatusReasonInvalid, "invalid", sdk.ReasonConfig, ""},
		{"a server that breaks", 500, meta.StatusReasonInternalError, "oh", sdk.ReasonUnavailable, "later"},
	} {
		_, err := apiServer(t, tc.code, tc.reason, tc.message).createPod(t.Context(), &core.Pod{})
		var e *sdk.Error
		if !errors.As(err, &e) || e.Reason != tc.want || !strings.Contains(e.Fix, tc.fix) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestKubeconfigs(t *testing.T) {
	if _, err := openCluster(place{Kubeconfig: "/nowhere"}); sdk.ReasonOf(err) != sdk.ReasonMissing {
		t.Errorf("without a kubeconfig: %v", err)
	}
	c := clusterOf(t, "https://api.example", `"token":"x"`)
	if c.Namespace != "ns" || c.Context != "c" || c.address() != "api.example:443" {
		t.Errorf("%+v, %s", c.place, c.address())
	}
	// What is noted in a handle stays the same when the user's own context becomes another one.
	t.Setenv("KUBECONFIG", c.Kubeconfig)
	mine, err := openCluster(place{})
	if err != nil || mine.place != c.place {
		t.Errorf("by KUBECONFIG it is %+v, %v; want %+v", mine, err, c.place)
	}
	t.Setenv("KUBECONFIG", "/nowhere")
	if again, err := openCluster(mine.place); err != nil || again.cfg.Host != c.cfg.Host {
		t.Errorf("afterwards: %+v, %v", again, err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"current-context":"c","clusters":[{"name":"c","cluster":{"server":"https://x"}}],"users":[{"name":"u","user":{"as":"admin"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openCluster(place{Kubeconfig: file}); sdk.ReasonOf(err) != sdk.ReasonConfig {
		t.Errorf("a kubeconfig that impersonates: %v", err)
	}
}
