// Package clients knows the clients of the Model Context Protocol that hutch adds itself to: by the client's own
// command where it has one, else by its file in the project, of which all but hutch's entry stays as it is.
package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/tailscale/hujson"
)

// Client is one client. It has either a program or a file.
type Client struct {
	Name   string // as users type it
	Title  string // for people
	Source string // where its configuration is documented

	// Program is its command, run in the project; {name} in Add and Remove stands for the server's name, and what starts
	// the server follows Add.
	Program     string
	Add, Remove []string

	// Files are the project's files of its configuration, the first that is there; without any, the last is made.
	Files []string
	// Servers is the object of servers in the file, and Entry what a server is in it.
	Servers string
	Entry   func(argv []string) any

	// Workspace is how the server's command names the project; "" for its absolute path.
	Workspace string
}

// All are the clients, by name.
var All = []Client{
	{Name: "claude", Title: "Claude Code", Source: "https://code.claude.com/docs/en/mcp", Program: "claude",
		Add:    []string{"mcp", "add", "--scope", "local", "{name}", "--"},
		Remove: []string{"mcp", "remove", "--scope", "local", "{name}"}},
	{Name: "codex", Title: "Codex", Source: "https://developers.openai.com/codex/mcp", Program: "codex",
		Add: []string{"mcp", "add", "{name}", "--"}, Remove: []string{"mcp", "remove", "{name}"}},
	{Name: "cursor", Title: "Cursor", Source: "https://cursor.com/docs/context/mcp", Files: []string{".cursor/mcp.json"},
		Servers: "mcpServers", Entry: command, Workspace: "${workspaceFolder}"},
	{Name: "gemini", Title: "Gemini CLI", Source: "https://geminicli.com/docs/tools/mcp-server",
		Files:   []string{".gemini/settings.json"},
		Servers: "mcpServers", Entry: command, Workspace: "."},
	{Name: "opencode", Title: "OpenCode", Source: "https://opencode.ai/docs/mcp-servers",
		Files:   []string{"opencode.jsonc", "opencode.json"},
		Servers: "mcp", Workspace: ".", Entry: func(argv []string) any {
			return struct {
				Type    string   `json:"type"`
				Command []string `json:"command"`
			}{"local", argv}
		}},
	{Name: "vscode", Title: "VS Code", Source: "https://code.visualstudio.com/docs/agents/reference/mcp-configuration",
		Files:   []string{".vscode/mcp.json"},
		Servers: "servers", Workspace: "${workspaceFolder}", Entry: func(argv []string) any {
			return struct {
				Type    string   `json:"type"`
				Command string   `json:"command"`
				Args    []string `json:"args"`
			}{"stdio", argv[0], argv[1:]}
		}},
}

// command is the entry that most clients agree on.
func command(argv []string) any {
	return struct {
		Command string   `json:"command"`
		Args    []string `json:"args"`
	}{argv[0], argv[1:]}
}

// Find returns the client of a name.
func Find(name string) (*Client, error) {
	var known []string
	for i := range All {
		if All[i].Name == name {
			return &All[i], nil
		}
		known = append(known, All[i].Name)
	}
	return nil, fmt.Errorf("no client %q: want %s", name, strings.Join(known, ", "))
}

// Change is what makes a client know a server, or forget it. Nothing is done before Do.
type Change struct {
	Text string // for people: a difference of a file, or a command line; "" when there is nothing to do

	dir      string
	commands [][]string
	file     string // absolute
	data     []byte
}

// Plan plans to add the server name, which argv starts, or with argv nil to remove it. project is absolute.
func (c *Client) Plan(project, name string, argv []string) (*Change, error) {
	if c.Program != "" {
		return c.planCommand(project, name, argv)
	}
	return c.planFile(project, name, argv)
}

func (c *Client) planCommand(project, name string, argv []string) (*Change, error) {
	if _, err := exec.LookPath(c.Program); err != nil {
		return nil, fmt.Errorf("%s is not installed: %w", c.Title, err)
	}
	line := func(words []string) []string {
		out := []string{c.Program}
		for _, w := range words {
			out = append(out, strings.ReplaceAll(w, "{name}", name))
		}
		return out
	}
	ch := &Change{dir: project, commands: [][]string{line(c.Remove)}}
	shown := ch.commands[0]
	if argv != nil {
		shown = append(line(c.Add), argv...)
		ch.commands = append(ch.commands, shown)
	}
	ch.Text = strings.Join(shown, " ") + "\n"
	return ch, nil
}

func (c *Client) planFile(project, name string, argv []string) (*Change, error) {
	var file string
	var before []byte
	for _, f := range c.Files {
		file = filepath.Join(project, filepath.FromSlash(f))
		var err error
		if before, err = os.ReadFile(file); err == nil {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	text := before
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}\n")
	}
	var entry any
	if argv != nil {
		entry = c.Entry(argv)
	}
	after, err := edit(text, c.Servers, name, entry)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if bytes.Equal(text, after) {
		return &Change{}, nil
	}
	shown, err := filepath.Rel(project, file)
	if err != nil {
		return nil, err
	}
	return &Change{Text: udiff.Unified(shown, shown, string(before), string(after)), file: file, data: after}, nil
}

// Do does what was planned.
func (ch *Change) Do(ctx context.Context) error {
	for i, argv := range ch.commands {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Dir = ch.dir
		out, err := cmd.CombinedOutput()
		if last := i == len(ch.commands)-1; err != nil && last { // the first removes what need not be there
			return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, bytes.TrimSpace(out))
		}
	}
	if ch.file == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(ch.file), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if st, err := os.Stat(ch.file); err == nil {
		mode = st.Mode().Perm()
	}
	return os.WriteFile(ch.file, ch.data, mode)
}

// edit sets servers.name of an object in JSON with comments, or removes it where entry is nil. All else stays as it is
// written; a value that is the same does, too.
func edit(text []byte, servers, name string, entry any) ([]byte, error) {
	v, err := hujson.Parse(text)
	if err != nil {
		return nil, err
	}
	top, ok := v.Value.(*hujson.Object)
	if !ok {
		return nil, errors.New("it is not a JSON object")
	}
	list := member(top, servers)
	if list == nil {
		if entry == nil {
			return text, nil
		}
		list = add(top, servers, hujson.Value{Value: &hujson.Object{}}, 0)
	}
	object, ok := list.Value.Value.(*hujson.Object)
	if !ok {
		return nil, fmt.Errorf("%q is not a JSON object", servers)
	}
	old := member(object, name)
	if entry == nil {
		if old == nil {
			return text, nil
		}
		remove(object, index(object, name))
		return v.Pack(), nil
	}
	data, err := json.MarshalIndent(entry, "    ", "  ")
	if err != nil {
		return nil, err
	}
	value, err := hujson.Parse(data)
	if err != nil {
		return nil, err
	}
	switch {
	case old == nil:
		add(object, name, value, 1)
	case !same(old.Value, value):
		old.Value.Value = value.Value
	}
	return v.Pack(), nil
}

// same reports whether two values differ in layout alone.
func same(a, b hujson.Value) bool {
	a, b = a.Clone(), b.Clone()
	a.Minimize()
	b.Minimize()
	return bytes.Equal(a.Pack(), b.Pack())
}

func index(o *hujson.Object, name string) int {
	return slices.IndexFunc(o.Members, func(m hujson.ObjectMember) bool {
		l, ok := m.Name.Value.(hujson.Literal)
		return ok && l.String() == name
	})
}

func member(o *hujson.Object, name string) *hujson.ObjectMember {
	if i := index(o, name); i >= 0 {
		return &o.Members[i]
	}
	return nil
}

// add appends a member on its own line to an object that lies depth levels deep. In hujson the extra of the object is
// what stands before its closing brace, and the last value has one only where a comma follows it.
func add(o *hujson.Object, name string, v hujson.Value, depth int) *hujson.ObjectMember {
	indent := "\n" + strings.Repeat("  ", depth)
	if n := len(o.Members); n > 0 {
		v.AfterExtra = o.Members[n-1].Value.AfterExtra
	}
	v.BeforeExtra = hujson.Extra(" ")
	o.Members = append(o.Members, hujson.ObjectMember{
		Name:  hujson.Value{BeforeExtra: hujson.Extra(comments(o.AfterExtra) + indent + "  "), Value: hujson.String(name)},
		Value: v,
	})
	o.AfterExtra = hujson.Extra(indent)
	return &o.Members[len(o.Members)-1]
}

// remove removes a member, and leaves the comments before it.
func remove(o *hujson.Object, i int) {
	gone := o.Members[i]
	before := comments(gone.Name.BeforeExtra)
	if before != "" {
		before += "\n"
	}
	after := &o.AfterExtra
	o.Members = slices.Delete(o.Members, i, i+1)
	switch n := len(o.Members); {
	case i < n:
		after = &o.Members[i].Name.BeforeExtra
	case n > 0:
		o.Members[n-1].Value.AfterExtra = gone.Value.AfterExtra
	}
	*after = append(hujson.Extra(before), *after...)
}

// comments is e without the white space at its end; a comment of one line has a line break there.
func comments(e hujson.Extra) string { return strings.TrimRight(string(e), " \t\r\n") }
