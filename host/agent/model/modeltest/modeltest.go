// Package modeltest has a model in the process, for tests of what works with models.
package modeltest

import (
	"context"
	"fmt"
	"sync"

	"github.com/hutch-run/hutch/host/agent/model"
)

// Step answers one request: with an answer or an error. Where Do is set it decides, from the request, and may wait for
// ctx.
type Step struct {
	Answer model.Answer
	Err    error
	Do     func(ctx context.Context, r model.Request) (model.Answer, error)
}

// Text is a step that says something.
func Text(text string) Step {
	return Step{Answer: model.Answer{Text: text, Stop: model.StopEnd, Model: "test",
		Usage: model.Usage{InputTokens: 10, OutputTokens: 5}}}
}

// Calls is a step that asks for tools.
func Calls(calls ...model.ToolCall) Step {
	return Step{Answer: model.Answer{Calls: calls, Stop: model.StopTools, Model: "test",
		Usage: model.Usage{InputTokens: 10, OutputTokens: 5}}}
}

// Client answers by its steps, one after the other. It is safe for concurrent use.
type Client struct {
	mu       sync.Mutex
	steps    []Step
	requests []model.Request
	closed   bool
}

// New is a client with these steps. A request beyond the last one is an error of kind script.
func New(steps ...Step) *Client { return &Client{steps: steps} }

// Answer implements [model.Client]. The text is handed to delta in two pieces.
func (c *Client) Answer(ctx context.Context, r model.Request, delta func(text string)) (model.Answer, error) {
	c.mu.Lock()
	n := len(c.requests)
	c.requests = append(c.requests, r)
	closed := c.closed
	c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return model.Answer{}, context.Cause(ctx)
	}
	if closed || n >= len(c.steps) {
		return model.Answer{}, &model.Error{Kind: model.KindScript,
			Message: fmt.Sprintf("no answer is left for request %d", n+1)}
	}
	s := c.steps[n]
	a, err := s.Answer, s.Err
	if s.Do != nil {
		a, err = s.Do(ctx, r)
	}
	if err == nil && delta != nil && a.Text != "" {
		delta(a.Text[:len(a.Text)/2])
		delta(a.Text[len(a.Text)/2:])
	}
	return a, err
}

// Close implements [model.Client].
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return nil
}

// Closed says whether the client was closed.
func (c *Client) Closed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Requests are all requests so far.
func (c *Client) Requests() []model.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]model.Request(nil), c.requests...)
}
