package scripted

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/agent/model"
)

// statusTypes are the types of errors as the providers name them.
var statusTypes = map[int]string{400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error",
	413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 503: "api_error", 529: "overloaded_error"}

// answer sends what the script has, with what it wants to go wrong.
func (v *Server) answer(w http.ResponseWriter, r *http.Request, p wire, a *reply, q *request, key string) {
	f := a.Fault
	ctx := r.Context()
	if d, err := duration(f.Delay); err == nil && !wait(ctx, d) {
		return
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
		v.fault(w, p, f, key)
		return
	}
	v.prepare(a, q, key)
	w.Header().Set("x-request-id", "req-"+a.id)
	w.Header().Set("request-id", "req-"+a.id)
	if !q.Stream || f.Whole {
		w.Header().Set("content-type", "application/json")
		_ = json.NewEncoder(w).Encode(p.whole(a)) // who asked may be gone
		return
	}
	w.Header().Set("content-type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	if f.Empty {
		return
	}
	events := p.events(a)
	for i, e := range events {
		if half := len(events) / 2; i == half {
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
				send(w, p.streamError("the model has fallen over"))
				return
			}
		}
		send(w, e)
		if err := flush.Flush(); err != nil || ctx.Err() != nil {
			return
		}
	}
}

// send writes one event; who reads it may be gone.
func send(w http.ResponseWriter, e event) {
	text, ok := e.data.(string)
	if !ok {
		b, err := json.Marshal(e.data)
		if err != nil {
			panic(err) // maps, lists and strings always encode
		}
		text = string(b)
	}
	if e.name != "" {
		fmt.Fprintf(w, "event: %s\n", e.name)
	}
	fmt.Fprintf(w, "data: %s\n\n", text)
}

// fault answers with an error.
func (v *Server) fault(w http.ResponseWriter, p wire, f Fault, key string) {
	switch f.RetryAfter {
	case "":
	case "date":
		w.Header().Set("retry-after", time.Now().Add(time.Second).UTC().Format(http.TimeFormat))
	default:
		if d, err := duration(f.RetryAfter); err == nil && d%time.Second == 0 {
			w.Header().Set("retry-after", fmt.Sprint(int(d/time.Second)))
		} else {
			w.Header().Set("retry-after-ms", fmt.Sprint(d.Milliseconds()))
		}
	}
	typ, message := f.Type, f.Message
	if typ == "" {
		typ = statusTypes[f.Status]
	}
	if message == "" {
		message = "the script wants status " + fmt.Sprint(f.Status)
	}
	if f.EchoKey {
		message += ": " + key
	}
	v.error(w, p, f.Status, typ, message)
}

// prepare fills in what the script leaves open.
func (v *Server) prepare(a *reply, q *request, key string) {
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
	calls := append([]Call(nil), a.Calls...)
	for i := range calls {
		if calls[i].ID == "" && !f.NoIDs {
			calls[i].ID = fmt.Sprintf("call_%s_%d", a.id, i+1)
		}
		if f.NoIDs {
			calls[i].ID = ""
		}
	}
	a.Calls = calls
	if f.EchoKey {
		a.Text += key
		for i := range a.Calls {
			a.Calls[i].Arguments, _ = json.Marshal(map[string]string{"key": key}) // a map of strings always encodes
		}
	}
	if a.Usage == nil {
		out := len(a.Text) + len(a.Thought)
		for _, c := range a.Calls {
			out += len(c.Name) + len(c.text())
		}
		a.Usage = &model.Usage{InputTokens: int64(q.Size+3) / 4, OutputTokens: int64(out+3) / 4}
	}
}

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
