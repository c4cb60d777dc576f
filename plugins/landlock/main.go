// Command hutch-backend-landlock runs commands as processes of this machine that have restricted themselves: Landlock
// for files and signals, a system call filter for the rest, resource limits and sampling. It needs no namespace, no
// mount and no privilege, so it works in a container that refuses those, and isolates less than bwrap.
//
// Each command has a reaper (package sdk/supervise) and below it a launcher, this program again, which restricts itself
// and becomes the command (package launch). The plugin answers the system calls that the filter passes on to it
// (package arbiter). Commands run as the user who started hutch, without capabilities.
package main

import (
	"runtime/debug"

	_ "github.com/hutch-run/hutch/plugins/landlock/internal/launch" // a launcher never reaches main
	"github.com/hutch-run/hutch/sdk"
)

// version is set when a release is built.
var version = "0.1.0"

func main() {
	debug.SetGCPercent(400) // a short life makes little garbage
	sdk.Serve(&backend{})
}
