// Command hutch-backend-e2b makes sandboxes out of E2B's cloud machines, or those of any service that speaks as E2B
// does.
//
// # How a sandbox is made
//
// Each sandbox is one machine of the service, found again by metadata that no other one has. What the run is to see,
// workspace, input and further mounts, travels in one archive, packed while it is sent (push.go); what comes back does
// in one archive as well, and is taken apart as what a stranger sends (fetch.go).
//
// Nothing has to be installed in the machine: commands are started by the daemon that E2B has there (internal/envd),
// and looked after by a few lines of shell (scripts/). Arguments and variables go with a file that only the command's
// user can read, for the daemon writes what it is told to a log.
//
// The service ends, or pauses, a machine of which hutch has not been heard for a while, so a host that died costs
// nothing for long.
package main

import "github.com/hutch-run/hutch/sdk"

// version is set when a release is built.
var version = "0.1.0"

func main() { sdk.Serve(newBackend()) }
