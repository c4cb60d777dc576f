// Package scripted is a model whose answers come from a file: a real HTTP server on this machine that speaks the
// protocols of OpenAI and Anthropic, streaming and not, and goes wrong where the script says so. It serves tests,
// examples without a key, and users who want to see what hutch sends. It is linked into hutch-agent alone.
package scripted

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/units"
)

// Bounds of a script.
const (
	maxAnswers = 10_000
	maxDelay   = 24 * time.Hour
	maxBig     = 64 << 20
)

// Script is what a scripted model says, one answer for each request.
type Script struct {
	Name    string   `json:"-"` // of the file, for messages
	Answers []Answer `json:"answers"`
}

// Answer answers one request.
type Answer struct {
	// Expect is what the request must be like.
	Expect Expect `json:"expect,omitzero"`
	// Text is what the model says.
	Text string `json:"text,omitempty"`
	// Thought is what it thinks aloud before.
	Thought string `json:"thought,omitempty"`
	// Calls are the tools that it asks for.
	Calls []Call `json:"calls,omitempty"`
	// Stop is why it ends; "" goes by the calls.
	Stop model.Stop `json:"stop,omitempty"`
	// Usage is what it counts; nil estimates from the lengths.
	Usage *model.Usage `json:"usage,omitempty"`
	// Fault is what goes wrong.
	Fault Fault `json:"fault,omitzero"`
}

// Expect is what a request must be like. All of it must hold.
type Expect struct {
	// Last are texts that all must stand in what was said since the model's last answer, results of tools included.
	Last []string `json:"last,omitempty"`
	// Not are texts of which none may stand there.
	Not []string `json:"not,omitempty"`
	// System are texts that all must stand in the system prompt.
	System []string `json:"system,omitempty"`
	// Tools are names of tools that all must be offered.
	Tools []string `json:"tools,omitempty"`
}

// Call asks for a tool. Arguments are any JSON; a string is taken as it is, so that it may be what a model writes
// wrongly.
type Call struct {
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// Fault is what goes wrong with an answer.
type Fault struct {
	// Status answers with an error of this HTTP status.
	Status int `json:"status,omitempty"`
	// Message and Type are those of the error; "" are the usual ones of the status.
	Message string `json:"message,omitempty"`
	Type    string `json:"type,omitempty"`
	// RetryAfter is a header of the error: a duration, or "date" for the form with a date, one second ahead.
	RetryAfter string `json:"retry_after,omitempty"`
	// EchoKey says the request's key in the message, in the answer's text, and in the arguments of its calls.
	EchoKey bool `json:"echo_key,omitempty"`
	// Redirect sends the client to another address.
	Redirect string `json:"redirect,omitempty"`
	// Delay waits before anything is sent.
	Delay string `json:"delay,omitempty"`
	// Hang sends nothing at all until the client is gone; Stall sends half of the answer first.
	Hang  bool `json:"hang,omitempty"`
	Stall bool `json:"stall,omitempty"`
	// Reset breaks the connection before anything is sent; Cut breaks it after half of the answer.
	Reset bool `json:"reset,omitempty"`
	Cut   bool `json:"cut,omitempty"`
	// Garbage sends something that is no JSON in the middle; HTML a page, as proxies do; Empty nothing, and all is well.
	Garbage bool `json:"garbage,omitempty"`
	HTML    bool `json:"html,omitempty"`
	Empty   bool `json:"empty,omitempty"`
	// ErrorInStream sends an error after half of the answer, with status 200.
	ErrorInStream bool `json:"error_in_stream,omitempty"`
	// Whole answers at once a request that asked for a stream.
	Whole bool `json:"whole,omitempty"`
	// NoUsage, NoIDs, NoDone, NoStop, SameIndex leave out what some servers leave out.
	NoUsage   bool `json:"no_usage,omitempty"`
	NoIDs     bool `json:"no_ids,omitempty"`
	NoDone    bool `json:"no_done,omitempty"`
	NoStop    bool `json:"no_stop,omitempty"`
	SameIndex bool `json:"same_index,omitempty"`
	// Big makes the text this many bytes long.
	Big int `json:"big,omitempty"`
}

// Read reads a script: JSON when the name ends in .json, else txtar.
func Read(path string) (*Script, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, model.MaxScript+1))
	if err != nil {
		return nil, err
	}
	if len(data) > model.MaxScript {
		return nil, fmt.Errorf("%s is larger than %s", path, units.FormatSize(model.MaxScript))
	}
	return Parse(filepath.Base(path), data)
}

// Parse takes the contents of a script.
func Parse(name string, data []byte) (*Script, error) {
	s := &Script{Name: name}
	var err error
	if strings.HasSuffix(name, ".json") {
		err = decode(data, s)
	} else {
		err = s.txtar(data)
	}
	if err == nil {
		err = s.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// decode reads one JSON object, all of whose fields must be known.
func decode(data []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the end of the object")
	}
	return nil
}

// txtar reads sections. Each answer begins with one that is called answer, whose body is its text; those that follow
// belong to it.
func (s *Script) txtar(data []byte) error {
	for _, f := range txtar.Parse(data).Files {
		words := strings.Fields(f.Name)
		if len(words) == 0 {
			return errors.New("a section has no name")
		}
		body := strings.TrimSuffix(string(f.Data), "\n")
		if words[0] == "answer" && len(words) == 1 {
			s.Answers = append(s.Answers, Answer{Text: body})
			continue
		}
		if len(s.Answers) == 0 {
			return fmt.Errorf("the section %q stands before the first answer; begin with a line: -- answer --", f.Name)
		}
		if err := s.Answers[len(s.Answers)-1].section(words, body); err != nil {
			return fmt.Errorf("section %q of answer %d: %w", f.Name, len(s.Answers), err)
		}
	}
	return nil
}

// sections are the names of those that an answer may have.
var sections = []string{"answer", "call", "expect", "fault", "not", "stop", "system", "thought", "tools", "usage"}

func (a *Answer) section(words []string, body string) error {
	if words[0] == "call" {
		if len(words) != 2 && len(words) != 3 {
			return errors.New("write -- call NAME -- or -- call NAME ID --, and the arguments below it")
		}
		c := Call{Name: words[1], Arguments: json.RawMessage(body)}
		if len(words) == 3 {
			c.ID = words[2]
		}
		if !json.Valid(c.Arguments) { // as a model may write it
			c.Arguments, _ = json.Marshal(body) // a string always encodes
		}
		a.Calls = append(a.Calls, c)
		return nil
	}
	if len(words) != 1 {
		return fmt.Errorf("%q is too much", words[1])
	}
	switch e := &a.Expect; words[0] {
	case "expect":
		e.Last = append(e.Last, lines(body)...)
	case "not":
		e.Not = append(e.Not, lines(body)...)
	case "system":
		e.System = append(e.System, lines(body)...)
	case "tools":
		e.Tools = append(e.Tools, strings.Fields(body)...)
	case "thought":
		a.Thought = body
	case "stop":
		a.Stop = model.Stop(strings.TrimSpace(body))
	case "usage":
		return a.usage(body)
	case "fault":
		return a.fault(body)
	default:
		fix := diag.DidYouMean(words[0], sections)
		return errors.New("there is no such section; " + cmp.Or(fix, "there are "+strings.Join(sections, ", ")))
	}
	return nil
}

// lines are those that are not empty.
func lines(body string) []string {
	var all []string
	for line := range strings.Lines(body) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// usage reads "input 120 output 40 cached 20".
func (a *Answer) usage(body string) error {
	a.Usage = &model.Usage{}
	counts := map[string]*int64{"input": &a.Usage.InputTokens, "output": &a.Usage.OutputTokens,
		"cached": &a.Usage.CachedTokens}
	for words := strings.Fields(body); len(words) > 0; words = words[min(2, len(words)):] {
		count := counts[words[0]]
		if count == nil {
			return fmt.Errorf("there is no count %q; write input N output N cached N", words[0])
		}
		var err error
		if len(words) == 1 {
			return errors.New("write input N output N cached N")
		} else if *count, err = strconv.ParseInt(words[1], 10, 64); err != nil {
			return errors.New("write input N output N cached N")
		}
	}
	return nil
}

// fault reads lines of a name and its value, as the JSON form has them; true needs not be said.
func (a *Answer) fault(body string) error {
	object := map[string]any{}
	for _, line := range lines(body) {
		name, value, _ := strings.Cut(line, " ")
		value = strings.TrimSpace(value)
		switch n, err := strconv.Atoi(value); {
		case value == "":
			object[name] = true
		case err == nil && name != "retry_after" && name != "message" && name != "type":
			object[name] = n
		default:
			object[name] = value
		}
	}
	b, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return decode(b, &a.Fault)
}

// check finds what cannot be served.
func (s *Script) check() error {
	if len(s.Answers) == 0 {
		return errors.New("it has no answers; begin one with a line: -- answer --")
	}
	if len(s.Answers) > maxAnswers {
		return fmt.Errorf("it has more than %d answers", maxAnswers)
	}
	for i := range s.Answers {
		if err := s.Answers[i].check(); err != nil {
			return fmt.Errorf("answer %d: %w", i+1, err)
		}
	}
	return nil
}

func (a *Answer) check() error {
	if !slices.Contains([]model.Stop{"", model.StopEnd, model.StopTools, model.StopLength, model.StopRefused}, a.Stop) {
		return fmt.Errorf("there is no stop %q; it is end, tools, length or refused", a.Stop)
	}
	if slices.ContainsFunc(a.Calls, func(c Call) bool { return c.Name == "" }) {
		return errors.New("a call has no name")
	}
	if u := a.Usage; u != nil &&
		(min(u.InputTokens, u.OutputTokens, u.CachedTokens) < 0 || u.CachedTokens > u.InputTokens) {
		return errors.New("usage counts less than nothing, or more cached than input")
	}
	f := a.Fault
	if f.Status != 0 && (f.Status < 300 || f.Status > 599) {
		return fmt.Errorf("invalid status %d of a fault: it is from 300 to 599", f.Status)
	}
	if f.Big < 0 || f.Big > maxBig {
		return fmt.Errorf("big is %d; it is from 0 to %d", f.Big, maxBig)
	}
	if _, err := duration(f.RetryAfter); f.RetryAfter != "date" && err != nil {
		return fmt.Errorf("retry_after: %w", err)
	}
	if _, err := duration(f.Delay); err != nil {
		return fmt.Errorf("delay: %w", err)
	}
	return nil
}

// duration reads one; "" is 0.
func duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(cmp.Or(text, "0s"))
	if err != nil || d < 0 || d > maxDelay {
		return 0, fmt.Errorf("%q is not a duration from 0s to %s, such as 1.5s", text, maxDelay)
	}
	return d, nil
}

// text is what the call's arguments are, as a model writes them.
func (c Call) text() string {
	var s string
	var compact bytes.Buffer
	switch {
	case len(c.Arguments) == 0:
		return "{}"
	case json.Unmarshal(c.Arguments, &s) == nil:
		return s
	case json.Compact(&compact, c.Arguments) != nil:
		return string(c.Arguments)
	}
	return compact.String()
}
