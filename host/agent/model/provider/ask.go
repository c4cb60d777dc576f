// Package provider asks language models with the providers' libraries: it is `hutch-agent model`, the second process
// behind [model.Open]. It owns how a request is sent, retried, read and sorted when it fails. It is linked into
// hutch-agent alone. Start reading at Run, then asker.ask.
package provider

import (
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/agent/model/scripted"
)

// Run answers the requests of the hutch that started this process, until in ends, which is how that hutch ends: what is
// being asked then is given up. note gets what is worth a line in a log, and never a key.
func Run(in io.Reader, out io.Writer, note func(format string, args ...any)) error {
	lines, replies := json.NewDecoder(in), json.NewEncoder(out)
	k, stop, err := open(lines, note)
	if err != nil {
		_ = replies.Encode(model.Reply{Error: modelError(err)}) // hutch may be gone
		return err
	}
	defer stop()
	if err := replies.Encode(model.Reply{}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	requests := make(chan model.Request)
	go func() {
		defer close(requests)
		for {
			var r model.Request
			if err := lines.Decode(&r); err != nil {
				cancel(err)
				return
			}
			requests <- r
		}
	}()
	for r := range requests {
		// When nobody reads what is written here, in ends as well.
		answer, err := k.ask(ctx, r, func(text string) { _ = replies.Encode(model.Reply{Delta: text}) })
		if err != nil {
			_ = replies.Encode(model.Reply{Error: modelError(err)})
		} else {
			_ = replies.Encode(model.Reply{Answer: &answer})
		}
	}
	if err := context.Cause(ctx); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("decode a request: %w", err)
	}
	return nil
}

// open reads the configuration and makes the client.
func open(in *json.Decoder, note func(string, ...any)) (k *asker, stop func(), err error) {
	var c model.Config
	in.DisallowUnknownFields()
	switch err := in.Decode(&c); {
	case errors.Is(err, io.EOF):
		return nil, nil, errors.New("this is a part of hutch, which starts it")
	case err != nil:
		return nil, nil, fmt.Errorf("decode the configuration: %w; install hutch and hutch-agent from one release", err)
	}
	c = c.WithDefaults()
	if err := c.Check(); err != nil {
		return nil, nil, err
	}
	stop = func() {}
	if c.Provider == model.Scripted {
		s, err := scripted.Read(c.Script)
		if err != nil {
			return nil, nil, &model.Error{Kind: model.KindScript,
				Message: fmt.Sprintf("the script of model %q cannot be used: %s", c.Name, err)}
		}
		c.APIKey = crand.Text() // no other program of this machine shall use up the answers
		v, err := scripted.Serve("127.0.0.1:0", s, c.APIKey, note)
		if err != nil {
			return nil, nil, err
		}
		c.Provider, c.BaseURL, stop = c.Protocol, v.URL()+"/v1", func() { _ = v.Close() } // the process ends
	}
	return newAsker(c, note), stop, nil
}

// modelError is an error as the pipe carries it.
func modelError(err error) *model.Error {
	var e *model.Error
	if !errors.As(err, &e) {
		e = &model.Error{Kind: model.KindProtocol, Message: err.Error()}
	}
	return e
}

// Pauses between two tries where the provider asks for none.
const (
	firstPause = 500 * time.Millisecond
	maxPause   = 15 * time.Second
)

// protocol is what differs between the providers.
type protocol interface {
	// post sends one request. An answer whose status is not 2xx is a [*failure].
	post(ctx context.Context, r model.Request) (*http.Response, error)
	// reader puts one answer into s.
	reader(s *stream) reader
}

// asker asks one model as its configuration says: within its time, with its retries, and without its key in what comes
// back. The libraries' own retries are off: they do not repeat an answer whose stream breaks, and there is one count.
type asker struct {
	config   model.Config
	protocol protocol
	log      func(format string, args ...any) // gets each failure that is followed by another try, and each answer
	pause    func(try int) time.Duration
}

func newAsker(c model.Config, log func(format string, args ...any)) *asker {
	k := &asker{config: c, log: log, pause: backoff}
	if c.Provider == model.Anthropic {
		k.protocol = newAnthropic(c, newHTTPClient())
	} else {
		k.protocol = newOpenAI(c, newHTTPClient())
	}
	return k
}

// ask sends a request until it is answered, or another try is of no use.
func (k *asker) ask(ctx context.Context, r model.Request, delta func(string)) (model.Answer, error) {
	late := fail(model.KindNetwork, "there was no answer within %s", k.config.Timeout)
	late.Hint = "a slow model needs more: timeout = \"…\""
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(k.config.Timeout), late)
	defer cancel()
	deadline, _ := ctx.Deadline()
	for try := 0; ; try++ {
		hide := &redactor{key: k.config.APIKey, out: delta}
		began := time.Now()
		a, err := read(ctx, k.protocol, r, hide.write)
		if err == nil {
			hide.flush()
			a.Retries = try
			k.note("answered in %s after %d retries: %s, %d tokens in, %d out", time.Since(began).Round(time.Millisecond),
				try, a.Stop, a.Usage.InputTokens, a.Usage.OutputTokens)
			return k.redact(a), nil
		}
		f, ok := errors.AsType[*failure](sortError(ctx, err))
		if !ok {
			return model.Answer{}, context.Cause(ctx)
		}
		f.show(k.config.Redact)
		pause := f.after
		if pause < 0 {
			pause = k.pause(try)
		}
		switch {
		case !f.retry:
			return model.Answer{Retries: try}, &f.cause
		case try >= k.config.Retries:
			if try > 0 {
				f.Message = fmt.Sprintf("%s (after %d tries)", f.Message, try+1)
			}
			return model.Answer{Retries: try}, &f.cause
		case time.Until(deadline) < pause:
			f.Message = fmt.Sprintf("%s (it asks for a pause of %s, and of the timeout less is left)", f.Message,
				pause.Round(time.Millisecond))
			return model.Answer{Retries: try}, &f.cause
		}
		k.note("try %d of %d: %s: %s; the next one in %s", try+1, k.config.Retries+1, f.Kind, f.Message,
			pause.Round(time.Millisecond))
		select {
		case <-time.After(pause):
		case <-ctx.Done(): // the next try fails at once, with the reason
		}
	}
}

func (k *asker) note(format string, args ...any) {
	k.log("%s", k.config.Redact(fmt.Sprintf(format, args...)))
}

// backoff doubles, less up to a quarter at random, so that many clients do not come back at once.
func backoff(try int) time.Duration {
	d := min(maxPause, firstPause<<min(try, 10))
	return d - time.Duration(rand.Int64N(int64(d)/4))
}

// redact removes the key from all that a provider may have echoed.
func (k *asker) redact(a model.Answer) model.Answer {
	hide := k.config.Redact
	a.Text, a.Model, a.RequestID = hide(a.Text), hide(a.Model), hide(a.RequestID)
	for i, c := range a.Calls {
		a.Calls[i] = model.ToolCall{ID: hide(c.ID), Name: hide(c.Name), Arguments: hide(c.Arguments)}
	}
	return a
}

// redactor removes a key from a text that comes in pieces. It holds back what may be the beginning of one.
type redactor struct {
	key  string
	out  func(string)
	held string
}

func (r *redactor) write(piece string) {
	if len(r.key) < 4 { // as model.Config.Redact
		r.out(piece)
		return
	}
	text := strings.ReplaceAll(r.held+piece, r.key, model.Redacted)
	hold := min(len(r.key)-1, len(text))
	for ; hold > 0 && !strings.HasPrefix(r.key, text[len(text)-hold:]); hold-- {
	}
	r.held = text[len(text)-hold:]
	if text = text[:len(text)-hold]; text != "" {
		r.out(text)
	}
}

// flush passes on what was held back and was no key.
func (r *redactor) flush() {
	if r.held != "" {
		r.out(r.held)
	}
}
