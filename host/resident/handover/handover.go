// Package handover is the client of package resident. It imports nothing but a little of the standard library, so that
// a program can hand its command over before Go initialises the rest of it, which takes longer than all that the client
// does: neither package strings nor encoding/binary, because with unicode and reflect, which those import, half of the
// program comes first.
package handover

import (
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

// Dir is the directory of the resident's socket: private, the same for all processes of a user, and never shown to a
// sandbox. It need not exist.
func Dir() string {
	// it must fit into the address of a socket
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" && dir[0] == '/' && len(dir) < 80 {
		return dir + "/hutch/serve"
	}
	return "/tmp/hutch-" + strconv.Itoa(os.Geteuid()) + "-serve"
}

// Signals gets SIGINT, SIGTERM, SIGHUP and SIGQUIT once Catch was called.
var Signals = make(chan os.Signal, 2)

// Catch has Signals get signals. It takes a while, for Go starts a thread.
func Catch() { signal.Notify(Signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT) }
