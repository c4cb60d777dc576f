// Command hutch-podman-agent is pid 1 of the sandboxes that the Podman backend
// makes: see package agent. It is no program for people.
package main

import (
	"fmt"
	"os"

	"github.com/hutch-run/hutch/plugins/podman/internal/agent/server"
)

func main() {
	err := fmt.Errorf("this program is started by hutch, in containers")
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		err = server.Main(os.Args[2:])
	}
	if len(os.Args) > 1 && os.Args[1] == "observe" {
		err = server.Observe()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hutch-podman-agent:", err)
		os.Exit(125)
	}
}
