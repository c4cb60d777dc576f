package provider

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/hutch-run/hutch/host/agent/model"
)

// Bounds of one answer.
const (
	maxBody  = 256 << 20 // bytes of a response: far more than any model writes, with what surrounds each piece
	maxText  = 16 << 20  // bytes of text and arguments together
	maxCalls = 256
)

// newHTTPClient makes a client for one provider. It follows no redirects, which would bring the key to an address that
// nobody named; an answer that is not 2xx is a [*failure]; bodies are bounded. It has no deadline: a context has.
func newHTTPClient() *http.Client {
	return &http.Client{
		Transport:     &transport{http.DefaultTransport.(*http.Transport).Clone()},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type transport struct{ *http.Transport }

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := t.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 != 2 {
		defer res.Body.Close()
		return nil, fromResponse(res)
	}
	res.Body = http.MaxBytesReader(nil, res.Body, maxBody)
	return res, nil
}

// reader puts an answer into its stream.
type reader interface {
	event(data []byte) error // one event of a stream
	whole(data []byte) error // an answer of a server that does not stream
	end()                    // puts in what is known only at the end
}

// stream is one answer on its way.
type stream struct {
	provider string // whose protocol is spoken
	hint     string // what to look at when the server speaks another one
	header   string // has the server's ID of the request

	delta    func(string)
	text     strings.Builder
	calls    []model.ToolCall
	stop     model.Stop // why the answer ended; "" where that was not said
	usage    model.Usage
	model    string
	id       string // the server's ID of the answer
	size     int    // bytes of text and arguments
	thoughts int    // bytes of what the model thought aloud: no part of the answer, but of an estimate
	ended    bool   // the server said that nothing follows
}

// read sends one request and reads the answer to it.
func read(ctx context.Context, p protocol, r model.Request, delta func(string)) (model.Answer, error) {
	res, err := p.post(ctx, r)
	if err != nil {
		return model.Answer{}, err
	}
	defer res.Body.Close()
	s := &stream{delta: delta}
	to := p.reader(s)
	kind, _, _ := mime.ParseMediaType(res.Header.Get("content-type")) // one that cannot be read counts as missing
	switch kind {
	case "text/event-stream":
		err = s.events(res, to)
	case "application/json": // a server that cannot stream
		var data []byte
		if data, err = io.ReadAll(res.Body); err == nil {
			err = to.whole(data)
		}
	case "":
		err = s.foreign("it answers with no content type")
	default:
		err = s.foreign("it answers with " + kind)
	}
	if err != nil {
		return model.Answer{}, err
	}
	to.end()
	return s.answer(r, res.Header.Get(s.header))
}

func (s *stream) events(res *http.Response, to reader) error {
	some := false
	d := ssestream.NewDecoder(res)
	for !s.ended && d.Next() {
		data := bytes.TrimSpace(d.Event().Data)
		switch {
		case len(data) == 0:
			continue
		case bytes.Equal(data, []byte("[DONE]")): // OpenAI's end, which servers of other protocols send too
			s.ended = true
		case !json.Valid(data) || data[0] != '{':
			return s.foreign("a piece of its stream is no JSON object")
		default:
			if err := to.event(data); err != nil {
				return err
			}
		}
		some = true
	}
	switch err := d.Err(); {
	case err != nil:
		return err
	case !some:
		return s.foreign("its stream is empty")
	case s.stop == "" && !s.ended: // some servers say only one of the two, and none leaves out both
		return io.ErrUnexpectedEOF
	}
	return nil
}

// foreign is the failure of a server that does not speak the protocol.
func (s *stream) foreign(what string) *failure {
	f := fail(model.KindProtocol, "the server does not speak %s's protocol: %s", s.provider, what)
	f.Hint = s.hint
	return f
}

func tooLarge(most int) *failure {
	f := fail(model.KindProtocol, "the answer is larger than %d MiB", most>>20)
	f.Hint = "lower max_tokens"
	return f
}

// say adds a piece of text.
func (s *stream) say(text string) error {
	if err := s.grow(len(text)); err != nil || text == "" {
		return err
	}
	s.text.WriteString(text)
	s.delta(text)
	return nil
}

// grow counts bytes of the answer.
func (s *stream) grow(n int) error {
	if s.size += n; s.size > maxText {
		return tooLarge(maxText)
	}
	return nil
}

// answer is the whole answer to r. Where the server counts no tokens, or fewer than none, they are estimated.
func (s *stream) answer(r model.Request, id string) (model.Answer, error) {
	if len(s.calls) > maxCalls {
		return model.Answer{}, fail(model.KindProtocol, "the answer has more than %d tool calls", maxCalls)
	}
	for i := range s.calls {
		c := &s.calls[i]
		if c.ID == "" { // results refer to calls by it
			c.ID = fmt.Sprintf("call_%d_%d", len(r.Messages), i+1)
		}
		if strings.TrimSpace(c.Arguments) == "" {
			c.Arguments = "{}"
		}
	}
	switch {
	case len(s.calls) > 0 && (s.stop == "" || s.stop == model.StopEnd):
		s.stop = model.StopTools
	case len(s.calls) == 0 && (s.stop == "" || s.stop == model.StopTools):
		s.stop = model.StopEnd
	}
	// else a server could undo a limit
	if u := s.usage; u == (model.Usage{}) || min(u.InputTokens, u.CachedTokens, u.OutputTokens) < 0 {
		in, out := estimate(r.Size()), estimate(s.size+s.thoughts)
		s.usage = model.Usage{InputTokens: in, OutputTokens: out, Estimated: true}
	}
	return model.Answer{Text: s.text.String(), Calls: s.calls, Stop: s.stop, Usage: s.usage, Model: s.model,
		RequestID: cmp.Or(id, s.id)}, nil
}

// estimate guesses tokens from bytes: about four of English or code, and rather too many than too few.
func estimate(bytes int) int64 { return int64(bytes+3) / 4 }

// arguments are those of a call as the providers take them back: a JSON object. Anything else that the model wrote goes
// into one, so that the model sees what was wrong.
func arguments(written string) json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(written), &object) == nil && object != nil {
		return json.RawMessage(written)
	}
	if strings.TrimSpace(written) == "" {
		return json.RawMessage("{}")
	}
	b, _ := json.Marshal(map[string]string{"invalid_arguments": written}) // a map of strings always encodes
	return b
}
