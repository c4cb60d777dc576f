package tools

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"
)

// Tool is a tool as it is given to a model that works in one sandbox.
type Tool struct {
	Def
	Schema json.RawMessage // of its arguments: an object

	call func(ctx context.Context, b *Box, args string) (any, error)
}

// schemas are those of the arguments of all tools of [Set], by name. They are derived from the types of the arguments
// by a test, so that no program has to link and run what derives them.
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

// Set are the tools with which a model works in the sandbox that it was given.
func Set() []Tool {
	return []Tool{
		of(ListFiles, (*Box).ListFiles),
		of(ReadFile, (*Box).ReadFile),
		of(WriteFile, (*Box).WriteFile),
		of(EditFile, (*Box).EditFile),
		of(ApplyPatch, (*Box).ApplyPatch),
		of(RemoveFile, (*Box).RemoveFile),
		of(Grep, (*Box).Grep),
		of(Def{"run_command", "Run a command", "Runs a command in the sandbox and waits until it has ended, with all its processes. Its output is the end of each stream; command_output reads what stands before \"offset\". " +
			"Exit code and cause tell how it ended.", Adds}, (*Box).Run),
		of(Def{"command_output", "Read a command's output", "Reads on in the output of one of the last commands that run_command ran.", Reads}, (*Box).Output),
		of(Def{"reset", "Reset the sandbox", "Recreates the surroundings of the sandbox: processes, temporary files and what was installed outside of the workspace are gone. The workspace is kept, unless \"hard\".", Destroys}, (*Box).Reset),
	}
}

func of[In, Out any](d Def, fn func(*Box, context.Context, In) (Out, error)) Tool {
	t := Tool{Def: d, Schema: schemaOf()[d.Name]}
	t.call = func(ctx context.Context, b *Box, args string) (any, error) {
		var in In
		if err := Decode(args, t.Schema, &in); err != nil {
			return nil, err
		}
		out, err := fn(b, ctx, in)
		return out, err
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

// maxText bounds the bytes of an answer. The bounds of each tool keep it below, but for what JSON makes of odd bytes.
const maxText = 2 << 20

// Call calls the tool with the arguments that a model wrote.
func (t *Tool) Call(ctx context.Context, b *Box, args string) (r Result) {
	out, err := t.call(ctx, b, args)
	if x, ok := out.(ExecOut); ok {
		r.Run, r.Ended = x.Run, x.Ended()
	}
	if err != nil {
		r.Text, r.Err = clipText(Explain(err).Error()), err
		return r
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(out); err != nil {
		r.Text, r.Err = err.Error(), err
		return r
	}
	if buf.Len() > maxText {
		err := fmt.Errorf("the answer would have %d bytes, at most %d are allowed; ask for less", buf.Len(), maxText)
		r.Text, r.Err = err.Error(), err
		return r
	}
	r.Text = string(bytes.TrimSuffix(buf.Bytes(), []byte("\n")))
	return r
}

// clipText bounds an error.
func clipText(s string) string {
	const most = 16 << 10
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
