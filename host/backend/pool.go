package backend

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// Options tune a [Pool].
type Options struct {
	// Dir is a private directory (0700) with a short path for sockets and FIFOs, such
	// as store.RuntimeDir.Path. Required. The caller removes it after Close.
	Dir string

	// CacheDir keeps the hashes and descriptions of binaries; "" keeps none.
	CacheDir string

	// LogDir gets one file per process, NAME.log, with all that it wrote on stderr; ""
	// keeps only the last lines in memory.
	LogDir string

	// Paths are directories or files to look at first, from a development override.
	Paths []string

	// Environ is the environment of the host, as os.Environ returns it; nil means that.
	Environ []string

	// Executable is the path of the host, beside which ../libexec/hutch lies; ""
	// means os.Executable.
	Executable string

	HostVersion string       // told to backends
	Logger      hclog.Logger // gets what backends log; nil drops it

	StartTimeout time.Duration // from exec to the first line; 0 means 10 s
	StopTimeout  time.Duration // for Drain; 0 means 30 s. A process that does not answer is killed after it
	Slack        time.Duration // see client.Options.Slack
}

// Pool launches backends, each once. Its methods may be called concurrently.
type Pool struct{}

// NewPool returns a pool; it starts nothing.
func NewPool(opt Options) *Pool { return &Pool{} }

var errTodo = errors.New("not implemented")

// Start begins to launch a backend and returns at once. What goes wrong is told by Get.
func (p *Pool) Start(name string) {}

// Facts returns what a backend says about itself. When its binary is known from
// before, this does not wait for the process.
func (p *Pool) Facts(ctx context.Context, name string) (*sdk.Facts, error) { return nil, errTodo }

// Get returns a running backend, launched now if need be. An error is a
// *NotFoundError, a *StartError or the end of ctx. A backend that died is not launched again.
func (p *Pool) Get(ctx context.Context, name string) (*Backend, error) { return nil, errTodo }

// Open launches the binary at path, for tools that test one; it is not looked up by name.
func (p *Pool) Open(ctx context.Context, path string) (*Backend, error) { return nil, errTodo }

// Names lists the backends that can be found, sorted, each once.
func (p *Pool) Names() []string { return nil }

// Close drains and stops all processes, at once, and returns when all are gone.
// When ctx ends they are killed.
func (p *Pool) Close(ctx context.Context) error { return errTodo }

// Kill kills all process groups without asking, for a second Ctrl-C.
func (p *Pool) Kill() {}

// Backend is a running plugin process. Its calls are those of [client.Client]:
// Describe, Check, Plan, Create, Attach, List, Destroy. Every error they return
// is an *Error that names the backend and the call; errors.As finds an
// *sdk.Error in it when the backend failed, and a *DiedError when its process ended.
type Backend struct {
	*client.Client

	Name   string    // as in hutch-backend-NAME
	Path   string    // of the binary, links resolved
	SHA256 string    // of the binary, in hex
	Facts  sdk.Facts // what it says about itself
	PID    int
	Log    string // file with its log, "" when none is kept
}

// Done is closed when the process has ended.
func (b *Backend) Done() <-chan struct{} { return nil }

// Stop drains and stops the process.
func (b *Backend) Stop(ctx context.Context) error { return errTodo }
