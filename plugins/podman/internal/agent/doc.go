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
//
// # The way in
//
// The plugin makes the listening socket itself ([Listen]), in the sandbox's private
// state directory on the host, and the container's first process inherits it as a
// descriptor (podman run --preserve-fds 1). So the socket has a name on the host,
// by which later plugin processes find it, and none in the container: what runs
// there can neither connect to it, nor remove it, nor put another one in its place,
// nor fill the directory that it lies in.
//
// # Trust
//
// The agent runs as the user that commands run as. What keeps the two apart:
//
//	  reapers above each command. It hears no signals from within the container.
//	- It talks to nobody who has a process id in the container. The plugin talks to
//	  nobody but the container's first process, as the host numbers it ([Dial]).
//	- Commands inherit their three streams and no other descriptor.
//	- Neither end takes a message for granted: sizes are fixed, every field has its
//	  bounds, and what does not fit ends the connection with an error. Every wait
//	  on the host's side has a bound that its caller gives.
//
// A command may still kill the other commands of its own sandbox, whose user it is,
// and the reapers above them. The agent then looks after the commands itself, and
// ends what lost its reaper together with the last command that did.
package agent
