package acp

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pass sends one line from one side, and returns what each side got.
func pass(t *testing.T, b *Bridge, fromAgent bool, line string) (editor, agent string) {
	t.Helper()
	var toEditor, toAgent, log bytes.Buffer
	b.Host, b.Guest, b.Editor, b.Agent, b.Log = "/home/ada/my shop", "/workspace", &toEditor, &toAgent, &log
	from := b.FromEditor
	if fromAgent {
		from = b.FromAgent
	}
	if err := from(strings.NewReader(line + "\n")); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(toEditor.String()), strings.TrimSpace(toAgent.String())
}

func TestBridge(t *testing.T) {
	const refused = `{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"in a sandbox of hutch an agent works with its own tools"}}`
	for _, c := range []struct{ name, editor, agent, toEditor, toAgent string }{
		{name: "capabilities stay here", editor: `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":true,"writeTextFile":true},"terminal":true,"auth":{"terminal":true}}}}`,
			toAgent: `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"clientCapabilities":{"fs":{"readTextFile":false,"writeTextFile":false},"terminal":false},"protocolVersion":1}}`},
		{name: "no way to log in", agent: `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"authMethods":[{"id":"x","_meta":{"terminal-auth":{"command":"/bin/evil"}}}]}}`,
			toEditor: `{"jsonrpc":"2.0","id":0,"result":{"authMethods":[],"protocolVersion":1}}`},
		{name: "a session", editor: `{"jsonrpc":"2.0","id":"a","method":"session/new","params":{"cwd":"/home/ada/my shop/sub","mcpServers":[{"env":[{"name":"TOKEN","value":"x"}]}]}}`,
			toAgent: `{"jsonrpc":"2.0","id":"a","method":"session/new","params":{"cwd":"/workspace/sub","mcpServers":[]}}`},
		{name: "a session elsewhere", editor: `{"jsonrpc":"2.0","id":7,"method":"session/load","params":{"cwd":"/home/ada/my shopping"}}`,
			toEditor: `{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"hutch works in /home/ada/my shop, and the session is for /home/ada/my shopping"}}`},
		{name: "files of a prompt", editor: `{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"prompt":[{"type":"resource_link","uri":"file:///home/ada/my%20shop/a.txt"},{"text":"in /home/ada/my shop <b>"}]}}`,
			toAgent: `{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"prompt":[{"type":"resource_link","uri":"file:///workspace/a.txt"},{"text":"in /home/ada/my shop <b>"}]}}`},
		{name: "a report", agent: `{"jsonrpc":"2.0","method":"session/update","params":{"update":{"_meta":{"x":1},"locations":[{"path":"/workspace/a.txt","line":12345678901234567890}],"uri":"file:///workspace"}}}`,
			toEditor: `{"jsonrpc":"2.0","method":"session/update","params":{"update":{"locations":[{"line":12345678901234567890,"path":"/home/ada/my shop/a.txt"}],"uri":"file:///home/ada/my%20shop"}}}`},
		{name: "a question", agent: `{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{}}`, toEditor: `{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{}}`},
		{name: "an empty answer", editor: `{"jsonrpc":"2.0","id":7,"result":null}`, toAgent: `{"jsonrpc":"2.0","id":7,"result":null}`},
		{name: "writing a file of the host", agent: `{"jsonrpc":"2.0","id":7,"method":"fs/write_text_file","params":{"path":"/home/ada/.bashrc"}}`, toAgent: refused},
		{name: "a command on the host", agent: `{"jsonrpc":"2.0","id":7,"method":"terminal/create","params":{"command":"evil"}}`, toAgent: refused},
		{name: "an extension", agent: `{"jsonrpc":"2.0","id":7,"method":"_editor/evil"}`, toAgent: refused},
		{name: "a method by another spelling", agent: `{"jsonrpc":"2.0","method":"session/update","Method":"terminal/create","METHOD":"x"}`, toEditor: `{"jsonrpc":"2.0","method":"session/update"}`},
		{name: "a notification of no use", agent: `{"jsonrpc":"2.0","method":"fs/evil"}`},
		{name: "several at once", agent: `[{"jsonrpc":"2.0","id":7,"method":"terminal/create"}]`},
		{name: "no message", agent: `Hello!`},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &Bridge{initialize: "0"}
			editor, agent := pass(t, b, c.agent != "", c.agent+c.editor)
			if diff := cmp.Diff([]string{c.toEditor, c.toAgent}, []string{editor, agent}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// FuzzFromAgent checks that an agent can have an editor do nothing but show and ask.
func FuzzFromAgent(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":7,"method":"terminal/create","params":{"command":"evil"}}`))
	f.Add([]byte(`{"method":"session/update","method":"fs/write_text_file","id":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var editor, agent, log bytes.Buffer
		b := &Bridge{Host: "/p", Guest: "/workspace", Editor: &editor, Agent: &agent, Log: &log}
		if err := b.FromAgent(bytes.NewReader(data)); err != nil {
			t.Skip()
		}
		for line := range strings.Lines(editor.String()) {
			var m struct {
				Method string `json:"method"` // matched without case, as some editors do
			}
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if m.Method != "" && m.Method != "session/update" && m.Method != "session/request_permission" {
				t.Fatalf("the editor got %q", line)
			}
		}
	})
}
