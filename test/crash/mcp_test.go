package crash

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/test/e2e"
)

// TestL3MCPClientsThatKill ends hutch mcp as coding agents do: with signals that follow each other before a sandbox can
// be removed. The next server must get the same name at once, and nothing may stay.
func TestL3MCPClientsThatKill(t *testing.T) {
	e2e.Require(t, "bwrap")
	const pause = 100 * time.Millisecond // what codex and claude-code leave between two signals
	ends := map[string]func(c *mcpClient){
		"stdin closed, SIGTERM, SIGKILL": func(c *mcpClient) {
			c.in.Close()
			c.signal(syscall.SIGTERM)
			time.Sleep(pause)
			c.signal(syscall.SIGKILL)
		},
		"SIGINT twice": func(c *mcpClient) {
			c.signal(syscall.SIGINT)
			time.Sleep(pause)
			c.signal(syscall.SIGINT)
		},
		"SIGKILL of the process group": func(c *mcpClient) { _ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) },
	}
	const times = 10
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t, e2e.Users()["user"])
			t.Cleanup(func() { e2e.KillMarked(u.home) })
			for range times {
				c := u.mcp(t)
				if out := c.call("create_sandbox", map[string]any{"name": "agent"}); !strings.Contains(out, `"name":"agent"`) {
					t.Fatalf("the name is not free: %s", out)
				}
				if out := c.call("exec", map[string]any{"sandbox": "agent", "command": "sleep 600 & echo started"}); !strings.Contains(out, "started") {
					t.Fatalf("the sandbox does not work: %s", out)
				}
				end(c)
				_ = c.cmd.Wait()
			}
			left := func() []string {
				found, _ := filepath.Glob(filepath.Join(u.home, "hutch", "sandboxes", "[0-9]*"))
				return found
			}
			// Nobody has run any command: what removes them is what the server itself left behind.
			if !e2e.Eventually(patience, func() bool { return len(left()) == 0 && len(e2e.Marked(u.home)) == 0 }) {
				t.Errorf("left: %v, processes %v", left(), e2e.Marked(u.home))
			}
			u.hutch(t, 0, "gc") // the runtime directories of the killed
			u.nothingForGC(t)
			for _, found := range u.traces(t) {
				t.Errorf("left: %s", found)
			}
			u.hutch(t, 0, "audit", "verify")
		})
	}
}

// mcpClient is a client of one hutch mcp.
type mcpClient struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	id  int
}

func (u *user) mcp(t *testing.T) *mcpClient {
	t.Helper()
	c := &mcpClient{t: t, cmd: u.command("mcp", "--backend", "bwrap")}
	if c.cmd.SysProcAttr == nil {
		c.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.cmd.SysProcAttr.Setpgid = true
	c.cmd.Stderr = &e2e.Output{}
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReaderSize(out, 1<<20)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	c.request("initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "test", "version": "1"}})
	c.write(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
	return c
}

func (c *mcpClient) signal(s syscall.Signal) { _ = c.cmd.Process.Signal(s) }

func (c *mcpClient) write(v any) {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(c.in, "%s\n", b)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// request returns the line that answers a request.
func (c *mcpClient) request(method string, params any) string {
	c.t.Helper()
	c.id++
	c.write(map[string]any{"jsonrpc": "2.0", "id": c.id, "method": method, "params": params})
	for {
		line, err := c.out.ReadString('\n')
		if err != nil {
			c.t.Fatalf("%s: %v\n%s", method, err, c.cmd.Stderr)
		}
		if strings.Contains(line, fmt.Sprintf(`"id":%d`, c.id)) {
			return line
		}
	}
}

func (c *mcpClient) call(tool string, args map[string]any) string {
	c.t.Helper()
	return c.request("tools/call", map[string]any{"name": tool, "arguments": args})
}
