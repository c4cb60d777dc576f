package network

import (
	"context"
	"net"
)

// Interceptor puts secrets into the connections of a command. Package intercept has one; a [Gate] without secrets needs
// none, and a program that only checks rules does not link it. Its methods may be called concurrently.
type Interceptor interface {
	// Covers reports whether connections to name on port may carry a secret. The gate relays all others itself.
	Covers(name string, port int) bool

	// Serve takes over conn, a command's connection to name on port that the rules allow, until it is over or ctx is.
	// It closes conn. Each call of dial makes a connection to an address that the rules admit.
	Serve(ctx context.Context, conn net.Conn, name string, port int, dial func(context.Context) (net.Conn, error)) Outcome
}

// Outcome is what came of a connection.
type Outcome struct {
	Sent, Received int64    // bytes by the command, and to it
	Secrets        []string // names of the secrets that were put in, sorted
	Reason         string   // the first request that was denied or failed, for a person; "" when all went well
}
