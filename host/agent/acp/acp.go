// Package acp passes messages of the Agent Client Protocol (https://agentclientprotocol.com) between an editor and an
// agent in a sandbox, so that both name the same files and the agent does nothing outside of its sandbox by means of
// the editor.
//
// The agent is hostile: what it sends is built again from the members of JSON-RPC, without _meta. It may report
// (session/update) and ask for permission; requests to read and write files and to run commands in the editor's
// terminals are refused, as is every other method. The editor gets no way to log in, which would have it run a
// command that the agent names. In the other direction the editor's capabilities and MCP servers, whose environment may
// hold secrets, are left out, and sessions are refused that are not in the project.
package acp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Bridge connects one editor with one agent. Its exported fields do not change while it works.
type Bridge struct {
	Host  string // the project on this machine, absolute
	Guest string // the same directory as the agent sees it, absolute

	Editor io.Writer // the editor's stdin
	Agent  io.Writer // the agent's stdin
	Log    io.Writer // for what the agent prints that is no message

	mu         sync.Mutex // one message is written at a time
	initialize string     // id of the editor's request
}

// maxMessage bounds a message, in bytes.
const maxMessage = 64 << 20

// message is one of JSON-RPC.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  any             `json:"result,omitempty"`
	Error   any             `json:"error,omitempty"`
}

// Codes of JSON-RPC.
const (
	methodNotFound = -32601
	invalidParams  = -32602
)

// FromEditor passes on what r, the editor's stdout, has, until it ends.
func (b *Bridge) FromEditor(r io.Reader) error {
	return lines(r, func(line []byte) error {
		m, err := parse(line)
		if err != nil {
			return fmt.Errorf("the editor sent what is no message: %w", err)
		}
		params, _ := m.Params.(map[string]any)
		switch {
		case m.Method == "initialize":
			b.mu.Lock()
			b.initialize = string(m.ID)
			b.mu.Unlock()
			if params != nil {
				params["clientCapabilities"] = map[string]any{"fs": map[string]any{"readTextFile": false, "writeTextFile": false},
					"terminal": false}
			}
		case params != nil:
			if cwd, ok := params["cwd"].(string); ok && !within(cwd, b.Host) {
				return b.refuse(b.Editor, m, invalidParams, fmt.Sprintf("hutch works in %s, and the session is for %s", b.Host,
					cwd))
			}
			if _, ok := params["mcpServers"]; ok {
				params["mcpServers"] = []any{}
			}
		}
		m.Params, m.Result = rename(m.Params, b.Host, b.Guest), rename(m.Result, b.Host, b.Guest)
		return b.write(b.Agent, m)
	})
}

// FromAgent passes on what r, the agent's stdout, has, until it ends.
func (b *Bridge) FromAgent(r io.Reader) error {
	return lines(r, func(line []byte) error {
		m, err := parse(line)
		if err != nil {
			_, err := b.Log.Write(append(line, '\n'))
			return err
		}
		switch m.Method {
		case "session/update", "session/request_permission":
		case "":
			if m.ID == nil {
				return nil
			}
			b.mu.Lock()
			first := string(m.ID) == b.initialize
			b.mu.Unlock()
			if result, ok := m.Result.(map[string]any); ok && first {
				result["authMethods"] = []any{}
			}
		default:
			if m.ID == nil {
				return nil
			}
			return b.refuse(b.Agent, m, methodNotFound, "in a sandbox of hutch an agent works with its own tools")
		}
		for _, v := range []*any{&m.Params, &m.Result, &m.Error} {
			*v = rename(withoutMeta(*v), b.Guest, b.Host)
		}
		return b.write(b.Editor, m)
	})
}

// refuse answers a request with an error.
func (b *Bridge) refuse(to io.Writer, m *message, code int, why string) error {
	return b.write(to, &message{Version: "2.0", ID: m.ID, Error: map[string]any{"code": code, "message": why}})
}

func (b *Bridge) write(to io.Writer, m *message) error {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if m.Version = "2.0"; m.Method == "" && m.Error == nil && m.Result == nil {
		m.Result = json.RawMessage("null") // a response has one of the two
	}
	if err := e.Encode(m); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err := to.Write(out.Bytes())
	return err
}

// lines calls fn with each line that is not empty.
func lines(r io.Reader, fn func([]byte) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxMessage)
	for s.Scan() {
		if line := bytes.TrimSpace(s.Bytes()); len(line) > 0 {
			if err := fn(slices.Clone(line)); err != nil {
				return err
			}
		}
	}
	return s.Err()
}

// parse reads a message. Its members are looked up exactly, which encoding/json does not do in a struct.
func parse(line []byte) (*message, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber() // ids and sizes stay as they are
	var v map[string]any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if v == nil {
		return nil, errors.New("null")
	}
	m := &message{Params: v["params"], Result: v["result"], Error: v["error"]}
	m.Method, _ = v["method"].(string)
	switch id := v["id"].(type) {
	case string, json.Number:
		var err error
		if m.ID, err = json.Marshal(id); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// withoutMeta removes what editors take for extensions of the protocol.
func withoutMeta(v any) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "_meta")
		for k := range v {
			v[k] = withoutMeta(v[k])
		}
	case []any:
		for i := range v {
			v[i] = withoutMeta(v[i])
		}
	}
	return v
}

// rename gives paths and file URLs below one directory the name that they have below another one. Text that mentions
// paths stays as it is.
func rename(v any, from, to string) any {
	switch v := v.(type) {
	case string:
		if rest, ok := strings.CutPrefix(v, "file://"); ok {
			if escaped := (&url.URL{Path: from}).EscapedPath(); within(rest, escaped) {
				return "file://" + (&url.URL{Path: to}).EscapedPath() + rest[len(escaped):]
			}
		} else if within(v, from) {
			return to + v[len(from):]
		}
	case map[string]any:
		for k := range v {
			v[k] = rename(v[k], from, to)
		}
	case []any:
		for i := range v {
			v[i] = rename(v[i], from, to)
		}
	}
	return v
}

// within reports whether a path is dir, or below it.
func within(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/')
}
