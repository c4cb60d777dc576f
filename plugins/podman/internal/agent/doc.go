// Package agent is the host's end of the small program that is pid 1 of every
// Podman sandbox, and says what the two of them say to each other.
//
// `podman exec` starts three programs and asks the container's runtime, which
// costs 150 ms for each command. The agent is there already: the plugin connects
// to a unix socket of its, hands it the command and the command's streams, and
// has the command running a millisecond later.
//
// The far end is package server below this one, the program is
// plugins/podman/agent, and package wire holds the messages.
package agent
