package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/hutch-run/hutch/plugins/kubernetes/internal/wire"
	"github.com/hutch-run/hutch/sdk"
)

// settleTime is how long the API may take to show what became of a pod whose connection broke.
const settleTime = 10 * time.Second

// became says how a command ended whose connection broke, by what became of its pod. err is returned where the pod does
// not say.
func (s *sandbox) became(ctx context.Context, l *link, err error) (*sdk.Exit, error) {
	if l.killed() {
		// By a command of the same sandbox, or for want of memory; what it did is over, and the pod lives.
		if pod := s.look(ctx, time.Second); pod != nil && ending(pod) == "" {
			return s.stopped(ctx, &sdk.Exit{Cause: sdk.CauseSignaled, Code: 137, Signal: "SIGKILL",
				Evidence: "hutch's program in the pod was killed there, and with it the command"}), nil
		}
	}
	pod := s.look(ctx, settleTime)
	exit, why := verdict(s.pod, pod)
	switch {
	case exit != nil:
		return s.stopped(ctx, exit), nil
	case why != nil:
		return nil, why
	}
	return nil, err
}

// stopped has an exit say that hutch stopped the command, if it did.
func (s *sandbox) stopped(ctx context.Context, e *sdk.Exit) *sdk.Exit {
	if cause := sdk.CauseOf(ctx); cause != "" {
		e.Cause, e.Evidence = cause, "stopped by hutch; "+e.Evidence
	}
	return e
}

// look waits for a pod to show that it ends, and returns it as it is then, or after so long; nil is a pod that is gone.
func (s *sandbox) look(ctx context.Context, within time.Duration) (pod *core.Pod) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	unknown := &core.Pod{}
	pod = unknown
	_ = s.cluster.await(ctx, s.pod, s.uid, func(p *core.Pod) (bool, error) {
		pod = p
		return p == nil || ending(p) != "", nil
	})
	return pod
}

// ending says by what a pod shows that it ends; "" for one that does not.
func ending(p *core.Pod) string {
	switch {
	case p.Status.Phase == core.PodFailed || p.Status.Phase == core.PodSucceeded:
		return "phase " + string(p.Status.Phase)
	case p.DeletionTimestamp != nil:
		return "deletion"
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Terminated != nil {
			return "container"
		}
	}
	return ""
}

// verdict says how the commands of a pod ended by what became of it: the pod's own reason counts before that of its
// container, and that before an exit code. Both results are nil for a pod that lives. A pod is never said to have ended
// well: process 1 does not.
func verdict(name string, p *core.Pod) (*sdk.Exit, error) {
	killed := func(cause sdk.Cause, format string, args ...any) (*sdk.Exit, error) {
		return &sdk.Exit{Cause: cause, Code: 137, Signal: "SIGKILL", Evidence: fmt.Sprintf(format, args...)}, nil
	}
	broke := func(format string, args ...any) (*sdk.Exit, error) {
		e := sdk.Errorf(sdk.ReasonUnavailable, "the pod %s ended: %s", name, fmt.Sprintf(format, args...)).
			WithFix("run it again; its files are lost. kubectl describe pod and kubectl get events say more")
		e.Retryable = true
		return nil, e
	}
	if p == nil {
		return killed(sdk.CauseSignaled, "the pod %s was deleted", name)
	}
	if ending(p) == "" {
		return nil, nil
	}
	text := strings.TrimSpace(p.Status.Message)
	switch reason := p.Status.Reason; reason {
	case "":
	case "DeadlineExceeded":
		return killed(sdk.CauseTimeout, "pod reason DeadlineExceeded: it reached the lifetime of its backend's block")
	case "Evicted":
		if strings.Contains(text, "emptyDir") || strings.Contains(text, "EmptyDir") ||
			strings.Contains(text, "ephemeral local storage") {
			return killed(sdk.CauseDisk, "pod reason Evicted: %s", text)
		}
		return broke("it was evicted: %s", text)
	default:
		return broke("%s: %s", reason, text)
	}
	for _, c := range p.Status.ContainerStatuses {
		t := c.State.Terminated
		switch {
		case t == nil || c.Name != mainContainer:
		case t.Reason == "OOMKilled":
			return killed(sdk.CauseOOM, "container reason OOMKilled")
		case p.DeletionTimestamp != nil:
			return killed(sdk.CauseSignaled, "the pod %s was deleted", name)
		case t.ExitCode == wire.Lost:
			return broke("no hutch was connected to it for %s", lease)
		default:
			return broke("its process 1 ended with %d %s: %s", t.ExitCode, t.Reason, strings.TrimSpace(t.Message))
		}
	}
	if p.DeletionTimestamp != nil {
		return killed(sdk.CauseSignaled, "the pod %s was deleted", name)
	}
	return broke("its phase is %s, and it does not say why", p.Status.Phase)
}

// needsShell is what to do about an image into which hutch's program cannot be brought.
const needsShell = "take an image that has sh, cat, chmod, mv and sleep, or an agent_image that has %s"

// waiting says what a pod that does not run yet waits for, and whether that is worth waiting for: err is one that is
// not.
func waiting(p *core.Pod) (step string, err error) {
	for _, c := range p.Status.Conditions {
		if c.Type == core.PodScheduled && c.Status == core.ConditionFalse {
			return "waiting for room in the cluster: " + c.Message, nil
		}
	}
	for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
			e := sdk.Errorf(sdk.ReasonConfig, "the container %s of the pod %s ended with %d %s: %s", c.Name, p.Name, t.ExitCode,
				t.Reason, strings.TrimSpace(t.Message))
			if c.Name == initContainer {
				return "", e.WithFix(needsShell, agentInImage)
			}
			return "", e
		}
		w := c.State.Waiting
		if w == nil {
			continue
		}
		switch w.Reason {
		case "ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName", "ImageInspectError":
			return "", sdk.Errorf(sdk.ReasonMissing, "the node cannot get the image %s: %s: %s", c.Image, w.Reason, w.Message).
				WithFix("see that the name is right and that nodes can pull it; pull_secrets names secrets for a registry")
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return "", sdk.Errorf(sdk.ReasonConfig, "the node cannot start the container %s of the image %s: %s: %s", c.Name,
				c.Image, w.Reason, w.Message)
		case "ErrImagePull", "ContainerCreating", "PodInitializing", "":
			step = "waiting for the image " + c.Image
		}
	}
	return step, nil
}
