// Package backend finds, verifies, launches, talks to and stops backend plugins.
//
// A [Pool] holds one process per backend and host run, shared by all runs. Its
// Start launches without waiting, so that a run file is parsed and checked meanwhile;
// Get waits. What a [Backend] offers is package sdk/client; this package adds
// the life of the process: its own process group, a lifeline that ends with the
// host, a private directory for its socket and FIFOs, a bounded stop, and an
// error that says how it died.
//
// # Trust
//
// A plugin runs as the user: hutch trusts what it is, and checks that it is that.
// Its name is matched before it becomes part of a path, it must lie where nobody
// else may write, its bytes are hashed, and the very file that was hashed is
// executed. Nothing that it says is trusted: first line, log lines, address,
// answers and exit codes are bounded and checked.
package backend
