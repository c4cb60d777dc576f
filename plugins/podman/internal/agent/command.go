package agent

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/plugins/podman/internal/agent/wire"
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
	// Observer, unless it is nil, gets the listener of Filter, which restricts the command as package notify says. It
	// stays the caller's.
	Observer *os.File
	Filter   []byte
}

// Init is what an observed command executes first.
var Init = fmt.Sprintf("/proc/self/fd/%d", wire.InitFD)

// Exit says how a command ended.
type Exit struct {
	Status syscall.WaitStatus
	// User and Sys are the processor time of the command and of all its descendants;
	// MaxRSS is the memory of the largest of them, in bytes.
	User, Sys time.Duration
	MaxRSS    int64
	// NotStarted is set for a command that was never executed, because of the command; the rest is zero then.
	NotStarted *sdk.Exit
	// Left says that something outlived the command and was killed.
	Left bool
}
