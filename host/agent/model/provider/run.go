// Package provider asks language models with the providers' libraries: it is `hutch-agent model`, the second process
// behind [model.Open]. It owns how a request is sent, retried, read and sorted when it fails. It is linked into
// hutch-agent alone. Start reading at Run, then asker.ask.
package provider

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"

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
		c.APIKey = rand.Text() // no other program of this machine shall use up the answers
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
