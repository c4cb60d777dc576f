package agent

import (
	"fmt"
	"github.com/hutch-run/hutch/sdk/supervise"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/sdk"
)

// Command is one command to run in the container, with the user, the rlimits and
// the capabilities of the container itself.
type Command struct {
	Argv []string // Argv[0] is looked up in the PATH of Env unless it holds a slash
	Env  []string // the whole environment, NAME=VALUE each
	Dir  string   // absolute path in the container; it must exist

	// Stdin, Stdout and Stderr become the command's own. None may be nil, and they
	// stay the caller's to close. As with exec.Cmd they become blocking. They are not
	// used when there is a Terminal.
	Stdin, Stdout, Stderr *os.File

	// Terminal gives the command a terminal of this size, made in the container's
	// /dev/pts, as its controlling terminal and all three streams.
	Terminal *sdk.WindowSize
}

// Exit says how a command ended.
type Exit struct {
	Status syscall.WaitStatus
	// User and Sys are the processor time of the command and of all its descendants;
	// MaxRSS is the memory of the largest of them, in bytes.
	User, Sys time.Duration
	MaxRSS    int64
	// Left says that something outlived the command and was killed.
	Left bool
}

// NotRunnable says that a command was never executed, because of the command.
type NotRunnable struct {
	Errno syscall.Errno // of execve
	Tried []string      // the paths that were tried, in order
}

func (e *NotRunnable) Error() string { return fmt.Sprintf("%v (tried %q)", e.Errno, e.Tried) }

// candidates lists the paths that execvp would try.
func (cmd *Command) candidates() []string {
	name := cmd.Argv[0]
	if strings.Contains(name, "/") {
		return []string{name}
	}
	search := DefaultPath
	for _, e := range cmd.Env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			search = v
		}
	}
	var out []string
	for _, dir := range strings.Split(search, ":") {
		if dir == "" {
			dir = "." // as in any shell
		}
		out = append(out, path.Join(dir, name))
	}
	return out
}

// DefaultPath is where a command without a PATH is looked for.
const DefaultPath = supervise.DefaultPath
