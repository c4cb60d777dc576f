// Package worker is the program hutch-agent: it asks one provider for the hutch that started it.
package worker

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/agent/model/anthropic"
	"github.com/hutch-run/hutch/host/agent/model/channel"
	"github.com/hutch-run/hutch/host/agent/model/openai"
	"github.com/hutch-run/hutch/host/agent/model/provider"
	"github.com/hutch-run/hutch/host/agent/model/scripted"
)

// Run speaks the channel until in ends, which is how the hutch that started it ends: all work is then given up. note is told
// what is worth a line in a log, and never a key.
func Run(in io.Reader, out io.Writer, note func(format string, args ...any)) error {
	r, w := channel.NewReader(in), channel.NewWriter(out)
	ask, stop, err := begin(r, note)
	if err != nil {
		_ = w.Write(channel.Line{Error: errorLine(err)}) // whoever started it may be gone
		return err
	}
	defer stop()
	if err := w.Write(channel.Line{Ready: true}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &session{w: w, ask: ask, ctx: ctx}
	err = s.serve(r)
	cancel()
	if errors.Is(err, io.EOF) {
		return nil // and nobody waits for what is still being asked
	}
	return err
}

// begin reads the configuration and makes the client.
func begin(r *channel.Reader, note func(string, ...any)) (*provider.Asker, func(), error) {
	l, err := r.Next()
	switch {
	case errors.Is(err, io.EOF):
		return nil, nil, errors.New("this is a part of hutch, which starts it")
	case err != nil:
		return nil, nil, err
	case l.Version != channel.Version:
		return nil, nil, fmt.Errorf("hutch-agent speaks version %d of the channel and hutch version %d: install both from one release", channel.Version, l.Version)
	}
	var c model.Config
	if err := json.Unmarshal(l.Config, &c); err != nil {
		return nil, nil, fmt.Errorf("the configuration makes no sense: %w", err)
	}
	c = c.WithDefaults()
	if err := c.Check(); err != nil {
		return nil, nil, err
	}
	stop := func() {}
	if c.Provider == model.Scripted {
		if c, stop, err = startScript(c, note); err != nil {
			return nil, nil, err
		}
	}
	h := provider.NewHTTPClient()
	k := &provider.Asker{Config: c, Note: note, Provider: openai.New(c, h)}
	if c.Provider == model.Anthropic {
		k.Provider = anthropic.New(c, h)
	}
	return k, stop, nil
}

// startScript starts the server of a scripted model, and says how it is reached. The key is made up: nobody else on this machine
// is to use up the answers.
func startScript(c model.Config, note func(string, ...any)) (model.Config, func(), error) {
	s, err := scripted.Read(c.Script)
	if err != nil {
		return c, nil, &model.Error{Kind: model.KindScript, Message: fmt.Sprintf("the script of model %q cannot be used: %s", c.Name, err)}
	}
	c.APIKey = rand.Text()
	v, err := scripted.Serve("127.0.0.1:0", s, c.APIKey, note)
	if err != nil {
		return c, nil, err
	}
	c.Provider, c.BaseURL = c.Protocol, v.URL()+"/v1"
	return c, func() { _ = v.Close() }, nil // the process ends
}

// session serves requests, one at a time.
type session struct {
	w   *channel.Writer
	ask *provider.Asker
	ctx context.Context

	mu     sync.Mutex
	busy   int64 // id of the request that is being answered; 0 is none
	cancel context.CancelCauseFunc
}

// errCanceled is why a request was given up.
var errCanceled = errors.New("canceled")

func (s *session) serve(r *channel.Reader) error {
	for {
		l, err := r.Next()
		if err != nil {
			return err
		}
		switch {
		case l.Cancel:
			s.mu.Lock()
			if s.busy == l.ID && s.busy != 0 {
				s.cancel(errCanceled)
			}
			s.mu.Unlock()
		case l.Request != nil && l.ID > 0:
			if err := s.request(l); err != nil {
				return err
			}
		default:
			return errors.New("a line of the channel is neither a request nor the end of one")
		}
	}
}

// request begins to answer one.
func (s *session) request(l channel.Line) error {
	var r model.Request
	if err := json.Unmarshal(l.Request, &r); err != nil {
		return fmt.Errorf("a request makes no sense: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy != 0 {
		return fmt.Errorf("request %d came before %d was answered", l.ID, s.busy)
	}
	ctx, cancel := context.WithCancelCause(s.ctx)
	s.busy, s.cancel = l.ID, cancel
	go func() {
		a, err := s.ask.Ask(ctx, r, func(text string) {
			_ = s.w.Write(channel.Line{ID: l.ID, Delta: text}) // when nobody reads, the input ends too
		})
		s.mu.Lock()
		s.busy, s.cancel = 0, nil
		s.mu.Unlock()
		cancel(nil)
		out := channel.Line{ID: l.ID}
		if err != nil {
			out.Error = errorLine(err)
		} else if out.Answer, err = json.Marshal(a); err != nil {
			out.Error = errorLine(err)
		}
		_ = s.w.Write(out) // as above
	}()
	return nil
}

// errorLine is an error as the channel carries it.
func errorLine(err error) json.RawMessage {
	var e *model.Error
	if !errors.As(err, &e) {
		e = &model.Error{Kind: model.KindProtocol, Message: err.Error()}
	}
	b, err := json.Marshal(e)
	if err != nil {
		return json.RawMessage(`{"kind":"protocol","message":"an error that cannot be told"}`) // strings and numbers always encode
	}
	return b
}
