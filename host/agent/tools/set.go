package tools

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
)

// Def is what a model, and the person who watches it, learns of a tool besides its arguments.
type Def struct {
	Name, Title, Description string
	Effect                   Effect
}

// Effect is what a tool does to its surroundings.
type Effect int

// The effects.
const (
	Reads      Effect = iota // changes nothing
	Adds                     // changes something inside of a sandbox, and destroys nothing
	Idempotent               // a second time changes nothing further
	Destroys                 // takes something away
)

// Tool is a tool that works in one sandbox.
type Tool struct {
	Def
	Schema json.RawMessage // of its arguments: an object
	Answer reflect.Type    // of what it answers: a struct

	call func(ctx context.Context, b *Box, args string) (any, error)
}

// schemas are those of the arguments of all tools, by name. They are derived from the types of the arguments by a
// test, so that no program has to link and run what derives them.
//
//go:embed schemas.json
var schemas []byte

var schemaOf = sync.OnceValue(func() map[string]json.RawMessage {
	m := map[string]json.RawMessage{}
	if err := json.Unmarshal(schemas, &m); err != nil {
		panic(err) // it is part of the program
	}
	return m
})

// common are the tools that mean the same wherever they are offered.
func common() []Tool {
	return []Tool{
		of(Def{"list_files", "List files", "Lists files below a directory of a sandbox, in path order. Paths are " +
			"relative to the workspace. \"next\" is the offset of the next page.", Reads}, (*Box).ListFiles),
		of(Def{"read_file", "Read a file", "Reads a file of a sandbox, or lines of it. \"next\" is the line to read " +
			"on at.", Reads}, (*Box).ReadFile),
		of(Def{"write_file", "Write a file", "Writes a file of a sandbox, with the directories that it needs, in one " +
			"step.", Destroys}, (*Box).WriteFile),
		of(Def{"edit_file", "Edit a file", "Replaces exact pieces of text in a file of a sandbox. Each must be there " +
			"exactly once, unless \"all\"; all edits are made or none.", Destroys}, (*Box).EditFile),
		of(Def{"apply_patch", "Apply a patch", "Applies a patch to files of a sandbox: a unified diff, git's too, a " +
			"*** Begin Patch block, or SEARCH/REPLACE blocks. Several files may be added, changed, renamed and " +
			"deleted; all of it is done or nothing.", Destroys}, (*Box).ApplyPatch),
		of(Def{"remove_file", "Remove a file", "Removes a file of a sandbox, or with \"recursive\" a directory.",
			Destroys}, (*Box).RemoveFile),
		of(Def{"grep", "Search files", "Searches the files of a sandbox for lines that match a regular expression in " +
			"RE2's syntax, in path order. \"next\" is the offset of the next page.", Reads}, (*Box).Grep),
	}
}

// Set are the tools with which a model works in the sandbox that it was given.
func Set() []Tool {
	return append(common(),
		of(Def{"run_command", "Run a command", "Runs a command in the sandbox and waits until it has ended, with all " +
			"its processes. Its output is the end of each stream; command_output reads what stands before \"offset\". " +
			"Exit code and cause tell how it ended.", Adds}, (*Box).Run),
		of(Def{"command_output", "Read a command's output", "Reads on in the output of one of the last commands that " +
			"run_command ran.", Reads}, (*Box).Output),
		of(Def{"reset", "Reset the sandbox", "Recreates the surroundings of the sandbox: processes, temporary files " +
			"and what was installed outside of the workspace are gone. The workspace is kept, unless \"hard\".",
			Destroys}, (*Box).Reset))
}

// ClientSet are the tools with which a client works in any of its sandboxes.
func ClientSet() []Tool {
	return append(common(),
		of(Def{"stat_file", "Describe a file", "Describes a file, directory or symbolic link of a sandbox.", Reads},
			(*Box).StatFile),
		of(Def{"exec", "Run a command", "Runs a command in a sandbox and waits for it, up to \"wait\"; a longer one " +
			"goes on as a job, of which job_output says more. Its output is the beginning of each stream; \"next\" " +
			"says where job_output reads on.", Adds}, (*Box).Exec))
}

func of[In, Out any](d Def, fn func(*Box, context.Context, In) (Out, error)) Tool {
	t := Tool{Def: d, Schema: schemaOf()[d.Name], Answer: reflect.TypeFor[Out]()}
	if t.Answer.Kind() == reflect.Pointer {
		t.Answer = t.Answer.Elem()
	}
	t.call = func(ctx context.Context, b *Box, args string) (any, error) {
		var in In
		if err := Decode(args, t.Schema, &in); err != nil {
			return nil, err
		}
		return fn(b, ctx, in)
	}
	return t
}

// Result is what a tool answered.
type Result struct {
	Text string // JSON, or the error
	Err  error  // why it could not be done; nil when it was
	Run  string // id of the run that it was; "" for none
	// Ended says how a command ended, in words; "" where there was none.
	Ended string
}

const (
	// maxText bounds the bytes of an answer. The bounds of each tool keep it below, but for what JSON makes of odd bytes.
	maxText  = 2 << 20
	maxError = 16 << 10 // bytes of an error
)

// Call calls the tool with the arguments that a model wrote.
func (t *Tool) Call(ctx context.Context, b *Box, args string) (r Result) {
	out, err := t.call(ctx, b, args)
	if x, ok := out.(ExecOut); ok {
		r.Run, r.Ended = x.Run, x.Ended()
	}
	var buf bytes.Buffer
	if err == nil {
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		err = enc.Encode(out)
	}
	if err == nil && buf.Len() > maxText {
		err = fmt.Errorf("the answer would have %d bytes, at most %d are allowed; ask for less", buf.Len(), maxText)
	}
	r.Text, r.Err = string(bytes.TrimSuffix(buf.Bytes(), []byte("\n"))), err
	if err != nil {
		if r.Text = Explain(err).Error(); len(r.Text) > maxError {
			r.Text = r.Text[:maxError] + "…"
		}
	}
	return r
}
