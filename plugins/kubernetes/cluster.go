package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	auth "k8s.io/api/authorization/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hutch-run/hutch/sdk"
)

// place is where sandboxes are. It is part of their handles; there it has all that the kubeconfig said when they were
// made, so that they are not looked for in another cluster once the user's current context is another one.
type place struct {
	Kubeconfig string `json:"kubeconfig,omitempty"` // a list of files, as KUBECONFIG has it
	Context    string `json:"context,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
}

// cluster is the API server of a place. Its methods are safe for concurrent use.
//
// The clients are made here rather than taken from client-go's clientset, which links the types of every API there is.
type cluster struct {
	place // as it is in use, with nothing left open

	cfg                  *rest.Config
	pods, policies, auth rest.Interface
}

// scheme knows the kinds that are used here.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{core.AddToScheme, networking.AddToScheme, auth.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	meta.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
}()

var parameters = runtime.NewParameterCodec(scheme)

// openCluster reads the kubeconfig. It connects to nothing.
func openCluster(p place) (*cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if p.Kubeconfig != "" {
		rules.Precedence, rules.WarnIfAllMissing = filepath.SplitList(p.Kubeconfig), false
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: p.Context})
	cfg, err := loader.ClientConfig()
	if err != nil {
		return nil, sdk.Errorf(sdk.ReasonMissing, "there is no kubeconfig to reach a cluster with: %w", err).
			WithFix("set KUBECONFIG, or name the file and the context in the backend's block")
	}
	if cfg.Impersonate.UserName != "" || len(cfg.Impersonate.Groups) > 0 {
		return nil, sdk.Errorf(sdk.ReasonConfig, "the kubeconfig impersonates %q, which hutch does not do",
			cfg.Impersonate.UserName).WithFix("use a context with credentials of its own")
	}
	c := &cluster{place: p, cfg: cfg}
	if c.Namespace == "" {
		if c.Namespace, _, err = loader.Namespace(); err != nil {
			return nil, err
		}
	}
	if raw, err := loader.RawConfig(); err == nil && len(raw.Clusters) > 0 { // and not the account of a pod
		files := slices.Clone(rules.Precedence)
		for i, f := range files {
			if files[i], err = filepath.Abs(f); err != nil {
				return nil, err
			}
		}
		c.Kubeconfig = strings.Join(files, string(filepath.ListSeparator))
		c.Context = cmp.Or(p.Context, raw.CurrentContext)
	}
	cfg.UserAgent = "hutch-backend-kubernetes/" + version
	cfg.QPS = -1 // the server says when it is too much
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.ContentType = runtime.ContentTypeJSON
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, sdk.Errorf(sdk.ReasonConfig, "the kubeconfig cannot be used: %w", err)
	}
	for _, api := range []struct {
		to    *rest.Interface
		path  string
		group schema.GroupVersion
	}{{&c.pods, "/api", core.SchemeGroupVersion}, {&c.policies, "/apis", networking.SchemeGroupVersion},
		{&c.auth, "/apis", auth.SchemeGroupVersion}} {
		own := *cfg
		own.APIPath, own.GroupVersion = api.path, &api.group
		if *api.to, err = rest.RESTClientForConfigAndClient(&own, hc); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// apiTime bounds one call, and askTime one that only asks. Those that wait for something on purpose have bounds of
// their own.
const (
	apiTime = 30 * time.Second
	askTime = 10 * time.Second
)

func (c *cluster) createPod(ctx context.Context, pod *core.Pod) (*core.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTime)
	defer cancel()
	out := &core.Pod{}
	err := c.pods.Post().Namespace(c.Namespace).Resource("pods").Body(pod).Do(ctx).Into(out)
	return out, c.explain("create a pod", err)
}

// getPod returns a pod, or nil without an error when it does not exist.
func (c *cluster) getPod(ctx context.Context, name string) (*core.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTime)
	defer cancel()
	out := &core.Pod{}
	err := c.pods.Get().Namespace(c.Namespace).Resource("pods").Name(name).Do(ctx).Into(out)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return out, c.explain("look at the pod "+name, err)
}

func (c *cluster) listPods(ctx context.Context, selector string) ([]core.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	out := &core.PodList{}
	err := c.pods.Get().Namespace(c.Namespace).Resource("pods").
		VersionedParams(&meta.ListOptions{LabelSelector: selector}, parameters).Do(ctx).Into(out)
	return out.Items, c.explain("list pods", err)
}

// deletePod deletes a pod; one that is gone, or is another one of the same name, is success. uid may be empty.
func (c *cluster) deletePod(ctx context.Context, name, uid string) error {
	ctx, cancel := context.WithTimeout(ctx, apiTime)
	defer cancel()
	grace := int64(graceSeconds) // with none the API forgets the pod while its processes still run
	o := &meta.DeleteOptions{GracePeriodSeconds: &grace}
	if uid != "" {
		o.Preconditions = meta.NewUIDPreconditions(uid)
	}
	err := c.pods.Delete().Namespace(c.Namespace).Resource("pods").Name(name).Body(o).Do(ctx).Error()
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return c.explain("delete the pod "+name, err)
}

// await looks at a pod whenever it changes until done says that it has seen enough. done gets nil for a pod that is
// gone, or is another one of the same name.
func (c *cluster) await(ctx context.Context, name, uid string, done func(*core.Pod) (bool, error)) error {
	for {
		pod, err := c.getPod(ctx, name)
		if err != nil {
			if sdk.ReasonOf(err) != sdk.ReasonUnavailable || !sleep(ctx, time.Second) {
				return err
			}
			continue // the API server is away for a while
		}
		if pod != nil && uid != "" && string(pod.UID) != uid {
			pod = nil
		}
		if ok, err := done(pod); ok || err != nil {
			return err
		}
		version := ""
		if pod != nil {
			version = pod.ResourceVersion
		}
		w, err := c.pods.Get().Namespace(c.Namespace).Resource("pods").VersionedParams(&meta.ListOptions{Watch: true,
			FieldSelector: "metadata.name=" + name, ResourceVersion: version}, parameters).Watch(ctx)
		if err != nil {
			if err := c.explain("watch the pod "+name, err); sdk.ReasonOf(err) == sdk.ReasonDenied {
				return err
			}
			if !sleep(ctx, time.Second) {
				return context.Cause(ctx)
			}
			continue
		}
		ok, err := follow(ctx, w, uid, done)
		w.Stop()
		if ok || err != nil {
			return err
		}
	}
}

// follow calls done for each change that a watch brings. Not ok without an error is the end of the watch.
func follow(ctx context.Context, w watch.Interface, uid string, done func(*core.Pod) (bool, error)) (bool, error) {
	for {
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case ev, open := <-w.ResultChan():
			if !open || ev.Type == watch.Error {
				return false, nil
			}
			pod, isPod := ev.Object.(*core.Pod)
			if !isPod {
				continue
			}
			if ev.Type == watch.Deleted || uid != "" && string(pod.UID) != uid {
				pod = nil
			}
			if ok, err := done(pod); ok || err != nil {
				return ok, err
			}
		}
	}
}

// sleep waits, and says whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// may asks the API server for one right in the namespace.
func (c *cluster) may(ctx context.Context, group, resource, sub, verb string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	review := &auth.SelfSubjectAccessReview{Spec: auth.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &auth.ResourceAttributes{Namespace: c.Namespace, Verb: verb, Group: group,
			Resource: resource, Subresource: sub}}}
	out := &auth.SelfSubjectAccessReview{}
	err := c.auth.Post().Resource("selfsubjectaccessreviews").Body(review).Do(ctx).Into(out)
	return out.Status.Allowed, c.explain("ask for this account's rights", err)
}

// explain is an error of the API server in the terms of a backend. doing is what was tried.
func (c *cluster) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	say := func(reason sdk.Reason, fix string, args ...any) error {
		e := sdk.Errorf(reason, "%s in the namespace %s: %w", doing, c.Namespace, err)
		e.Retryable = reason == sdk.ReasonUnavailable
		if fix != "" {
			return e.WithFix(fix, args...)
		}
		return e
	}
	text, status := err.Error(), apierrors.APIStatus(nil)
	unreached := (*url.Error)(nil)
	switch {
	case strings.Contains(text, "exceeded quota"):
		return say(sdk.ReasonQuota, "remove sandboxes (hutch ps, hutch rm), or have the quota raised: "+
			"kubectl -n %s describe quota", c.Namespace)
	case strings.Contains(text, "violates PodSecurity"):
		return say(sdk.ReasonDenied, "use a namespace that enforces restricted or less: "+
			"kubectl get ns %s --show-labels", c.Namespace)
	case apierrors.IsUnauthorized(err):
		return say(sdk.ReasonDenied, "log in again: the kubeconfig's token or certificate is not valid, or has expired")
	case apierrors.IsForbidden(err):
		return say(sdk.ReasonDenied, "have an administrator apply: hutch-backend-kubernetes manifests")
	case apierrors.IsNotFound(err):
		return say(sdk.ReasonNotFound, "see whether the namespace exists: kubectl get ns %s", c.Namespace)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return say(sdk.ReasonConfig, "")
	case apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err), apierrors.IsServerTimeout(err),
		apierrors.IsTimeout(err), apierrors.IsInternalError(err):
		return say(sdk.ReasonUnavailable, "try again later")
	case errors.As(err, &unreached), errors.Is(err, context.DeadlineExceeded), errors.As(err, new(net.Error)):
		return say(sdk.ReasonUnavailable, "see whether the API server at %s can be reached: kubectl version", c.cfg.Host)
	case errors.As(err, &status):
		return say(sdk.ReasonInternal, "")
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// address is HOST:PORT of the API server.
func (c *cluster) address() string {
	u, err := url.Parse(c.cfg.Host)
	if err != nil || u.Host == "" {
		return c.cfg.Host
	}
	if u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), "443")
	}
	return u.Host
}
