// Command hutch-backend-podman makes sandboxes out of Podman containers, rootless or rootful, with the podman command
// alone: no daemon, no API service.
//
// # How a sandbox is made
//
// Each sandbox is one container, named after it and labelled with all that is needed to find it again. Its first
// process is a small static agent of ours, mounted read-only (packages agent and internal/agent), which starts
// commands, reaps what they leave, and ends a whole command at once; it is reached over a unix socket outside the
// workspace.
//
// The project is never copied: /workspace is an overlay over it, made by Podman where this machine lets it
// (overlay.go), and what is written lies in the sandbox's own state directory.
//
// A sandbox that is not to be kept ends with its plugin: the agent ends when its lifeline does, and with it the
// container.
package main

import (
	"fmt"
	"os"

	"github.com/hutch-run/hutch/sdk"
)

// version is set when a release is built.
var version = "0.1.0"

func main() {
	if len(os.Args) > 1 && os.Args[1] == filterCommand {
		if err := filterNetwork(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	sdk.Serve(newBackend())
}
