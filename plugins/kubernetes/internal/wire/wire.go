// Package wire is what the Kubernetes backend and its program in the pod say to each other.
//
// The backend starts that program by an exec in the pod's container, one for all that a plugin process does there. Both
// ends speak as package remote says: [Request] is what each stream begins with. What follows depends on its Op; where
// that is no command, the last thing the pod says on the stream is a [remote.Reply].
package wire

import "github.com/hutch-run/hutch/sdk/supervise/remote"

// Version is the version of the protocol. The backend brings the program that it was built with, so the two differ only
// where an agent_image is of another version.
const Version = 1

// Op says what a stream is for.
type Op string

// The operations.
const (
	OpHello    Op = "hello"    // Box: what this connection is for -> Reply, whose State is a Hello as JSON
	OpFill     Op = "fill"     // Dir, then a tar up to the end of the stream: unpack it -> Reply
	OpReady    Op = "ready"    // have the init container end -> Reply
	OpSnapshot Op = "snapshot" // remember what the workspace looks like -> Reply
	OpChanges  Op = "changes"  // compare it with that -> Reply with Changes
	OpReset    Op = "reset"    // Hard: end all commands, empty what surrounds the workspace, and with Hard that -> Reply
	OpProbe    Op = "probe"    // Targets: connect to each -> Reply, whose State is a list of those that answered
	OpDial     Op = "dial"     // Port of the loopback -> Reply, and then the connection's bytes both ways
	OpExec     Op = "exec"     // Exec: run a command -> Events, while Controls go the other way
)

// Request is the first line of every stream.
type Request struct {
	Op      Op       `json:"op"`
	Box     *Box     `json:"box,omitempty"`
	Dir     string   `json:"dir,omitempty"`
	Hard    bool     `json:"hard,omitempty"`
	Targets []string `json:"targets,omitempty"` // HOST:PORT
	Port    int      `json:"port,omitempty"`

	Exec *remote.Exec `json:"exec,omitempty"`
	// Files runs the agent's own file operations instead: Argv are their arguments.
	Files bool `json:"files,omitempty"`
}

// Box says what a sandbox is like.
type Box struct {
	Output string `json:"output"` // its directory
	Files  uint64 `json:"files"`  // open files of each process; 0 leaves the limit alone
}

// Hello is what the pod says of itself.
type Hello struct {
	Version int    `json:"version"`
	Path    string `json:"path"`    // the image's PATH
	UID     int    `json:"uid"`     // whose commands they are
	UIDMap  string `json:"uid_map"` // /proc/self/uid_map
}

// Where things lie in a pod.
const (
	Dir   = "/hutch"        // read-only for commands
	Agent = Dir + "/agent"  // this program
	Ready = Dir + "/ready"  // is there when the init container may end
	State = "/hutch-state"  // of the agent
	Base  = State + "/base" // what the workspace looked like
	Home  = "/home/hutch"   // of commands
)

// Exit codes of the agent.
const (
	Lost   = 75  // no client came within its lease
	Broken = 125 // it cannot work
)
