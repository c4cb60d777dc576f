// Package mcp serves sandboxes to clients of the Model Context Protocol: a coding agent makes sandboxes, runs commands
// in them, works with their files, and shows what they changed.
//
// A client decides what happens inside of sandboxes, and nothing else. Which directories of this host a sandbox may be
// made on, which backend is used, which limits hold, whether there is a network, and whether anything may be brought
// back to a project are [Options] of the user who starts the server. A client sees the sandboxes that were made through
// this server and those that the options name, and no others.
//
// Answers are bounded and paged. What goes wrong in a tool is an answer marked as an error, in words for a model; it is
// never the end of the session. A command is a run with a record like any other.
package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hutch-run/hutch/host/agent/mcp/call"
	"github.com/hutch-run/hutch/host/agent/tools"
	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/host/loopback"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/session"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/workspace"
	"github.com/hutch-run/hutch/host/workspace/review"
)

// Options say what the clients of a server may do: what was called for, with Backend chosen, and how it is done.
type Options struct {
	call.Call
	Manager *sandbox.Manager
	// Ledger is where changes are brought back to projects; nil leaves the tool for that out.
	Ledger *review.Ledger
	// Allowed is what may be brought back although it is refused by default.
	Allowed map[judge.Rule]bool
	// Remover is called before a sandbox is made, and has to see to it that Manager's sandboxes are removed should this
	// process be killed; nil for nobody.
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
	return fmt.Errorf("%s: each is a JSON object in a line of its own, with \"jsonrpc\": \"2.0\" and at most %d MiB; a "+
		"client writes them, docs/mcp.md shows how to add hutch to one", what, maxRequest>>20)
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
	return fmt.Errorf("there is no sandbox %q here; create_sandbox makes one, and list_sandboxes lists those that "+
		"there are", tools.Clip(name))
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
		// The tool checks its arguments itself, in words for a model.
		s.server.AddTool(d, func(ctx context.Context, q *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			defer progress(ctx, q)()
			answer, err := s.callBoxTool(ctx, &t, q.Params.Arguments)
			if err != nil {
				failed := &mcp.CallToolResult{}
				failed.SetError(err)
				return failed, nil
			}
			r := plain(answer)
			r.StructuredContent = answer
			return r, nil
		})
	}
	tool(s, tools.Def{Name: "job_output", Title: "Read a job's output", Effect: tools.Reads,
		Description: "Reads on in the output of a command, and says whether it runs still. With \"wait\", waits until " +
			"it has ended, up to that."}, s.jobs.Output)
	tool(s, tools.Def{Name: "stop_job", Title: "End a job", Effect: tools.Idempotent,
		Description: "Ends a command and all its processes. One that has ended is left as it is."}, s.jobs.End)
}

func (s *Server) callBoxTool(ctx context.Context, t *tools.Tool, arguments json.RawMessage) (json.RawMessage, error) {
	var args map[string]json.RawMessage
	if len(arguments) > 0 {
		if err := json.Unmarshal(arguments, &args); err != nil {
			return nil, fmt.Errorf("the arguments are not a JSON object: %w", err)
		}
	}
	var name string
	if given, ok := args["sandbox"]; ok {
		if err := json.Unmarshal(given, &name); err != nil {
			return nil, errors.New("the argument \"sandbox\" must be a string")
		}
	}
	if err := s.may(name); err != nil {
		return nil, err
	}
	delete(args, "sandbox")
	rest, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	r := t.Call(ctx, &tools.Box{Manager: s.o.Manager, Name: name, Jobs: s.jobs}, string(rest))
	if r.Err != nil {
		return nil, errors.New(r.Text)
	}
	return json.RawMessage(r.Text), nil
}

// tool adds one tool.
func tool[In, Out any](s *Server, d tools.Def, fn func(ctx context.Context, in In) (Out, error)) {
	mcp.AddTool(s.server, s.describe(d), func(ctx context.Context, q *mcp.CallToolRequest, in In) (*mcp.CallToolResult,
		Out, error) {
		defer progress(ctx, q)()
		out, err := fn(ctx, in)
		if err != nil {
			return nil, out, err
		}
		data, err := json.Marshal(out)
		return plain(data), out, err
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

// EnvToken is the variable with the bearer token of HTTP's clients, where no file has it.
const EnvToken = "HUTCH_MCP_TOKEN"

// Serve does what a call asks for until its client hangs up, or ctx ends. note prints a message for the user.
func Serve(ctx context.Context, c *call.Call, note func(format string, args ...any)) (err error) {
	if c.RemoverOf != nil {
		awaitServer()
	}
	s, err := session.Open(session.Options{Version: c.Version, Executable: c.Hutch,
		Warn: func(line string) { note("%s", line) }})
	if err != nil {
		return err
	}
	closing := func(f func(ctx context.Context) error) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = errors.Join(err, f(ctx))
	}
	defer closing(s.Close)
	conf, err := s.Config()
	if err != nil {
		return err
	}
	manager, err := s.Sandboxes(nil)
	if err != nil {
		return err
	}
	if c.RemoverOf != nil {
		return remove(manager, *c.RemoverOf)
	}
	if self := store.Self(); !c.Keep {
		manager = manager.With(func(o *run.Options) { o.EndsWith = &self })
	}
	o := Options{Call: *c, Manager: manager, Allowed: map[judge.Rule]bool{}}
	o.Backend = cmp.Or(c.Backend, conf.Backend, "bwrap")
	if !c.Keep {
		o.Remover = sync.OnceValue(func() error { return startRemover(*c) })
	}
	for _, r := range c.Allow {
		o.Allowed[r] = true
	}
	for _, name := range c.Sandboxes {
		if _, err := s.Store().FindSandbox(name); err != nil {
			return err
		}
	}
	if c.Apply {
		o.Ledger = workspace.Ledger(s.Store())
	}
	server := New(o)
	defer closing(func(ctx context.Context) error {
		left, err := server.Close(ctx)
		if len(left) > 0 {
			note("left: %s", strings.Join(left, ", "))
		}
		return err
	})
	defer context.AfterFunc(ctx, func() {
		if !c.Keep {
			note("stopping; its sandboxes are removed, by another process of hutch if this one is killed")
		}
	})()
	if c.Listen == "" {
		return server.ServeStdio(ctx)
	}
	token, made, err := tokenOf(c)
	if err != nil {
		return err
	}
	l, err := loopback.Listen(c.Listen)
	if err != nil {
		return err
	}
	note("serving http://%s/mcp", l.Addr())
	if made {
		note("bearer token: %s", token)
	}
	return server.ServeHTTP(ctx, l, token)
}

// tokenOf is the token from its file or the environment, or a new one.
func tokenOf(c *call.Call) (token string, made bool, err error) {
	token, where := os.Getenv(EnvToken), EnvToken
	switch {
	case c.TokenFile != "":
		where = "--token-file " + c.TokenFile
		b, err := os.ReadFile(c.TokenFile)
		if err != nil {
			return "", false, fmt.Errorf("--token-file: %w", err)
		}
		token = strings.TrimSpace(string(b))
	case token == "":
		return rand.Text(), true, nil
	}
	if len(token) < minToken {
		return "", false,
			fmt.Errorf("%s: the token has %d characters, and needs %d; head -c 24 /dev/urandom | base64 makes one", where,
				len(token), minToken)
	}
	return token, false, nil
}

// maxRequest is how many bytes a request may have: a file to write, in JSON.
const maxRequest = 16 << 20

// minToken is how many characters a token has at least.
const minToken = 16

// ServeHTTP serves any number of clients at /mcp until ctx ends. Every request needs the token as its bearer.
func (s *Server) ServeHTTP(ctx context.Context, l net.Listener, token string) error {
	if len(token) < minToken {
		return fmt.Errorf("the token has less than %d characters", minToken)
	}
	return loopback.Serve(ctx, l, s.handler(l.Addr().(*net.TCPAddr).Port, token))
}

// handler checks a request before any of it is looked at. Sessions are not kept, so that nothing but a POST does
// anything: a GET or DELETE is refused.
func (s *Server) handler(port int, token string) http.Handler {
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.server }, &mcp.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, MaxRequestBodyBytes: maxRequest, PropagateRequestCancellation: true,
	})
	hosts := []string{fmt.Sprintf("localhost:%d", port), fmt.Sprintf("127.0.0.1:%d", port), fmt.Sprintf("[::1]:%d", port)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case !slices.Contains(hosts, r.Host): // a name of somebody else's that leads here
			http.Error(w, "this host is not served", http.StatusForbidden)
		case r.Header.Get("Origin") != "": // a page in a browser
			http.Error(w, "no origin is served", http.StatusForbidden)
		case !bearer || subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
		case r.URL.Path != "/mcp":
			http.NotFound(w, r)
		case r.Method != http.MethodPost:
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "only POST does anything here", http.StatusMethodNotAllowed)
		default:
			inner.ServeHTTP(w, r)
		}
	})
}

// Coding agents kill a server some 100 ms after they asked it to end, which is before sandboxes are removed. So a
// server that makes sandboxes starts a remover: this program once more, in its own session, that waits for
// the end of a pipe of the server, and then removes what is left. Should it be killed too, the records say with
// which process the sandboxes end, and the next command removes them.

// lifeline is the end of the pipe that the kernel closes when the server is gone.
var lifeline *os.File //nolint:unused // it is never read, and must not be collected: that would close it

// startRemover starts the remover of this process.
func startRemover(c call.Call) error {
	self := store.Self()
	c.RemoverOf = &self
	argument, err := json.Marshal(c)
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	// Nothing of the client's: it may wait for the end of our stderr.
	cmd := exec.Command(exe, call.Subcommand, string(argument))
	cmd.Dir, cmd.Stdin, cmd.SysProcAttr = "/", r, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the process that removes sandboxes when this one is killed: %w", err)
	}
	lifeline = w
	return cmd.Process.Release()
}

// awaitServer is how the remover waits until the server is gone.
func awaitServer() {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// remove is what the remover does then. It goes on for some minutes when a backend cannot remove a sandbox.
func remove(m *sandbox.Manager, owner store.Process) error {
	for wait := time.Second; ; wait *= 2 {
		err := m.RemoveAllOf(context.Background(), owner)
		if err == nil || wait > time.Minute {
			return err
		}
		time.Sleep(wait)
	}
}
