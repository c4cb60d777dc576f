// Package tools are what a model may do in a persistent sandbox: look at its files, change them, search them, run
// commands in it. There is one implementation, which host/agent/mcp serves to clients of its protocol and
// host/agent/cycle gives to the model that it asks.
//
// Arguments are typed and have JSON schemas. Answers are bounded and paged: each page says where the next one begins.
// What goes wrong is an error in words for a model: what, where, and what to do about it. Nothing here touches this
// host but through host/sandbox and host/workspace; what a command or a model wrote is data and nothing else.
package tools

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/host/workspace"
	"github.com/hutch-run/hutch/host/workspace/files"
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

// MaxArguments is how many bytes the arguments of one call may have.
const MaxArguments = 4 << 20

// Decode reads the arguments of a call, as a model wrote them, into a struct whose schema is given. The error says what
// is wrong with them.
func Decode(args string, schema json.RawMessage, in any) error {
	if len(args) > MaxArguments {
		return fmt.Errorf("the arguments have %d bytes, at most %s are allowed; do it in several steps", len(args),
			units.FormatSize(MaxArguments))
	}
	if strings.TrimSpace(args) == "" {
		args = "{}" // of a tool that needs none
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal([]byte(args), &given); err != nil {
		return badJSON(err)
	}
	if given == nil {
		return errors.New("the arguments are null, and must be a JSON object")
	}
	var s struct {
		Properties map[string]struct {
			Description string `json:"description"`
		} `json:"properties"`
		Required []string `json:"required"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return fmt.Errorf("the schema of the tool is damaged: %w", err)
	}
	known := slices.Sorted(maps.Keys(s.Properties))
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(known, name) {
			return fmt.Errorf("there is no argument %q; the arguments are %s", Clip(name), strings.Join(known, ", "))
		}
	}
	for _, name := range s.Required {
		if v, ok := given[name]; !ok || string(v) == "null" {
			return fmt.Errorf("the argument %q is missing", name)
		}
	}
	dec := json.NewDecoder(strings.NewReader(args))
	dec.DisallowUnknownFields()
	if err := dec.Decode(in); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			field := kind.Field[strings.LastIndexByte(kind.Field, '.')+1:] // before it is what Go embeds
			if p, ok := s.Properties[field]; ok {
				kind.Field = field
				return fmt.Errorf("%w: %s", badJSON(err), p.Description) // with its unit, and an example
			}
		}
		return badJSON(err)
	}
	return nil
}

// badJSON says what is wrong in words for a model.
func badJSON(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("the arguments are not valid JSON: %w, at byte %d", syntax, syntax.Offset)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errors.New("the arguments are not valid JSON: they end too early")
	case errors.As(err, &kind) && kind.Field == "":
		return fmt.Errorf("the arguments must be a JSON object, not %s", article(kind.Value))
	case errors.As(err, &kind):
		return fmt.Errorf("the argument %q must be %s, not %s", kind.Field, wanted(kind.Type), article(kind.Value))
	}
	return fmt.Errorf("the arguments cannot be used: %s", bytes.TrimPrefix([]byte(err.Error()), []byte("json: ")))
}

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}

func article(word string) string {
	if word != "" && strings.ContainsAny(word[:1], "aeio") {
		return "an " + word
	}
	return "a " + word
}

// Box is the sandbox that tools work in. Each tool opens it for itself and leaves it again, so that the holder of a Box
// holds no lock. Its methods may be called concurrently.
type Box struct {
	Manager *sandbox.Manager
	Name    string // of the sandbox, or its id
	Jobs    *Jobs  // where its commands run
	Parent  string // id of the record that commands belong to; "" for none
	// MaxTimeout bounds what a command is given, which is also what it gets when it asks for nothing; 0 leaves that to the
	// sandbox.
	MaxTimeout time.Duration
}

// inFiles calls fn with the files of the sandbox.
func inFiles[Out any](ctx context.Context, b *Box, fn func(f *files.Files) (Out, error)) (out Out, err error) {
	w, err := workspace.Open(ctx, b.Manager, b.Name, sandbox.Shared)
	if err != nil {
		return out, Explain(err)
	}
	defer func() { _ = w.Close() }()
	f, err := w.Files(files.Options{})
	if err != nil {
		return out, Explain(err)
	}
	defer func() { _ = f.Close() }()
	out, err = fn(f)
	return out, Explain(err)
}

// explained is an error whose text says what to do about it.
type explained struct {
	error
	fix string
}

func (e *explained) Error() string { return e.error.Error() + "; " + e.fix }
func (e *explained) Unwrap() error { return e.error }

// Explain adds to an error what to do about it, once, since a model sees nothing but its text.
func Explain(err error) error {
	var fe *files.Error
	var fail *result.Failure
	var said *explained
	switch {
	case errors.As(err, &said):
	case errors.As(err, &fe) && fe.Hint != "":
		return &explained{err, fe.Hint}
	case errors.As(err, &fail) && len(fail.Diagnostics) > 0:
		for _, d := range fail.Diagnostics {
			if d.Fix != "" {
				return &explained{err, d.Fix}
			}
		}
	}
	return err
}

// Clip shortens what a model wrote, for a message that shows it.
func Clip(s string) string { return termsafe.Clip(s, 100) }

// bounded is a number of a request: the default for none, and at most so much.
func bounded(n, or, most int) int { return min(cmp.Or(n, or), most) }

// ResetIn are the arguments of [Box.Reset].
type ResetIn struct {
	Hard bool `json:"hard,omitempty" jsonschema:"drop what was written to the workspace as well"`
}

// ResetOut is what Reset answers.
type ResetOut struct {
	Hard bool `json:"hard" jsonschema:"what was written to the workspace is gone"`
}

// Reset ends what runs in the sandbox and recreates its surroundings.
func (b *Box) Reset(ctx context.Context, in ResetIn) (ResetOut, error) {
	b.Jobs.Stop(ctx, b.Name)
	return ResetOut(in), Explain(b.Manager.Reset(ctx, b.Name, in.Hard, true))
}
