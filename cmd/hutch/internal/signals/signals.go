// Package signals catches the signals that end hutch. It imports next to nothing, so that Go initialises it among the
// first packages: a signal in the first milliseconds then ends hutch as any later one does.
package signals

import (
	// catching takes longer than finding out who executes the command
	_ "github.com/hutch-run/hutch/cmd/hutch/internal/early"
	"github.com/hutch-run/hutch/host/resident/handover"
)

// C gets SIGINT, SIGTERM, SIGHUP and SIGQUIT from the start of the process.
var C = handover.Signals

func init() { handover.Catch() }
