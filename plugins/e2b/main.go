// Command hutch-backend-e2b makes sandboxes out of E2B's cloud machines, or those of any service that speaks as E2B
// does.
//
// # How a sandbox is made
//
// Each sandbox is one machine of the service, found again by unique metadata. Workspace, input and further mounts are
// sent as one archive, packed on the way (push.go); a tree comes back as one archive, too, which is hostile (fetch.go).
//
// Nothing has to be installed in the machine: E2B's daemon there (internal/envd) starts commands, and a few lines of
// shell (scripts/) supervise them. Arguments and variables are sent in a file that only the command's user can read,
// because the daemon logs its requests.
//
// The service ends, or pauses, a machine whose life hutch does not extend, so a host that died costs nothing for long.
package main

import "github.com/hutch-run/hutch/sdk"

// version is set when a release is built.
var version = "0.1.0"

func main() { sdk.Serve(newBackend()) }
