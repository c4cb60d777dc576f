package provider

import (
	"bytes"
	"context"
	"io"
	"iter"
	"mime"
	"net/http"

	"github.com/hutch-run/hutch/host/agent/model"
)

// Protocol is what differs between servers before anything of an answer is looked at.
type Protocol struct {
	Name string // whose it is
	Hint string // what to look at when a server speaks another one
	ID   string // the header with the server's id of a request
}

// Foreign is the failure of a server that does not speak the protocol.
func (p Protocol) Foreign(what string) *Failure {
	f := Fail(model.KindProtocol, "the server does not speak %s's protocol: %s", p.Name, what)
	f.Hint = p.Hint
	return f
}

// Parser puts what a server sent into a Stream.
type Parser interface {
	Event(name string, data []byte) error // one event of a stream
	Whole(data []byte) error              // an answer of a server that does not stream
}

// Events are the names and data of a stream's events, and why there are no more, as a provider's library reads them.
type Events struct {
	All iter.Seq2[string, []byte]
	Err func() error
}

// Stream is one answer on its way.
type Stream struct {
	*Collector
	Protocol
	Stop    model.Stop // why the answer ended; "" where that was not said
	Usage   model.Usage
	Counted bool // the server told the usage
	Model   string
	Answer  string // the server's id of it
	Ended   bool   // the server said that nothing follows
}

// Read reads the answer to r.
func (s *Stream) Read(ctx context.Context, r model.Request, res *http.Response, e Events, p Parser) (model.Answer, error) {
	var err error
	kind, _, _ := mime.ParseMediaType(res.Header.Get("content-type")) // one that cannot be read is none
	switch kind {
	case "text/event-stream":
		err = s.events(e, p)
	case "application/json": // a server that cannot stream
		var data []byte
		if data, err = io.ReadAll(res.Body); err == nil {
			err = p.Whole(data)
		}
	case "":
		err = s.Foreign("it answers with no content type")
	default:
		err = s.Foreign("it answers with " + kind)
	}
	if err == nil {
		err = s.Err()
	}
	if err != nil {
		return model.Answer{}, FromError(ctx, err)
	}
	a := s.Finish(r, s.Stop, s.Usage, s.Counted)
	if a.Model, a.RequestID = s.Model, res.Header.Get(s.ID); a.RequestID == "" {
		a.RequestID = s.Answer
	}
	return a, nil
}

func (s *Stream) events(e Events, p Parser) error {
	some := false
	for name, data := range e.All {
		if data = bytes.TrimSpace(data); len(data) == 0 {
			continue
		}
		if bytes.Equal(data, []byte("[DONE]")) { // OpenAI's end, which servers of other protocols send too
			s.Ended = true
			break
		}
		some = true
		if err := p.Event(name, data); err != nil {
			return err
		}
		if err := s.Err(); err != nil || s.Ended {
			return err
		}
	}
	switch err := e.Err(); {
	case err != nil:
		return err
	case !some:
		return s.Foreign("its stream is empty")
	case s.Stop == "" && !s.Ended: // some servers do not say that nothing follows; none leaves out why it ended as well
		return io.ErrUnexpectedEOF
	}
	return nil
}
