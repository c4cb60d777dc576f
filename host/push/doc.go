// Package push sends the branch that is checked out, and a plan, into a persistent sandbox, and runs there what the run
// file names.
//
// It works over the ordinary contract, on every backend whose sandboxes have git. The branch travels as a git bundle:
// through the directory that host and sandbox both see, where the backend has one ([sdk.Ready.Exchange]), else as a
// single file. In the sandbox, the workspace has two directories: the clone, which is called as the sandbox is, and the
// exchange.
//
// Package pull brings the commits back.
package push
