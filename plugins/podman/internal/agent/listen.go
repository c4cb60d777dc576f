package agent

import (
	"fmt"
	"os"
	"time"

	"github.com/hutch-run/hutch/sdk/supervise"
)

// Path is where a container has to have the agent's program, mounted read-only.
// Its directory exists in every container.
const Path = "/run/hutch-agent"

// OwnPIDs is how many processes and threads of a container's limit are not the commands': the agent's threads, all made
// at its start and one less than this, and the reaper of a first command. Each further command takes one more than it
// is made of. On a busy machine Go's runtime may make one more thread, and the commands then have one process less than
// their limit.
const OwnPIDs = 10

// Options say how an agent behaves.
type Options struct {
	// Lifeline makes the agent exit, and with it the container, when no connection has
	// become its lifeline within that time; 0 lets it wait for ever.
	Lifeline time.Duration
	// Limits are resource limits of every command, soft and hard alike, by their names
	// in lower case: as core cpu data fsize memlock nofile nproc stack. The agent itself
	// keeps the container's.
	Limits map[string]uint64
}

// Args are the command of a container, beginning with [Path].
func Args(o Options) []string {
	args := []string{Path, "serve"}
	if o.Lifeline > 0 {
		args = append(args, "-lifeline", o.Lifeline.String())
	}
	for name, value := range o.Limits {
		args = append(args, "-rlimit", fmt.Sprintf("%s=%d", name, value))
	}
	return args
}

// Listen makes the socket at path on which the agent of a container that is about
// to be made will listen. The first process of the container must get it as its
// descriptor 3; nobody listens before that one does.
func Listen(path string) (*os.File, error) { return supervise.Bind(path) }
