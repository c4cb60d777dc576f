package backendtest

import (
	"context"

	"google.golang.org/grpc"
)

// Target starts the backend under test. Both doors implement it.
type Target interface {
	// Start gives a fresh instance, which shares no memory with any other: a new
	// process, or in a test process a new value of the backend. The context bounds
	// the start alone.
	Start(ctx context.Context, opts StartOptions) (Plugin, error)
}

// StartOptions changes how one instance is started. The zero value is an
// ordinary start.
type StartOptions struct {
	// EmptyPath starts the plugin with a PATH that holds no program.
	EmptyPath bool
}

// Plugin is one running instance of the backend. Its methods may be called
// concurrently.
type Plugin interface {
	// Conn is where the service hutch.backend.v1.Backend answers.
	Conn() grpc.ClientConnInterface

	// PID is the plugin's process, or 0 when the instance lives in this process.
	PID() int

	// Abandon does what the kernel does when the host gets SIGKILL: the lifeline
	// and the connection are gone at once, and nobody says goodbye. It does not wait.
	Abandon()

	// Stop ends the instance in the ordinary way and releases what belongs to it. It
	// may be called after Abandon and more than once.
	Stop(ctx context.Context) error

	// Done is closed when the instance is gone.
	Done() <-chan struct{}

	// Log returns the last lines the plugin wrote to its standard error, for the
	// message of a failed check.
	Log() string
}
