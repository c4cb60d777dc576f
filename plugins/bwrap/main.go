// Command hutch-backend-bwrap makes sandboxes out of Linux namespaces, with
// bubblewrap doing the unsharing.
//
// # How a sandbox is made
//
// Each sandbox has a holder: this binary again, in a user namespace and a mount
// namespace of its own (packages holder and stage). The holder puts the sandbox's
// root together once, with the workspace as an overlay that needs no copy, leaves
// the host's root for good, and then starts bwrap in it for each command, with
// everything unshared, no capability, a system call filter (package sdk/seccomp) and
// a pid 1 of ours (package microinit) that says how the command really ended.
// When the sandbox is destroyed, the holder drops its mounts and is used for the
// next one, if that comes soon: spares.go.
//
// Started by root, holder, bwrap and command run as an unprivileged host uid that
// nobody else has, and see the workspace through an id-mapped mount: identity.go.
//
// When the plugin dies, the holder ends (its socket does). When the holder ends, however
// it does, the kernel kills the rest: it is the first process of the namespace that
// bwrap and all commands are in.
package main

import (
	"runtime/debug"

	_ "github.com/hutch-run/hutch/plugins/bwrap/internal/stage" // a holder never reaches main
	"github.com/hutch-run/hutch/sdk"
)

// version is set when a release is built.
var version = "0.1.0"

func main() {
	// A short life makes a few megabytes of garbage. Collecting them begins at 16 MiB instead of 4.
	debug.SetGCPercent(400)
	sdk.Serve(newBackend())
}
