package record

import (
	"context"
	"errors"
	"time"

	"github.com/hutch-run/hutch/host/agent/model"
)

// Client is a client of which every call is recorded, those that fail too. An error of the record is returned with the
// answer: a loop whose record cannot be written must end.
type Client struct {
	model.Client
	Loop      *Loop
	Shortened int   // bytes that were taken out of the conversation before the next call
	Err       error // of the record, of the last call
}

// Answer implements [model.Client].
func (c *Client) Answer(ctx context.Context, req model.Request, delta func(string)) (model.Answer, error) {
	began := time.Now()
	answer, err := c.Client.Answer(ctx, req, delta)
	_, c.Err = c.Loop.ModelCall(ModelCall{Request: req, Shortened: c.Shortened, Answer: answer, Err: err, Started: began, Took: time.Since(began)})
	return answer, errors.Join(err, c.Err)
}
