package agents

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/coder/acp-go-sdk"

	"github.com/hutch-run/hutch/test/e2e"
)

// editor shows what an agent says, allows everything, and has no files and no terminals for it.
type editor struct {
	mu   sync.Mutex
	said strings.Builder
	seen []string // paths that the agent named
}

func (e *editor) SessionUpdate(_ context.Context, n acp.SessionNotification) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if m := n.Update.AgentMessageChunk; m != nil && m.Content.Text != nil {
		e.said.WriteString(m.Content.Text.Text)
	}
	if c := n.Update.ToolCall; c != nil {
		for _, l := range c.Locations {
			e.seen = append(e.seen, l.Path)
		}
	}
	return nil
}

func (e *editor) RequestPermission(_ context.Context, r acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
	for _, o := range r.Options {
		if o.Kind == acp.PermissionOptionKindAllowOnce {
			return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeSelected(o.OptionId)}, nil
		}
	}
	return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeCancelled()}, nil
}

var errAsked = errors.New("an agent in a sandbox asked the editor for its files or terminals")

func (e *editor) ReadTextFile(context.Context, acp.ReadTextFileRequest) (r acp.ReadTextFileResponse, err error) {
	return r, errAsked
}

func (e *editor) WriteTextFile(context.Context, acp.WriteTextFileRequest) (r acp.WriteTextFileResponse, err error) {
	return r, errAsked
}

func (e *editor) CreateTerminal(context.Context, acp.CreateTerminalRequest) (r acp.CreateTerminalResponse, err error) {
	return r, errAsked
}

func (e *editor) KillTerminal(context.Context, acp.KillTerminalRequest) (r acp.KillTerminalResponse, err error) {
	return r, errAsked
}

func (e *editor) TerminalOutput(context.Context, acp.TerminalOutputRequest) (r acp.TerminalOutputResponse, err error) {
	return r, errAsked
}

func (e *editor) ReleaseTerminal(context.Context, acp.ReleaseTerminalRequest) (r acp.ReleaseTerminalResponse, err error) {
	return r, errAsked
}

func (e *editor) WaitForTerminalExit(context.Context, acp.WaitForTerminalExitRequest) (r acp.WaitForTerminalExitResponse, err error) {
	return r, errAsked
}

// workByACP has an agent do the task for an editor.
func workByACP(t *testing.T, w *world, s *service, agent string, flags ...string) {
	ctx := t.Context()
	var log strings.Builder
	cmd := exec.CommandContext(ctx, e2e.Hutch(), append([]string{"acp", agent}, flags...)...)
	cmd.Dir, cmd.Env, cmd.Stderr = w.project, w.env, &log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	fail := func(what string, err error) {
		t.Helper()
		if err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			t.Fatalf("%s: %v\n%s\n%s", what, err, log.String(), strings.Join(s.log, "\n"))
		}
	}
	e := &editor{}
	conn := acp.NewClientSideConnection(e, stdin, stdout)
	hello, err := conn.Initialize(ctx, acp.InitializeRequest{ProtocolVersion: acp.ProtocolVersionNumber, ClientCapabilities: acp.ClientCapabilities{
		Fs: acp.FileSystemCapabilities{ReadTextFile: true, WriteTextFile: true}, Terminal: true,
	}})
	fail("initialize", err)
	if len(hello.AuthMethods) > 0 {
		t.Errorf("ways to log in: %+v", hello.AuthMethods)
	}
	if _, err := conn.NewSession(ctx, acp.NewSessionRequest{Cwd: w.dir, McpServers: []acp.McpServer{}}); err == nil || !strings.Contains(err.Error(), "hutch works in") {
		t.Errorf("a session above the project: %v", err)
	}
	session, err := conn.NewSession(ctx, acp.NewSessionRequest{Cwd: w.project, McpServers: []acp.McpServer{}})
	fail("new session", err)
	_, err = conn.Prompt(ctx, acp.PromptRequest{SessionId: session.SessionId, Prompt: []acp.ContentBlock{acp.TextBlock(task)}})
	fail("prompt", err)
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Logf("%s ended with %v\n%s", agent, err, log.String())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !strings.Contains(e.said.String(), "The greeting is written.") {
		t.Errorf("it said %q\n%s\n%s", e.said.String(), log.String(), strings.Join(s.log, "\n"))
	}
	for _, path := range e.seen {
		if strings.HasPrefix(path, "/workspace") {
			t.Errorf("the editor heard of %s", path)
		}
	}
	if w.greeting() != "" {
		t.Error("the project was changed without review")
	}
	w.nowhere()
	w.hutch(0, "apply", agent+"-my-shop", "hello.txt")
	if w.greeting() != "hello from the box\n" {
		t.Errorf("after the apply the project has %q", w.greeting())
	}
}
