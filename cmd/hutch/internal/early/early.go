// Package early hands commands over to `hutch serve`. It imports next to nothing, so that Go initialises it among the
// first packages: a command that is executed elsewhere does not wait for the others, which take longer than all the
// rest.
package early

import (
	"os"

	"github.com/hutch-run/hutch/host/resident/handover"
)

// Why says why a command was not handed over, "" when nothing serves.
var Why string

// Try hands a command over, if it is one that is, and ends this process with its exit code.
func Try(args []string) {
	if len(args) == 0 || args[0] != "run" && args[0] != "exec" {
		return
	}
	code, taken, why := handover.Do(args)
	if taken {
		os.Exit(code)
	}
	Why = why
}

func init() {
	if len(os.Args) > 1 {
		Try(os.Args[1:])
	}
}
