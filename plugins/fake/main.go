// Command hutch-backend-fake is a backend of plain processes for tests. It
// isolates nothing (isolation "none"), keeps every promise of the contract
// that a plain process can keep, and breaks whichever one its block asks it to:
//
//	backend "fake" {
//	  crash_during = "exec"          # die by SIGKILL in the middle of it
//	  refuse_limits = ["memory"]     # as a machine without cgroups would
//	  lies = ["exit_code"]           # and not say so
//	}
//
// It is how hutch's own tests bring about what real backends do only on a bad day,
// and how the conformance suite is shown to bite. It is not shipped.
package main

import "github.com/hutch-run/hutch/sdk"

// They are set by the linker in tests that need two of them.
var (
	name    = "fake"
	version = "0.1.0"
)

func main() {
	readTraffic()
	speak()
	sdk.Serve(&backend{})
}
