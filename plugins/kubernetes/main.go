// Command hutch-backend-kubernetes runs sandboxes as pods of a Kubernetes cluster.
//
// A sandbox is one bare pod that meets the Pod Security Standard restricted. In it works a program of ours, which this
// one brings along: see package agent, and package wire for how the two talk over one exec. Started by hand with
// "manifests" it prints what an administrator has to apply.
package main

import (
	_ "embed"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/hutch-run/hutch/sdk"
)

// version is set when a release is built.
var version = "0.1.0"

// manifests are a namespace for sandboxes and the least rights that this backend needs there.
//
//go:embed manifests.yaml
var manifests string

func main() {
	klog.SetLogger(logr.Discard()) // what client-go has to say to a person is in its errors
	if len(os.Args) == 2 && os.Args[1] == "manifests" {
		fmt.Print(manifests)
		return
	}
	sdk.Serve(newBackend())
}
