package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
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

// boxTools are the tools for what is in a sandbox: those of package tools, with an argument that names the sandbox.
func (s *Server) boxTools() {
	for _, t := range tools.ClientSet() {
		in, out := &jsonschema.Schema{}, (*jsonschema.Schema)(nil)
		err := json.Unmarshal(t.Schema, in)
		if err == nil {
			out, err = jsonschema.ForType(t.Answer, nil)
		}
		if err != nil {
			panic(err) // both are part of the program
		}
		in.Properties["sandbox"] = &jsonschema.Schema{Type: "string", Description: "name of the sandbox"}
		in.Required = append(in.Required, "sandbox")
		d := s.describe(t.Def)
		d.InputSchema, d.OutputSchema = in, out
		mcp.AddTool(s.server, d, func(ctx context.Context, _ *mcp.CallToolRequest, args map[string]any) (*mcp.CallToolResult, any, error) {
			name, _ := args["sandbox"].(string)
			if err := s.may(name); err != nil {
				return nil, nil, err
			}
			delete(args, "sandbox")
			rest, err := json.Marshal(args)
			if err != nil {
				return nil, nil, err
			}
			r := t.Call(ctx, &tools.Box{Manager: s.o.Manager, Name: name, Jobs: s.jobs}, string(rest))
			if r.Err != nil {
				return nil, nil, errors.New(r.Text)
			}
			return nil, json.RawMessage(r.Text), nil
		})
	}
	tool(s, tools.Def{Name: "job_output", Title: "Read a job's output", Effect: tools.Reads,
		Description: "Reads on in the output of a command, and says whether it runs still. With \"wait\", waits until " +
			"it has ended, up to that."}, s.jobs.Output)
	tool(s, tools.Def{Name: "stop_job", Title: "End a job", Effect: tools.Idempotent,
		Description: "Ends a command and all its processes. One that has ended is left as it is."}, s.jobs.End)
}

// tool adds one tool.
func tool[In, Out any](s *Server, d tools.Def, fn func(ctx context.Context, in In) (Out, error)) {
	mcp.AddTool(s.server, s.describe(d), func(ctx context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
		out, err := fn(ctx, in)
		return nil, out, err
	})
}

// describe is a tool as clients see it, but for its schemas.
func (s *Server) describe(d tools.Def) *mcp.Tool {
	destroys, opens := d.Effect == tools.Destroys, d.Name == "exec" && (s.o.Network || len(s.o.AllowHosts) > 0)
	return &mcp.Tool{Name: d.Name, Title: d.Title, Description: d.Description, Annotations: &mcp.ToolAnnotations{
		Title: d.Title, ReadOnlyHint: d.Effect == tools.Reads, DestructiveHint: &destroys, OpenWorldHint: &opens,
		IdempotentHint: d.Effect == tools.Reads || d.Effect == tools.Idempotent,
	}}
}
