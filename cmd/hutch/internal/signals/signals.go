// Package signals catches the signals that end hutch. It imports next to nothing, so that Go initialises it among the
// first packages: a signal in the first milliseconds then ends hutch as any later one does.
package signals

import (
	"os"
	"os/signal"
	"syscall"
)

// C gets SIGINT, SIGTERM, SIGHUP and SIGQUIT from the start of the process.
var C = make(chan os.Signal, 2)

func init() { signal.Notify(C, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT) }
