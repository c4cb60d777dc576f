package agents

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hutch-run/hutch/test/e2e"
)

// TestMCPWrap has a client work with a real MCP server in a sandbox: over a project that it can only read, and over one
// that it may change.
func TestMCPWrap(t *testing.T) {
	e2e.Require(t, "bwrap")
	w := newWorld(t, install(t, "mcp"), newService(t))
	outside := filepath.Join(w.dir, "outside.txt")
	if err := errors.Join(os.WriteFile(filepath.Join(w.project, "a.txt"), []byte("from the project\n"), 0o644), os.WriteFile(outside, []byte(key), 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"", ":shared"} {
		var log strings.Builder
		server := exec.Command(e2e.Hutch(), "mcp", "wrap", "--workspace", w.project+mode, "--", "mcp-server-filesystem", "/workspace", "/tmp")
		server.Env, server.Stderr = w.env, &log
		session, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: server}, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, log.String())
		}
		call := func(tool string, args map[string]any) (string, bool) {
			t.Helper()
			r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
			if err != nil {
				t.Fatalf("%s: %v\n%s", tool, err, log.String())
			}
			return r.Content[0].(*mcp.TextContent).Text, !r.IsError
		}
		if text, ok := call("read_text_file", map[string]any{"path": "/workspace/a.txt"}); !ok || text != "from the project\n" {
			t.Errorf("it read %q", text)
		}
		written := filepath.Join(w.project, "b.txt")
		if text, ok := call("write_file", map[string]any{"path": "/workspace/b.txt", "content": "from the server\n"}); ok != (mode == ":shared") {
			t.Errorf("mode %q: writing gave %q", mode, text)
		}
		if _, err := os.Stat(written); (err == nil) != (mode == ":shared") {
			t.Errorf("mode %q: %v", mode, err)
		}
		if text, ok := call("read_text_file", map[string]any{"path": outside}); ok {
			t.Errorf("it read %q outside of the project", text)
		}
		if err := session.Close(); err != nil {
			t.Errorf("%v\n%s", err, log.String())
		}
	}
	if out, _ := w.hutch(0, "runs"); strings.Count(out, " ok ") != 2 {
		t.Errorf("the records are\n%s", out)
	}
	if out, _ := w.hutch(0, "ps", "-q"); out != "" {
		t.Errorf("there is still %q", out)
	}
}
