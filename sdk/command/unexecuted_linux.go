package command

import (
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/supervise"
	"github.com/hutch-run/hutch/sdk/supervise/microinit"
)

// Unexecuted says why an init never executed its command: as the command's end where the command is to blame, else as
// an error. Both are nil when it did. tried are the init's candidates, dir is where the command works.
func Unexecuted(child *supervise.Child, tried []string, dir string) (*sdk.Exit, error) {
	switch kind, errno := child.Failure(); kind {
	case 0:
		return nil, nil
	case microinit.NoExec:
		return NotStarted(errno, tried), nil
	case microinit.NoDir:
		return nil, sdk.Errorf(sdk.ReasonConfig, "the sandbox could not enter the directory %s to work in: %w", dir, errno)
	case microinit.NoFork:
		return nil, UsedUp(supervise.FailureText(kind), errno)
	default:
		return nil, sdk.Errorf(sdk.ReasonInternal, "the sandbox could not %s: %w", supervise.FailureText(kind), errno)
	}
}
