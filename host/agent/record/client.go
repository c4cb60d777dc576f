package record

import (
	"context"
	"errors"
	"time"

	"github.com/hutch-run/hutch/host/agent/model"
)

// Client is c with every call of it recorded, those that fail too. An error of the record is returned with the answer:
// a loop whose record cannot be written must end.
func (l *Loop) Client(c model.Client) model.Client { return recorded{c, l} }

type recorded struct {
	model.Client
	loop *Loop
}

func (r recorded) Answer(ctx context.Context, req model.Request, delta func(string)) (model.Answer, error) {
	began := time.Now()
	answer, err := r.Client.Answer(ctx, req, delta)
	_, werr := r.loop.ModelCall(ModelCall{Request: req, Answer: answer, Err: err, Started: began, Took: time.Since(began)})
	return answer, errors.Join(err, werr)
}
