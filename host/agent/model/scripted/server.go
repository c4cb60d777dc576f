package scripted

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hutch-run/hutch/host/agent/model/provider"
)

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

// Serve starts a server on an address of this machine, such as 127.0.0.1:0. A key that is not empty must come with each request.
// note is told of each request; it may be nil.
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
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { v.serve(w, r, openaiWire{}) })
	mux.HandleFunc("POST /v1/messages", func(w http.ResponseWriter, r *http.Request) { v.serve(w, r, anthropicWire{}) })
	v.http = &http.Server{Handler: mux, ReadHeaderTimeout: 30 * time.Second}
	go func() {
		defer close(v.done)
		_ = v.http.Serve(ln) // it ends with Close
	}()
	return v, nil
}

// URL is the address, without the part of the path that OpenAI's clients want to be told: /v1.
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

// wire is one of the two protocols.
type wire interface {
	// read takes a request apart.
	read(body []byte) (*request, error)
	// key is what came to authenticate.
	key(h http.Header) string
	// fail is the body of an error.
	fail(typ, message string) any
	// whole is the body of an answer that is not streamed.
	whole(a *reply) any
	// events are those of a stream.
	events(a *reply) []event
	// streamError is one that comes instead of the rest.
	streamError(message string) event
}

// request is what a script looks at.
type request struct {
	Model, System string
	Last          string // all that was said since the model's last answer
	Tools         []string
	Stream        bool
	Size          int // bytes of the whole conversation
	Turn          int // messages of the conversation
}

// event is one piece of a stream; a name of "" is left out.
type event struct {
	name string
	data any // a string is sent as it is
}

// reply is an answer as it is going to be sent.
type reply struct {
	Answer
	model, id string
	stream    bool
}

func (v *Server) serve(w http.ResponseWriter, r *http.Request, p wire) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		v.error(w, p, http.StatusRequestEntityTooLarge, "invalid_request_error", "the request cannot be read: "+err.Error())
		return
	}
	key := p.key(r.Header)
	if v.key != "" && subtle.ConstantTimeCompare([]byte(key), []byte(v.key)) != 1 {
		v.error(w, p, http.StatusUnauthorized, "authentication_error", "the key is not the right one")
		return
	}
	q, err := p.read(body)
	if err != nil {
		v.error(w, p, http.StatusBadRequest, "invalid_request_error", err.Error())
		return
	}
	a, n, err := v.take(q)
	if err != nil {
		v.note("request %d: %s", n, err)
		v.error(w, p, http.StatusBadRequest, provider.ScriptType, err.Error())
		return
	}
	v.note("request %d: answered", n)
	a.model, a.id, a.stream = q.Model, fmt.Sprintf("scripted-%d", n), q.Stream
	v.answer(w, r, p, a, q, key)
}

// take uses up the next answer, and is an error when the request is not what it expects.
func (v *Server) take(q *request) (*reply, int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.next++
	n := v.next
	if n > len(v.script.Answers) {
		return nil, n, fmt.Errorf("%s ends with answer %d, and this is request %d", v.script.Name, len(v.script.Answers), n)
	}
	a := &reply{Answer: v.script.Answers[n-1]}
	if err := a.Expect.meets(q); err != nil {
		return nil, n, fmt.Errorf("answer %d of %s %w", n, v.script.Name, err)
	}
	return a, n, nil
}

// meets says what a request lacks.
func (e Expect) meets(q *request) error {
	for _, want := range e.Last {
		if !strings.Contains(q.Last, want) {
			return fmt.Errorf("expects %q in the last message, which is: %s", want, short(q.Last))
		}
	}
	for _, not := range e.Not {
		if strings.Contains(q.Last, not) {
			return fmt.Errorf("expects no %q in the last message, which is: %s", not, short(q.Last))
		}
	}
	for _, want := range e.System {
		if !strings.Contains(q.System, want) {
			return fmt.Errorf("expects %q in the system prompt, which is: %s", want, short(q.System))
		}
	}
	for _, want := range e.Tools {
		if !contains(q.Tools, want) {
			return fmt.Errorf("expects the tool %q; there are: %s", want, strings.Join(q.Tools, ", "))
		}
	}
	return nil
}

func contains(all []string, s string) bool {
	for _, e := range all {
		if e == s {
			return true
		}
	}
	return false
}

// short is the beginning and the end of a long text.
func short(s string) string {
	const most = 600
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most/2], "") + " […] " + strings.ToValidUTF8(s[len(s)-most/2:], "")
	}
	return s
}

func (v *Server) error(w http.ResponseWriter, p wire, status int, typ, message string) {
	w.Header().Set("content-type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(p.fail(typ, message)) // who asked may be gone
}

// wait is false when the client went away before.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
