// Command hutch-kubernetes-agent works in the pods of the Kubernetes backend: see package agent. It is no program for
// people.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/hutch-run/hutch/plugins/kubernetes/internal/agent"
	"github.com/hutch-run/hutch/plugins/kubernetes/internal/wire"
	"github.com/hutch-run/hutch/sdk/guestfiles"
)

func main() {
	err := fmt.Errorf("this program is started by hutch, in pods")
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "init":
			err = agent.Init(os.Args[2:])
		case "serve":
			err = agent.Serve(os.Args[2:])
		case "attach":
			err = agent.Attach(context.Background())
		case "files":
			if guestfiles.Files(os.Args[2:]) != nil {
				os.Exit(1) // it has said why
			}
			return
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hutch-kubernetes-agent:", err)
		os.Exit(wire.Broken)
	}
}
