package tools

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/hutch-run/hutch/host/workspace/files"
)

var update = flag.Bool("update", false, "rewrite golden files")

func schemaFor[T any](t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.For[T](nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The schemas that models get are those of the types that their arguments are read into.
func TestSchemas(t *testing.T) {
	want := map[string]*jsonschema.Schema{
		"list_files": schemaFor[files.ListRequest](t), "read_file": schemaFor[files.ReadRequest](t), "write_file": schemaFor[WriteFileIn](t),
		"edit_file": schemaFor[files.EditRequest](t), "apply_patch": schemaFor[ApplyPatchIn](t), "remove_file": schemaFor[RemoveFileIn](t),
		"grep": schemaFor[files.GrepRequest](t), "run_command": schemaFor[RunIn](t), "command_output": schemaFor[OutputIn](t), "reset": schemaFor[ResetIn](t),
		"stat_file": schemaFor[FileIn](t), "exec": schemaFor[ExecIn](t),
	}
	text, err := json.MarshalIndent(want, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	if *update {
		if err := os.WriteFile("schemas.json", text, 0o644); err != nil {
			t.Fatal(err)
		}
		schemas = text
	}
	if !bytes.Equal(text, schemas) {
		t.Errorf("schemas.json is not what the types say; -update writes it\n%s", cmp.Diff(string(text), string(schemas)))
	}
	var names []string
	for _, tool := range append(Set(), ClientSet()...) {
		names = append(names, tool.Name)
		if want[tool.Name] == nil || len(tool.Schema) == 0 {
			t.Errorf("%s has no schema", tool.Name)
		}
		if tool.Title == "" || tool.Description == "" {
			t.Errorf("%s has no title or description", tool.Name)
		}
	}
	if slices.Sort(names); len(slices.Compact(names)) != len(want) {
		t.Errorf("the tools are %v", names)
	}
}

func TestDecode(t *testing.T) {
	schema := map[string]json.RawMessage{}
	for _, tool := range Set() {
		schema[tool.Name] = tool.Schema
	}
	for name, c := range map[string]struct{ tool, args, want string }{
		"nothing for a tool that needs nothing": {"list_files", "", ""},
		"all of it":                             {"edit_file", `{"path":"a","edits":[{"old":"x","new":"y","all":true}]}`, ""},
		"null for what may lack":                {"read_file", `{"path":"a","limit":null}`, ""},
		"no JSON":                               {"read_file", `path: a`, "not valid JSON: invalid character 'p'"},
		"cut off":                               {"read_file", `{"path":"a`, "not valid JSON: unexpected end"},
		"two objects":                           {"read_file", `{"path":"a"}{"path":"b"}`, "not valid JSON: invalid character '{' after"},
		"a list":                                {"read_file", `["a"]`, "must be a JSON object, not an array"},
		"null":                                  {"read_file", `null`, "must be a JSON object"},
		"a number for a string":                 {"read_file", `{"path":3}`, `"path" must be a string, not a number`},
		"a string for a number":                 {"read_file", `{"path":"a","limit":"3"}`, `"limit" must be a whole number, not a string`},
		"half a number":                         {"read_file", `{"path":"a","limit":1.5}`, `"limit" must be a whole number`},
		"inside of a list":                      {"edit_file", `{"path":"a","edits":[{"old":1,"new":"y"}]}`, `must be a string, not a number`},
		"a string for a list":                   {"edit_file", `{"path":"a","edits":"x"}`, `"edits" must be a list, not a string`},
		"an unknown one":                        {"read_file", `{"path":"a","pth":"b"}`, `no argument "pth"; the arguments are limit, max_bytes, offset, path`},
		"unknown further inside":                {"edit_file", `{"path":"a","edits":[{"old":"x","nu":"y"}]}`, `"nu"`},
		"one that is missing":                   {"write_file", `{"path":"a"}`, `"content" is missing`},
		"null for what must be":                 {"write_file", `{"path":"a","content":null}`, `"content" is missing`},
		"far too long":                          {"write_file", strings.Repeat(" ", MaxArguments) + "{}", "at most 4MiB"},
		"nested too deeply":                     {"read_file", strings.Repeat(`{"path":`, 20000), "not valid JSON"},
	} {
		var in any
		switch c.tool {
		case "edit_file":
			in = new(files.EditRequest)
		case "write_file":
			in = new(WriteFileIn)
		case "list_files":
			in = new(files.ListRequest)
		default:
			in = new(files.ReadRequest)
		}
		err := Decode(c.args, schema[c.tool], in)
		switch {
		case err == nil && c.want != "":
			t.Errorf("%s: no error, want %q", name, c.want)
		case err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// No arguments bring a tool down.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"path":"a"}`, `{"edits":[{"old":"x"}]}`, `null`, `[`, "{\"a\":\"\xff\"}", `{"path":"a","PATH":"b"}`} {
		f.Add(s)
	}
	set := Set()
	f.Fuzz(func(t *testing.T, args string) {
		for _, tool := range set {
			_ = Decode(args, tool.Schema, new(files.EditRequest))
			_ = Decode(args, tool.Schema, new(RunIn))
		}
	})
}
