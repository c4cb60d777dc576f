package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hutch-run/hutch/host/files"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/review"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
)

// Options say what the clients of a server may do.
type Options struct {
	Manager *sandbox.Manager
	Version string // of hutch

	Backend    string         // of the sandboxes that are made
	Workspaces []string       // directories, absolute, that sandboxes may be made on, privately; the first one unless another is asked for
	Network    bool           // sandboxes may ask for the network
	Limits     runfile.Limits // of every sandbox that is made
	Sandboxes  []string       // names of sandboxes that exist already and may be used; they cannot be destroyed

	// Ledger is where changes are brought back to projects; nil leaves the tool for that out.
	Ledger *review.Ledger
	// Allow is what may be brought back although it is refused by default.
	Allow map[review.Rule]bool

	Keep bool // Close leaves the sandboxes that were made
}

// Server is a server with its sandboxes and jobs. It is safe for concurrent use by any number of clients.
type Server struct {
	o      Options
	server *mcp.Server
	ctx    context.Context // of jobs
	cancel context.CancelFunc

	mu   sync.Mutex
	made map[string]bool // names of the sandboxes that were made here
	jobs jobs
}

const instructions = `Sandboxes that run code which nobody has to trust. create_sandbox makes one, exec runs commands in it, the file tools read and change its workspace, diff shows what differs from the project that it was made on. Nothing reaches the project unless apply brings it back. A command that takes longer than "wait" goes on as a job; job_output reads on.`

// New returns a server. Nothing is started yet.
func New(o Options) *Server {
	s := &Server{o: o, made: map[string]bool{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.jobs.init()
	s.server = mcp.NewServer(&mcp.Implementation{Name: "hutch", Title: "hutch sandboxes", Version: o.Version},
		&mcp.ServerOptions{Instructions: instructions, Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}})
	s.lifeTools()
	s.commandTools()
	s.fileTools()
	s.reviewTools()
	return s
}

// ServeStdio serves one client on stdin and stdout, until it hangs up or ctx ends.
func (s *Server) ServeStdio(ctx context.Context) error {
	err := s.server.Run(ctx, &mcp.StdioTransport{})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Close ends all jobs, and destroys the sandboxes that were made, unless Options.Keep. It returns those that are left.
func (s *Server) Close(ctx context.Context) (left []string, err error) {
	s.cancel()
	s.jobs.wait(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.made {
		if !s.o.Keep {
			e := s.o.Manager.Remove(ctx, name, true)
			if e == nil || errors.Is(e, store.ErrNoSandbox) { // somebody else removed it
				delete(s.made, name)
				continue
			}
			err = errors.Join(err, fmt.Errorf("sandbox %s: %w", name, e))
		}
		left = append(left, name)
	}
	slices.Sort(left)
	return left, err
}

// may checks that a client may use a sandbox.
func (s *Server) may(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made[name] || slices.Contains(s.o.Sandboxes, name) {
		return nil
	}
	if name == "" {
		return errors.New("no sandbox is named; create_sandbox makes one, and list_sandboxes lists those that there are")
	}
	return fmt.Errorf("there is no sandbox %q here; create_sandbox makes one, and list_sandboxes lists those that there are", clip(name))
}

// withFiles calls fn with the files of a sandbox.
func (s *Server) withFiles(ctx context.Context, name string, fn func(f *files.Files) error) error {
	if err := s.may(name); err != nil {
		return err
	}
	sb, err := s.o.Manager.Look(ctx, name)
	if err != nil {
		return explain(err)
	}
	defer func() { _ = sb.Close() }()
	f, err := sb.Files(files.Options{})
	if err != nil {
		return explain(err)
	}
	defer func() { _ = f.Close() }()
	return explain(fn(f))
}

// explain adds to an error what to do about it, since a client sees nothing but its text.
func explain(err error) error {
	var fe *files.Error
	var fail *result.Failure
	switch {
	case errors.As(err, &fe) && fe.Hint != "":
		return fmt.Errorf("%w; %s", err, fe.Hint)
	case errors.As(err, &fail) && len(fail.Diagnostics) > 0:
		for _, d := range fail.Diagnostics {
			if d.Fix != "" {
				return fmt.Errorf("%w; %s", err, d.Fix)
			}
		}
	}
	return err
}

func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "…"
	}
	return s
}

// hints are what a tool does to its surroundings.
type hints int

const (
	reads      hints = iota // changes nothing
	adds                    // changes something inside of a sandbox, and destroys nothing
	idempotent              // a second time changes nothing further
	destroys                // takes something away
)

// tool adds one tool.
func tool[In, Out any](s *Server, name, title, description string, h hints, fn func(ctx context.Context, in In) (Out, error)) {
	yes, no := true, false
	a := &mcp.ToolAnnotations{Title: title, ReadOnlyHint: h == reads, IdempotentHint: h == reads || h == idempotent, DestructiveHint: &no, OpenWorldHint: &no}
	if h == destroys {
		a.DestructiveHint = &yes
	}
	if name == "exec" && s.o.Network {
		a.OpenWorldHint = &yes
	}
	mcp.AddTool(s.server, &mcp.Tool{Name: name, Title: title, Description: description, Annotations: a},
		func(ctx context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
			out, err := fn(ctx, in)
			return nil, out, err
		})
}
