// Command node holds one small Kubernetes in one binary; the first argument names the part to run. It is a module of
// its own, so that nothing else of hutch waits for Kubernetes' sources.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: node etcd|apiserver|manager|scheduler|kubelet|kubectl|policy ...")
		os.Exit(2)
	}
	part := os.Args[1]
	os.Args = append([]string{part}, os.Args[2:]...)
	var c *cobra.Command
	switch part {
	case "etcd":
		etcdmain.Main(os.Args)
		return
	case "policy":
		if err := policy(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "policy:", err)
			os.Exit(1)
		}
		return
	case "kubectl":
		c = cmd.NewDefaultKubectlCommand()
		if err := cli.RunNoErrOutput(c); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	case "apiserver":
		c = apiserver.NewAPIServerCommand()
	case "manager":
		c = manager.NewControllerManagerCommand()
	case "scheduler":
		c = scheduler.NewSchedulerCommand()
	case "kubelet":
		c = kubelet.NewKubeletCommand(context.Background())
	default:
		fmt.Fprintln(os.Stderr, "node: there is no part", part)
		os.Exit(2)
	}
	os.Exit(cli.Run(c))
}
