package scripted

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hutch-run/hutch/host/agent/model"
)

// ErrorType is the type of an error when no answer of the script fits.
const ErrorType = "hutch_script_error"

// maxRequest is how much is read of a request, in bytes.
const maxRequest = 256 << 20

// Server answers by a script. Its answers are used up by the requests of both protocols together.
type Server struct {
	script *Script
	key    string
	note   func(format string, args ...any)
	http   *http.Server
	ln     net.Listener
	done   chan struct{}

	mu   sync.Mutex
	next int
}

// Serve starts a server on an address of this machine, such as 127.0.0.1:0. A key that is not empty must come with each
// request. note is called for each request; it may be nil.
func Serve(addr string, s *Script, key string, note func(format string, args ...any)) (*Server, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("%s is not an address of this machine alone; take 127.0.0.1:PORT", addr)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	if note == nil {
		note = func(string, ...any) {}
	}
	v := &Server{script: s, key: key, note: note, ln: ln, done: make(chan struct{})}
	mux := http.NewServeMux()
	for path, p := range map[string]wire{"/v1/chat/completions": openai{}, "/v1/messages": anthropic{}} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { v.serve(w, r, p) })
	}
	v.http = &http.Server{Handler: mux, ReadHeaderTimeout: 30 * time.Second}
	go func() {
		defer close(v.done)
		_ = v.http.Serve(ln) // it ends with Close
	}()
	return v, nil
}

// URL is the address, without the part of the path that OpenAI's clients expect in theirs: /v1.
func (v *Server) URL() string { return "http://" + v.ln.Addr().String() }

// Used is how many answers were given.
func (v *Server) Used() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.next
}

// Close ends the server and all its connections.
func (v *Server) Close() error {
	err := v.http.Close()
	<-v.done
	return err
}

// request is a request of either protocol.
type request struct {
	Model, system string
	Stream        bool
	System        json.RawMessage // Anthropic's; OpenAI's is a message
	MaxTokens     int             `json:"max_tokens"`
	Messages      []struct {
		Role    string
		Content json.RawMessage
	}
	Tools []struct {
		Name     string                // Anthropic's
		Function struct{ Name string } // OpenAI's
	}

	key   string
	last  string // all that was said since the model's last answer
	tools []string
	size  int // bytes of the whole conversation
}

func readRequest(header http.Header, body []byte) (*request, error) {
	bearer, _ := strings.CutPrefix(header.Get("authorization"), "Bearer ")
	q := &request{key: cmp.Or(header.Get("x-api-key"), bearer), size: len(body)}
	if err := json.Unmarshal(body, q); err != nil {
		return q, err
	}
	if len(q.Messages) == 0 {
		return q, errors.New("the request has no messages")
	}
	q.system = contentText(q.System)
	for _, m := range q.Messages {
		switch text := contentText(m.Content); m.Role {
		case "system", "developer":
			q.system += text
		case "assistant":
			q.last = ""
		default:
			q.last += text + "\n"
		}
	}
	for _, t := range q.Tools {
		q.tools = append(q.tools, t.Name+t.Function.Name)
	}
	return q, nil
}

// contentText is a string, or the texts of a list of parts, also of parts in parts.
func contentText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []struct {
		Text    string
		Content json.RawMessage
	}
	if json.Unmarshal(raw, &parts) != nil {
		return ""
	}
	var all []string
	for _, p := range parts {
		if p.Text != "" {
			all = append(all, p.Text)
		}
		if len(p.Content) > 0 {
			all = append(all, contentText(p.Content))
		}
	}
	return strings.Join(all, "\n")
}

func (v *Server) serve(w http.ResponseWriter, r *http.Request, p wire) {
	refuse := func(status int, typ, message string) {
		w.Header().Set("content-type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(p.fail(typ, message)) // the client may be gone
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		refuse(http.StatusRequestEntityTooLarge, "invalid_request_error", "the request cannot be read: "+err.Error())
		return
	}
	q, err := readRequest(r.Header, body)
	switch {
	case v.key != "" && subtle.ConstantTimeCompare([]byte(q.key), []byte(v.key)) != 1:
		refuse(http.StatusUnauthorized, "authentication_error", "the key is not the right one")
		return
	case err != nil:
		refuse(http.StatusBadRequest, "invalid_request_error", err.Error())
		return
	case p == wire(anthropic{}) && q.MaxTokens < 1:
		refuse(http.StatusBadRequest, "invalid_request_error", "the request has no max_tokens")
		return
	}
	a, n, err := v.take(q)
	if err != nil {
		v.note("request %d: %s", n, err)
		refuse(http.StatusBadRequest, ErrorType, err.Error())
		return
	}
	v.note("request %d: answered", n)
	answer(w, r, p, a, q, refuse)
}

// take uses up the next answer. It is an error when the request is not what the answer expects.
func (v *Server) take(q *request) (*reply, int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.next++
	n := v.next
	if n > len(v.script.Answers) {
		return nil, n, fmt.Errorf("%s ends with answer %d, and this is request %d", v.script.Name, len(v.script.Answers), n)
	}
	a := &reply{Answer: v.script.Answers[n-1], model: q.Model, id: fmt.Sprintf("scripted-%d", n)}
	if err := a.Expect.check(q); err != nil {
		return nil, n, fmt.Errorf("answer %d of %s %w", n, v.script.Name, err)
	}
	return a, n, nil
}

// check says what a request lacks.
func (e Expect) check(q *request) error {
	for _, c := range []struct {
		all   []string
		where string
		text  string
	}{{e.Last, "last message", q.last}, {e.System, "system prompt", q.system}} {
		for _, want := range c.all {
			if !strings.Contains(c.text, want) {
				return fmt.Errorf("expects %q in the %s, which is: %s", want, c.where, short(c.text))
			}
		}
	}
	for _, not := range e.Not {
		if strings.Contains(q.last, not) {
			return fmt.Errorf("expects no %q in the last message, which is: %s", not, short(q.last))
		}
	}
	for _, want := range e.Tools {
		if !slices.Contains(q.tools, want) {
			return fmt.Errorf("expects the tool %q; there are: %s", want, strings.Join(q.tools, ", "))
		}
	}
	return nil
}

// short is the beginning and the end of a long text.
func short(s string) string {
	const most = 600
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most/2], "") + " […] " + strings.ToValidUTF8(s[len(s)-most/2:], "")
	}
	return s
}

// statusTypes are the types of errors as the providers name them.
var statusTypes = map[int]string{400: "invalid_request_error", 401: "authentication_error", 402: "billing_error",
	403: "permission_error", 404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 500: "api_error",
	503: "api_error", 529: "overloaded_error"}

// answer sends what the script has, with its faults.
func answer(w http.ResponseWriter, r *http.Request, p wire, a *reply, q *request, refuse func(int, string, string)) {
	f := a.Fault
	ctx := r.Context()
	if d, _ := duration(f.Delay); d > 0 { // the script was checked
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return
		}
	}
	switch {
	case f.Hang:
		<-ctx.Done()
		return
	case f.Reset:
		panic(http.ErrAbortHandler)
	case f.Redirect != "":
		http.Redirect(w, r, f.Redirect, http.StatusTemporaryRedirect)
		return
	case f.HTML:
		w.Header().Set("content-type", "text/html; charset=utf-8")
		fmt.Fprint(w, "<html><body><h1>Welcome</h1></body></html>")
		return
	case f.Status != 0:
		retryAfter(w.Header(), f.RetryAfter)
		message := cmp.Or(f.Message, fmt.Sprintf("the script wants status %d", f.Status))
		if f.EchoKey {
			message += ": " + q.key
		}
		refuse(f.Status, cmp.Or(f.Type, statusTypes[f.Status]), message)
		return
	}
	a.prepare(q)
	w.Header().Set("x-request-id", "req-"+a.id)
	w.Header().Set("request-id", "req-"+a.id)
	if !q.Stream || f.Whole {
		w.Header().Set("content-type", "application/json")
		_ = json.NewEncoder(w).Encode(p.whole(a)) // the client may be gone
		return
	}
	w.Header().Set("content-type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	if !f.Empty {
		stream(ctx, w, p, a)
	}
}

// stream sends the events of an answer.
func stream(ctx context.Context, w http.ResponseWriter, p wire, a *reply) {
	f := a.Fault
	flush := http.NewResponseController(w)
	events := p.events(a)
	for i, e := range events {
		last := false
		if i == len(events)/2 {
			switch {
			case f.Cut:
				_ = flush.Flush() // what was sent before is to arrive
				panic(http.ErrAbortHandler)
			case f.Stall:
				_ = flush.Flush()
				<-ctx.Done()
				return
			case f.Garbage:
				e = event{"", "{this is no JSON"}
			case f.ErrorInStream:
				e, last = p.streamError("the model has fallen over"), true
			}
		}
		text, ok := e.data.(string)
		if !ok {
			b, _ := json.Marshal(e.data) // maps, lists and strings always encode
			text = string(b)
		}
		if e.name != "" {
			fmt.Fprintf(w, "event: %s\n", e.name)
		}
		fmt.Fprintf(w, "data: %s\n\n", text)
		if err := flush.Flush(); err != nil || ctx.Err() != nil || last {
			return
		}
	}
}

// retryAfter sets the header that asks for a pause.
func retryAfter(h http.Header, pause string) {
	switch d, _ := duration(pause); { // the script was checked
	case pause == "":
	case pause == "date":
		h.Set("retry-after", time.Now().Add(time.Second).UTC().Format(http.TimeFormat))
	case d%time.Second == 0:
		h.Set("retry-after", fmt.Sprint(int(d/time.Second)))
	default:
		h.Set("retry-after-ms", fmt.Sprint(d.Milliseconds()))
	}
}

// reply is an answer as it is going to be sent.
type reply struct {
	Answer
	model, id string
}

// prepare fills in what the script leaves open.
func (a *reply) prepare(q *request) {
	f := a.Fault
	if f.Big > 0 {
		a.Text = strings.Repeat("0123456789abcdef", f.Big/16+1)[:f.Big]
	}
	if a.Stop == "" {
		a.Stop = model.StopEnd
		if len(a.Calls) > 0 {
			a.Stop = model.StopTools
		}
	}
	a.Calls = slices.Clone(a.Calls)
	for i := range a.Calls {
		c := &a.Calls[i]
		if f.NoIDs {
			c.ID = ""
		} else if c.ID == "" {
			c.ID = fmt.Sprintf("call_%s_%d", a.id, i+1)
		}
		if f.EchoKey {
			c.Arguments, _ = json.Marshal(map[string]string{"key": q.key}) // a map of strings always encodes
		}
	}
	if f.EchoKey {
		a.Text += q.key
	}
	if a.Usage == nil {
		out := len(a.Text) + len(a.Thought)
		for _, c := range a.Calls {
			out += len(c.Name) + len(c.text())
		}
		a.Usage = &model.Usage{InputTokens: int64(q.size+3) / 4, OutputTokens: int64(out+3) / 4}
	}
}

// wire is how one of the two protocols writes what a server sends.
type wire interface {
	fail(typ, message string) any // the body of an error
	whole(a *reply) any           // the body of an answer that is not streamed
	events(a *reply) []event      // a stream
	streamError(message string) event
}

// event is one piece of a stream; a name of "" is left out.
type event struct {
	name string
	data any // a string is sent as it is
}

type object = map[string]any

// pieces cuts a text as a stream does, never inside of a character.
func pieces(s string, size int) []string {
	if len(s) > 64*size { // a big one in fewer pieces
		size = len(s) / 64
	}
	var all []string
	for len(s) > size {
		n := size
		for n < len(s) && n < size+4 && s[n]&0xC0 == 0x80 {
			n++
		}
		all, s = append(all, s[:n]), s[n:]
	}
	if s != "" {
		all = append(all, s)
	}
	return all
}

// openai is chat completions.
type openai struct{}

var openaiStops = map[model.Stop]string{model.StopEnd: "stop", model.StopTools: "tool_calls",
	model.StopLength: "length", model.StopRefused: "content_filter"}

func (openai) fail(typ, message string) any {
	return object{"error": object{"message": message, "type": typ, "code": nil, "param": nil}}
}

func (openai) streamError(message string) event {
	return event{"", object{"error": object{"message": message, "type": "server_error", "code": 500}}}
}

// body is an answer, or a chunk of one. A choice or a usage of nil is left out.
func (openai) body(a *reply, kind string, choice object, usage *model.Usage) object {
	b := object{"id": a.id, "object": kind, "created": 1, "model": a.model, "choices": []object{}}
	if choice != nil {
		choice["index"] = 0
		b["choices"] = []object{choice}
	}
	if u := usage; u != nil && !a.Fault.NoUsage {
		b["usage"] = object{"prompt_tokens": u.InputTokens, "completion_tokens": u.OutputTokens,
			"total_tokens":          u.InputTokens + u.OutputTokens,
			"prompt_tokens_details": object{"cached_tokens": u.CachedTokens}}
	}
	return b
}

func (w openai) whole(a *reply) any {
	m := object{"role": "assistant", "content": a.Text}
	if a.Thought != "" {
		m["reasoning_content"] = a.Thought
	}
	var calls []object
	for _, c := range a.Calls {
		calls = append(calls, object{"id": c.ID, "type": "function",
			"function": object{"name": c.Name, "arguments": c.text()}})
	}
	if calls != nil {
		m["tool_calls"] = calls
	}
	return w.body(a, "chat.completion", object{"message": m, "finish_reason": openaiStops[a.Stop]}, a.Usage)
}

func (w openai) events(a *reply) []event {
	var all []event
	chunk := func(delta object, finish any) {
		choice := object{"delta": delta, "finish_reason": finish}
		all = append(all, event{"", w.body(a, "chat.completion.chunk", choice, nil)})
	}
	chunk(object{"role": "assistant", "content": ""}, nil)
	for _, p := range pieces(a.Thought, 16) {
		chunk(object{"reasoning_content": p}, nil)
	}
	for _, p := range pieces(a.Text, 16) {
		chunk(object{"content": p}, nil)
	}
	for i, c := range a.Calls {
		if a.Fault.SameIndex {
			i = 0
		}
		parts := pieces(c.text(), 7)
		if len(parts) == 0 { // a model may write no arguments at all
			parts = []string{""}
		}
		for j, p := range parts {
			call := object{"index": i, "function": object{"arguments": p}}
			if j == 0 {
				call = object{"index": i, "type": "function", "function": object{"name": c.Name, "arguments": p}}
				if c.ID != "" {
					call["id"] = c.ID
				}
			}
			chunk(object{"tool_calls": []object{call}}, nil)
		}
	}
	if !a.Fault.NoStop {
		chunk(object{}, openaiStops[a.Stop])
	}
	if !a.Fault.NoUsage {
		all = append(all, event{"", w.body(a, "chat.completion.chunk", nil, a.Usage)})
	}
	if !a.Fault.NoDone {
		all = append(all, event{"", "[DONE]"})
	}
	return all
}

// anthropic is messages.
type anthropic struct{}

var anthropicStops = map[model.Stop]string{model.StopEnd: "end_turn", model.StopTools: "tool_use",
	model.StopLength: "max_tokens", model.StopRefused: "refusal"}

func (anthropic) fail(typ, message string) any {
	return object{"type": "error", "error": object{"type": typ, "message": message}}
}

func (w anthropic) streamError(message string) event {
	return event{"error", w.fail("api_error", message)}
}

// body is an answer, or the beginning of one.
func (anthropic) body(a *reply, content []object, stop any, out int64) object {
	usage := object{}
	if u := a.Usage; !a.Fault.NoUsage {
		usage = object{"input_tokens": u.InputTokens - u.CachedTokens, "cache_read_input_tokens": u.CachedTokens,
			"cache_creation_input_tokens": 0, "output_tokens": out}
	}
	return object{"id": a.id, "type": "message", "role": "assistant", "model": a.model, "content": content,
		"stop_reason": stop, "stop_sequence": nil, "usage": usage}
}

func (w anthropic) whole(a *reply) any {
	content := []object{}
	if a.Thought != "" {
		content = append(content, object{"type": "thinking", "thinking": a.Thought, "signature": "s"})
	}
	if a.Text != "" {
		content = append(content, object{"type": "text", "text": a.Text})
	}
	for _, c := range a.Calls {
		input := json.RawMessage(c.text())
		if !json.Valid(input) { // the protocol has no way to carry that
			input = json.RawMessage("{}")
		}
		content = append(content, object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": input})
	}
	return w.body(a, content, anthropicStops[a.Stop], a.Usage.OutputTokens)
}

func (w anthropic) events(a *reply) []event {
	var all []event
	add := func(name string, data object) {
		data["type"] = name
		all = append(all, event{name, data})
	}
	add("message_start", object{"message": w.body(a, []object{}, nil, 1)})
	add("ping", object{})
	index := 0
	block := func(start object, kind, field string, parts []string) {
		add("content_block_start", object{"index": index, "content_block": start})
		for _, p := range parts {
			add("content_block_delta", object{"index": index, "delta": object{"type": kind, field: p}})
		}
		add("content_block_stop", object{"index": index})
		index++
	}
	if a.Thought != "" {
		start := object{"type": "thinking", "thinking": "", "signature": ""}
		block(start, "thinking_delta", "thinking", pieces(a.Thought, 16))
	}
	if a.Text != "" {
		block(object{"type": "text", "text": ""}, "text_delta", "text", pieces(a.Text, 16))
	}
	for _, c := range a.Calls {
		start := object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": object{}}
		block(start, "input_json_delta", "partial_json", pieces(c.text(), 7))
	}
	if !a.Fault.NoStop {
		last := object{}
		if !a.Fault.NoUsage {
			last["output_tokens"] = a.Usage.OutputTokens
		}
		add("message_delta", object{"delta": object{"stop_reason": anthropicStops[a.Stop], "stop_sequence": nil},
			"usage": last})
	}
	if !a.Fault.NoDone && !a.Fault.NoStop {
		add("message_stop", object{})
	}
	return all
}
