package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// policy enforces NetworkPolicy on this node with nft until a signal; the one argument is a kubeconfig. It knows what
// tests need: which pods a policy selects, IPv4 blocks with exceptions, and ports. A rule that it does not know lets
// nothing through. As most engines it works after the fact: a new pod has an open network until its rules are written.
func policy(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: policy KUBECONFIG")
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", args[0])
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	f := informers.NewSharedInformerFactory(client, 0)
	pods, policies := f.Core().V1().Pods(), f.Networking().V1().NetworkPolicies()
	changed := make(chan struct{}, 1)
	kick := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	for _, i := range []cache.SharedIndexInformer{pods.Informer(), policies.Informer()} {
		if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { kick() },
			UpdateFunc: func(any, any) { kick() }, DeleteFunc: func(any) { kick() }}); err != nil {
			return err
		}
	}
	f.Start(ctx.Done())
	f.WaitForCacheSync(ctx.Done())
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		all, err := pods.Lister().List(labels.Everything())
		if err != nil {
			return err
		}
		rules, err := policies.Lister().List(labels.Everything())
		if err != nil {
			return err
		}
		nft := exec.CommandContext(ctx, "nft", "-f", "-")
		nft.Stdin = strings.NewReader(table(all, rules))
		if out, err := nft.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "nft: %v: %s\n", err, out)
			time.Sleep(time.Second)
			kick()
		}
	}
}

// table is the whole of the rules, as nft reads it. It replaces the last one in one step.
func table(pods []*core.Pod, policies []*networking.NetworkPolicy) string {
	var chains, from, to strings.Builder
	for i, p := range pods {
		ended := p.Status.Phase == core.PodSucceeded || p.Status.Phase == core.PodFailed
		if p.Status.PodIP == "" || p.Spec.HostNetwork || ended {
			continue
		}
		var out, in []string
		var egress, ingress bool
		for _, l := range policies {
			selector, err := meta.LabelSelectorAsSelector(&l.Spec.PodSelector)
			if err != nil || l.Namespace != p.Namespace || !selector.Matches(labels.Set(p.Labels)) {
				continue
			}
			for _, t := range l.Spec.PolicyTypes {
				egress, ingress = egress || t == networking.PolicyTypeEgress, ingress || t == networking.PolicyTypeIngress
			}
			for _, r := range l.Spec.Egress {
				out = append(out, passes(r.To, r.Ports, "daddr")...)
			}
			for _, r := range l.Spec.Ingress {
				in = append(in, passes(r.From, r.Ports, "saddr")...)
			}
		}
		if egress {
			fmt.Fprintf(&chains, "chain e%d {\n%s\ndrop\n}\n", i, strings.Join(out, "\n"))
			fmt.Fprintf(&from, "ip saddr %s jump e%d\n", p.Status.PodIP, i)
		}
		if ingress {
			fmt.Fprintf(&chains, "chain i%d {\n%s\ndrop\n}\n", i, strings.Join(in, "\n"))
			fmt.Fprintf(&to, "ip daddr %s jump i%d\n", p.Status.PodIP, i)
		}
	}
	return fmt.Sprintf(`table ip hutch
delete table ip hutch
table ip hutch {
%schain forward {
type filter hook forward priority 0; policy accept;
ct state established,related accept
%s%s}
chain input {
type filter hook input priority 0; policy accept;
ct state established,related accept
%s}
}
`, chains.String(), from.String(), to.String(), from.String())
}

// passes are the lines that let one rule's packets through. side is that of the other end.
func passes(peers []networking.NetworkPolicyPeer, ports []networking.NetworkPolicyPort, side string) (lines []string) {
	hosts := []string{""}
	if len(peers) > 0 {
		hosts = nil
	}
	for _, p := range peers {
		if p.IPBlock == nil || strings.Contains(p.IPBlock.CIDR, ":") {
			continue
		}
		host := "ip " + side + " " + p.IPBlock.CIDR + " "
		if len(p.IPBlock.Except) > 0 {
			host += "ip " + side + " != { " + strings.Join(p.IPBlock.Except, ", ") + " } "
		}
		hosts = append(hosts, host)
	}
	services := []string{""}
	if len(ports) > 0 {
		services = nil
	}
	for _, p := range ports {
		if p.Protocol != nil && p.Port != nil && p.EndPort == nil {
			services = append(services, fmt.Sprintf("%s dport %d ", strings.ToLower(string(*p.Protocol)), p.Port.IntVal))
		}
	}
	for _, h := range hosts {
		for _, s := range services {
			lines = append(lines, h+s+"return")
		}
	}
	return lines
}
