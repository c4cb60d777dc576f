// Command hutch-backend-lima runs sandboxes in virtual machines that Lima keeps.
//
// It drives limactl, the command line of Lima, and needs nothing else on the host: limactl makes, starts, stops and
// deletes the VM, and ssh, which limactl itself needs, leads into it. One VM serves many sandboxes, or each has its
// own.
//
// In the VM works a program of ours, which the backend brings along: see package guest, and package wire for how the
// two talk.
package main

import "github.com/hutch-run/hutch/sdk"

// version is set when a release is built.
var version = "0.1.0"

func main() { sdk.Serve(newBackend()) }
