// Package mcp holds the test that the official MCP inspector, pinned and unmodified, in its CLI mode, can work with
// `hutch mcp`: over stdin and stdout, and over HTTP.
package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/test/e2e"
)

func TestMain(m *testing.M) {
	os.Exit(e2e.Main(m, map[string]string{"libexec/hutch/hutch-agent": "cmd/hutch-agent"}))
}

const token = "the-token-of-this-test"

// inspector is an installed inspector.
type inspector struct {
	t    *testing.T
	node string
	dir  string
	env  []string
}

// answer is what a tool answered, or the list of tools.
type answer struct {
	IsError           bool
	StructuredContent map[string]any
	Content           []struct{ Text string }
	Tools             []struct {
		Name         string
		InputSchema  map[string]any
		OutputSchema map[string]any
		Annotations  map[string]any
	}
}

// call runs the inspector once. failed says that it may end with an error, whose answer may be nil.
func (i *inspector) call(failed bool, args ...string) *answer {
	i.t.Helper()
	cmd := exec.CommandContext(i.t.Context(), i.node, append([]string{"node_modules/@modelcontextprotocol/inspector/" + i.bin(), "--cli"}, args...)...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = i.dir, i.env, time.Minute
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	bound := time.AfterFunc(3*time.Minute, func() {
		if cmd.Process != nil {
			_ = cmd.Process.Kill()
		}
	})
	defer bound.Stop()
	err := cmd.Run()
	if (err != nil) != failed {
		i.t.Fatalf("inspector %q: %v\n%s\n%s", args, err, &out, &errs)
	}
	a := &answer{}
	if err := json.Unmarshal(out.Bytes(), a); err != nil {
		if failed {
			return nil
		}
		i.t.Fatalf("inspector %q: %v\n%s", args, err, &out)
	}
	return a
}

// bin is the path of the command in the package.
func (i *inspector) bin() string {
	i.t.Helper()
	b, err := os.ReadFile(filepath.Join(i.dir, "node_modules/@modelcontextprotocol/inspector/package.json"))
	if err != nil {
		i.t.Fatal(err)
	}
	var p struct{ Bin map[string]string }
	if err := json.Unmarshal(b, &p); err != nil || p.Bin["mcp-inspector"] == "" {
		i.t.Fatalf("the inspector's package.json names no command: %v", err)
	}
	return p.Bin["mcp-inspector"]
}

func TestInspector(t *testing.T) {
	if testing.Short() {
		t.Skip("it installs the inspector from the npm registry")
	}
	e2e.Require(t, "bwrap")
	home := t.TempDir()
	i := &inspector{t: t, node: e2e.Node(t), dir: e2e.NPM(t, os.DirFS(".")), env: append(os.Environ(), "HOME="+home, "HUTCH_HOME="+home, "HUTCH_BACKEND_PATH=", "HUTCH_MCP_TOKEN="+token)}
	project := t.TempDir()
	if err := os.WriteFile(filepath.Join(project, "a.txt"), []byte("one\n"), 0o644); err != nil {
		t.Fatal(err)
	}

	tools := i.call(false, e2e.Hutch(), "mcp", "--workspace", project, "--method", "tools/list").Tools
	if len(tools) != 17 {
		t.Errorf("over stdin and stdout there are %d tools, want 17", len(tools))
	}
	for _, tool := range tools {
		if tool.InputSchema["type"] != "object" || tool.OutputSchema["type"] != "object" || tool.Annotations["readOnlyHint"] == nil {
			t.Errorf("%s is not described in full", tool.Name)
		}
	}

	url := i.serve(project)
	over := func(failed bool, tool string, args ...string) *answer {
		t.Helper()
		line := []string{url, "--transport", "http", "--header", "Authorization: Bearer " + token, "--method", "tools/call", "--tool-name", tool}
		for _, a := range args {
			line = append(line, "--tool-arg", a)
		}
		return i.call(failed, line...)
	}
	if got := over(false, "create_sandbox", "name=box").StructuredContent["name"]; got != "box" {
		t.Errorf("the sandbox is called %v", got)
	}
	ran := over(false, "exec", "sandbox=box", "command=echo two > a.txt; cat a.txt").StructuredContent
	if stdout, _ := ran["stdout"].(map[string]any); ran["ok"] != true || stdout["text"] != "two\n" {
		t.Errorf("the command: %v", ran)
	}
	if patch, _ := over(false, "diff", "sandbox=box").StructuredContent["patch"].(string); !strings.Contains(patch, "-one\n+two\n") {
		t.Errorf("the patch is %q", patch)
	}
	if a := over(true, "exec", "sandbox=nobody", "command=id"); a == nil || !a.IsError || !strings.Contains(a.Content[0].Text, "there is no sandbox") {
		t.Errorf("a sandbox that is not there: %+v", a)
	}
	i.call(true, url, "--transport", "http", "--header", "Authorization: Bearer wrong", "--method", "tools/list")
	if b, err := os.ReadFile(filepath.Join(project, "a.txt")); err != nil || string(b) != "one\n" {
		t.Errorf("the project has %q %v", b, err)
	}
}

// serve starts hutch mcp over HTTP until the test ends, when it must leave no sandbox, and returns where it is.
func (i *inspector) serve(project string) string {
	i.t.Helper()
	cmd := exec.Command(e2e.Hutch(), "mcp", "--listen", "127.0.0.1:0", "--workspace", project)
	cmd.Env = i.env
	stderr, err := cmd.StderrPipe()
	if err != nil {
		i.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		i.t.Fatal(err)
	}
	bound := time.AfterFunc(8*time.Minute, func() { _ = cmd.Process.Kill() })
	i.t.Cleanup(func() {
		defer bound.Stop()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			i.t.Errorf("hutch mcp: %v", err)
		}
		ps := exec.Command(e2e.Hutch(), "ps", "-q")
		ps.Env = i.env
		if out, err := ps.Output(); err != nil || len(out) > 0 {
			i.t.Errorf("sandboxes are left: %s %v", out, err)
		}
	})
	lines := bufio.NewScanner(stderr)
	if !lines.Scan() {
		i.t.Fatal("hutch mcp says nothing")
	}
	url, ok := strings.CutPrefix(lines.Text(), "hutch: serving ")
	if !ok {
		i.t.Fatalf("hutch mcp says %q", lines.Text())
	}
	go func() {
		for lines.Scan() { // whatever else it says
		}
	}()
	return url
}

// TestNoClient has something else than a client at the other end of stdin.
func TestNoClient(t *testing.T) {
	for name, c := range map[string]struct{ stdin, want string }{
		"words":                    {"hello\n", "what came on stdin is no message of the Model Context Protocol: each is a JSON object in a line of its own"},
		"other JSON":               {"{\"a\": 1}\n", "what came on stdin is no message"},
		"half a message":           {`{"jsonrpc": "2.0", "id": 1, `, "stdin ended in the middle of a message"},
		"two messages in one line": {`{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}`, "in a line of its own"},
		"a message without bounds": {`{"a": "` + strings.Repeat("a", 17<<20), "at most 16 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(e2e.Hutch(), "mcp")
			cmd.Env = append(os.Environ(), "HUTCH_HOME="+t.TempDir(), "HUTCH_BACKEND_PATH=")
			cmd.Stdin = strings.NewReader(c.stdin)
			out, _ := cmd.CombinedOutput() // its code is looked at
			if code := cmd.ProcessState.ExitCode(); code != 125 || !strings.Contains(string(out), c.want) || !strings.Contains(string(out), "docs/mcp.md shows how to add hutch to one") {
				t.Errorf("it ended with %d and said %s", code, out)
			}
		})
	}
}

// TestWeakToken has a token that could be guessed: nothing is served.
func TestWeakToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ env, file, want string }{
		"variable":     {"short", "", "HUTCH_MCP_TOKEN: the token has 5 characters, and needs 16; "},
		"file":         {"", file, "--token-file " + file + ": the token has 0 characters, and needs 16; "},
		"missing file": {"", file + ".none", "--token-file: open " + file + ".none: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(e2e.Hutch(), "mcp", "--listen", "127.0.0.1:0", "--token-file", c.file)
			if c.file == "" {
				cmd.Args = cmd.Args[:4]
			}
			cmd.Env = append(os.Environ(), "HUTCH_HOME="+t.TempDir(), "HUTCH_BACKEND_PATH=", "HUTCH_MCP_TOKEN="+c.env)
			out, _ := cmd.CombinedOutput() // its code is looked at
			if code := cmd.ProcessState.ExitCode(); code != 125 || !strings.HasPrefix(string(out), "hutch: "+c.want) {
				t.Errorf("it ended with %d and said %s", code, out)
			}
		})
	}
}
