package agents

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// service is a model of each provider: asked to work, it has the agent write hello.txt with its own tool for that, then
// run the project's test, and says that it is done once it sees that the test passed. Side questions, such as for a
// title, get a word.
type service struct {
	*httptest.Server
	mu   sync.Mutex
	keys map[string]bool // that requests came with
	log  []string
}

// task is what the agents are asked, by which the service knows requests that are about it.
const task = "write the greeting of the day into hello.txt"

// What the work is made of: a file, and the command that tests it.
const (
	greeting = "hello from the box\n"
	check    = "sh check.sh"
	checked  = "the greeting is right" // what check.sh prints
)

func newService(t *testing.T) *service {
	s := &service{keys: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", s.anthropic)
	mux.HandleFunc("POST /v1beta/models/{call}", s.gemini)
	mux.HandleFunc("POST /v1/responses", s.openai)
	mux.HandleFunc("GET /v1/responses", func(w http.ResponseWriter, r *http.Request) { // Codex tries a WebSocket first
		w.WriteHeader(http.StatusUpgradeRequired)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.note("%s %s", r.Method, r.URL.Path)
		http.NotFound(w, r)
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// secret are the flags by which OpenCode, which reads no variable for the address, gets the key for this service.
func (s *service) secret() []string {
	return []string{"--secret", "ANTHROPIC_API_KEY=env@host:" + s.URL[strings.LastIndexByte(s.URL, ':')+1:]}
}

func (s *service) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

// What a request asks the model for.
type step int

const (
	aside step = iota // something beside the task
	edit
	test
	over // the test passed
)

// ask reads a request, in which result marks what a tool answered, and the tools that it names.
func (s *service) ask(r *http.Request, key, result string) (next step, tools string) {
	data, _ := io.ReadAll(r.Body)
	text := string(data)
	s.mu.Lock()
	s.keys[key] = true
	s.mu.Unlock()
	switch {
	case !strings.Contains(text, task) || !strings.Contains(text, `"tools":[{`):
	case strings.Contains(text, checked):
		next = over
	case strings.Count(text, result) > 1:
		s.note("the work went wrong: %s", text)
	case strings.Contains(text, result):
		next = test
	default:
		next = edit
	}
	s.note("%s: %d bytes, step %d", r.URL.Path, len(text), next)
	return next, text
}

// send writes the events of a stream.
func send(w http.ResponseWriter, events ...object) {
	w.Header().Set("content-type", "text/event-stream")
	for _, e := range events {
		if name, ok := e["type"].(string); ok {
			fmt.Fprintf(w, "event: %s\n", name)
		}
		fmt.Fprintf(w, "data: %s\n\n", encode(e))
	}
}

type (
	object = map[string]any
	list   = []any
)

func encode(v any) string {
	data, _ := json.Marshal(v)
	return string(data)
}

// anthropic is https://docs.anthropic.com/en/api/messages-streaming.
func (s *service) anthropic(w http.ResponseWriter, r *http.Request) {
	next, tools := s.ask(r, r.Header.Get("x-api-key"), `"tool_result"`)
	block, delta, stop := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": "fine"}, "end_turn"
	use := func(name string, input object) {
		block = object{"type": "tool_use", "id": fmt.Sprintf("toolu_%d", next), "name": name, "input": object{}}
		delta, stop = object{"type": "input_json_delta", "partial_json": encode(input)}, "tool_use"
	}
	switch openCode := strings.Contains(tools, `"name":"bash"`); {
	case next == edit && openCode:
		use("write", object{"filePath": "/workspace/hello.txt", "content": greeting})
	case next == edit:
		use("Write", object{"file_path": "/workspace/hello.txt", "content": greeting})
	case next == test && openCode:
		use("bash", object{"command": check, "description": "test it"})
	case next == test:
		use("Bash", object{"command": check, "description": "test it"})
	case next == over:
		delta["text"] = "The greeting is written."
	}
	usage := object{"input_tokens": 10, "output_tokens": 5}
	send(w, object{"type": "message_start", "message": object{"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": list{}, "usage": usage}},
		object{"type": "content_block_start", "index": 0, "content_block": block},
		object{"type": "content_block_delta", "index": 0, "delta": delta},
		object{"type": "content_block_stop", "index": 0},
		object{"type": "message_delta", "delta": object{"stop_reason": stop}, "usage": usage},
		object{"type": "message_stop"})
}

// gemini is https://ai.google.dev/api/generate-content.
func (s *service) gemini(w http.ResponseWriter, r *http.Request) {
	next, _ := s.ask(r, r.Header.Get("x-goog-api-key"), `"functionResponse"`)
	part := object{"text": "fine"}
	switch next {
	case edit:
		part = object{"functionCall": object{"name": "write_file", "args": object{"file_path": "/workspace/hello.txt", "content": greeting}}}
	case test:
		part = object{"functionCall": object{"name": "run_shell_command", "args": object{"command": check, "description": "test it"}}}
	case over:
		part["text"] = "The greeting is written."
	}
	answer := object{
		"candidates":    list{object{"content": object{"role": "model", "parts": list{part}}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": object{"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}, "modelVersion": "m",
	}
	if !strings.HasSuffix(r.PathValue("call"), ":streamGenerateContent") { // which model should work on it
		part["text"] = `{"complexity_reasoning": "a greeting", "complexity_score": 1}`
		w.Header().Set("content-type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
		return
	}
	send(w, answer)
}

// openai is https://platform.openai.com/docs/api-reference/responses-streaming.
func (s *service) openai(w http.ResponseWriter, r *http.Request) {
	key, _ := strings.CutPrefix(r.Header.Get("authorization"), "Bearer ")
	next, _ := s.ask(r, key, `_call_output"`)
	text := "fine"
	if next == over {
		text = "The greeting is written."
	}
	item := object{"type": "message", "id": "msg_1", "role": "assistant", "content": list{object{"type": "output_text", "text": text}}}
	// Codex has its model call the tools by a script.
	script := func(input string) {
		item = object{"type": "custom_tool_call", "id": "ctc_1", "call_id": fmt.Sprintf("call_%d", next), "name": "exec", "input": input}
	}
	switch next {
	case edit:
		script("text(await tools.apply_patch(" + encode("*** Begin Patch\n*** Add File: hello.txt\n+"+greeting+"*** End Patch") + "))")
	case test:
		script("text((await tools.exec_command(" + encode(object{"cmd": check}) + ")).output)")
	}
	send(w, object{"type": "response.created", "response": object{"id": "resp_1"}},
		object{"type": "response.output_item.done", "output_index": 0, "item": item},
		object{"type": "response.completed", "response": object{"id": "resp_1", "usage": object{"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}}})
}
