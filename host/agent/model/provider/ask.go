package provider

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hutch-run/hutch/host/agent/model"
)

// Pauses between two tries of which the provider said nothing.
const (
	firstPause = 500 * time.Millisecond
	maxPause   = 15 * time.Second
)

// Asker asks a provider as a configuration says: within its time, with its retries, and without its key in what comes back.
type Asker struct {
	Provider Provider
	Config   model.Config
	// Note is told of each failure that is followed by another try, and of each answer, without any secret.
	Note func(format string, args ...any)

	pause func(try int) time.Duration // nil is backoff
}

// Ask sends a request until it is answered, or more tries are of no use.
func (k *Asker) Ask(ctx context.Context, r model.Request, delta func(string)) (model.Answer, error) {
	late := Fail(model.KindNetwork, "there was no answer within %s", k.Config.Timeout)
	late.Hint = "a slow model needs more: timeout = \"…\""
	ctx, cancel := context.WithTimeoutCause(ctx, k.Config.Timeout, late)
	defer cancel()
	for try := 0; ; try++ {
		hide := &redactor{key: k.Config.APIKey, out: delta}
		began := time.Now()
		a, err := k.Provider.Try(ctx, r, hide.write)
		if err == nil {
			hide.flush()
			a.Retries = try
			k.note("answered in %s after %d retries: %s, %d tokens in, %d out", time.Since(began).Round(time.Millisecond), try, a.Stop, a.Usage.InputTokens, a.Usage.OutputTokens)
			return k.redact(a), nil
		}
		var f *Failure
		if !errors.As(err, &f) {
			if ctx.Err() == nil { // a bug of a provider's client
				f = Fail(model.KindProtocol, "%s", err)
			} else if !errors.As(context.Cause(ctx), &f) {
				return model.Answer{}, context.Cause(ctx)
			}
		}
		f.Message, f.Hint = k.Config.Redact(f.Message), k.Config.Redact(f.Hint)
		pause := backoff(try)
		if k.pause != nil {
			pause = k.pause(try)
		}
		if f.After >= 0 {
			pause = f.After
		}
		deadline, _ := ctx.Deadline()
		switch {
		case !f.Retry:
			return model.Answer{Retries: try}, &f.cause
		case try >= k.Config.Retries:
			if try > 0 {
				f.Message = fmt.Sprintf("%s (after %d tries)", f.Message, try+1)
			}
			return model.Answer{Retries: try}, &f.cause
		case time.Until(deadline) < pause:
			f.Message = fmt.Sprintf("%s (it asks for a pause of %s, and of the timeout less is left)", f.Message, pause.Round(time.Millisecond))
			return model.Answer{Retries: try}, &f.cause
		}
		k.note("try %d of %d: %s: %s; the next one in %s", try+1, k.Config.Retries+1, f.Kind, f.Message, pause.Round(time.Millisecond))
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			if errors.As(context.Cause(ctx), &f) {
				return model.Answer{Retries: try}, &f.cause
			}
			return model.Answer{Retries: try}, context.Cause(ctx)
		}
	}
}

func (k *Asker) note(format string, args ...any) {
	if k.Note != nil {
		k.Note("%s", k.Config.Redact(fmt.Sprintf(format, args...)))
	}
}

// backoff doubles, with a quarter of chance in it so that many do not come back at once.
func backoff(try int) time.Duration {
	d := min(maxPause, firstPause<<min(try, 10))
	return d - time.Duration(rand.Int64N(int64(d)/4))
}

// redact takes the key out of all that a provider may have echoed.
func (k *Asker) redact(a model.Answer) model.Answer {
	a.Text, a.Model, a.RequestID = k.Config.Redact(a.Text), k.Config.Redact(a.Model), k.Config.Redact(a.RequestID)
	for i, c := range a.Calls {
		a.Calls[i] = model.ToolCall{ID: k.Config.Redact(c.ID), Name: k.Config.Redact(c.Name), Arguments: k.Config.Redact(c.Arguments)}
	}
	return a
}
