package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hutch-run/hutch/host/agent/tools"
	"github.com/hutch-run/hutch/host/judge"
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
	Network    bool           // sandboxes may ask for the whole network, or any part of it
	AllowHosts []string       // rules that sandboxes may ask for, without Network
	Limits     runfile.Limits // of every sandbox that is made
	Sandboxes  []string       // names of sandboxes that exist already and may be used; they cannot be destroyed

	// Ledger is where changes are brought back to projects; nil leaves the tool for that out.
	Ledger *review.Ledger
	// Allow is what may be brought back although it is refused by default.
	Allow map[judge.Rule]bool

	Keep bool // Close leaves the sandboxes that were made
	// Remover is called before a sandbox is made, and has to see to it that Options.Manager's sandboxes are removed should
	// this process be killed; nil for nobody.
	Remover func() error
}

// Server is a server with its sandboxes and jobs. It is safe for concurrent use by any number of clients.
type Server struct {
	o      Options
	server *mcp.Server
	jobs   *tools.Jobs

	mu   sync.Mutex
	made map[string]bool // names of the sandboxes that were made here
}

const instructions = `Sandboxes that run code which nobody has to trust. create_sandbox makes one, exec runs commands in it, the file tools read and change its workspace, diff shows what differs from the project that it was made on. Nothing reaches the project unless apply brings it back. A command that takes longer than "wait" goes on as a job; job_output reads on.`

// New returns a server. Nothing is started yet.
func New(o Options) *Server {
	s := &Server{o: o, made: map[string]bool{}}
	s.jobs = tools.NewJobs(context.Background())
	s.server = mcp.NewServer(&mcp.Implementation{Name: "hutch", Title: "hutch sandboxes", Version: o.Version},
		&mcp.ServerOptions{Instructions: instructions, Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}})
	s.lifeTools()
	s.boxTools()
	s.reviewTools()
	return s
}

// ServeStdio serves one client on stdin and stdout, until it hangs up or ctx ends.
func (s *Server) ServeStdio(ctx context.Context) error {
	err := s.server.Run(ctx, &mcp.StdioTransport{MaxLineLength: maxRequest})
	if ctx.Err() != nil || err == nil {
		return nil
	}
	var file *fs.PathError
	if errors.As(err, &file) { // stdin or stdout itself
		return err
	}
	what := "what came on stdin is no message of the Model Context Protocol"
	if errors.Is(err, io.ErrUnexpectedEOF) {
		what = "stdin ended in the middle of a message"
	}
	return fmt.Errorf("%s: each is a JSON object in a line of its own, with \"jsonrpc\": \"2.0\" and at most %d MiB; a client writes them, docs/mcp.md shows how to add hutch to one", what, maxRequest>>20)
}

// Close ends all jobs, and destroys the sandboxes that were made, unless Options.Keep. It returns those that are left.
func (s *Server) Close(ctx context.Context) (left []string, err error) {
	s.jobs.Close(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.made {
		if !s.o.Keep {
			e := s.o.Manager.Remove(ctx, name, true)
			if e == nil || errors.Is(e, store.ErrNoSandbox) { // somebody else removed it
				delete(s.made, name)
				continue
			}
			err = errors.Join(err, e) // it names the sandbox
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
	return fmt.Errorf("there is no sandbox %q here; create_sandbox makes one, and list_sandboxes lists those that there are", tools.Clip(name))
}

// box is a sandbox that a client may use, for its tools.
func (s *Server) box(name string) (*tools.Box, error) {
	return &tools.Box{Manager: s.o.Manager, Name: name, Jobs: s.jobs}, s.may(name)
}

// tool adds one tool.
func tool[In, Out any](s *Server, d tools.Def, fn func(ctx context.Context, in In) (Out, error)) {
	yes, no := true, false
	a := &mcp.ToolAnnotations{Title: d.Title, ReadOnlyHint: d.Effect == tools.Reads, IdempotentHint: d.Effect == tools.Reads || d.Effect == tools.Idempotent, DestructiveHint: &no, OpenWorldHint: &no}
	if d.Effect == tools.Destroys {
		a.DestructiveHint = &yes
	}
	if d.Name == "exec" && (s.o.Network || len(s.o.AllowHosts) > 0) {
		a.OpenWorldHint = &yes
	}
	mcp.AddTool(s.server, &mcp.Tool{Name: d.Name, Title: d.Title, Description: d.Description, Annotations: a},
		func(ctx context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
			out, err := fn(ctx, in)
			return nil, out, err
		})
}
