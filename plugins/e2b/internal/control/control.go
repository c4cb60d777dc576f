// Package control is a client for the control plane of E2B and of services that speak as it does: it makes sandboxes,
// finds, keeps, pauses and ends them. What happens inside them is package envd's.
//
// Nothing that a service answers is trusted: bodies are bounded, names are checked before they become part of an
// address, and the API key is taken out of every message.
package control

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-run/hutch/sdk/plaintext"
)

const (
	maxAnswer     = 4 << 20          // bytes of an answer that are read
	callTime      = 60 * time.Second // for one attempt
	attempts      = 5                // of one call, the first one included
	firstWait     = 250 * time.Millisecond
	maxWait       = 8 * time.Second  // between two attempts, when the service does not say
	maxRetryAfter = 60 * time.Second // a longer Retry-After is not waited for
)

// Client speaks to one control plane with one key. It may be used concurrently.
type Client struct {
	base string
	key  string
	http *http.Client
	// Sleep waits between attempts. Tests replace it.
	Sleep func(ctx context.Context, d time.Duration) error
}

// New returns a client for the control plane at base, for example https://api.e2b.app. The key is sent to that host and
// to no other: redirects are not followed.
func New(base, key string, transport http.RoundTripper) *Client {
	return &Client{base: strings.TrimRight(base, "/"), key: key, Sleep: Sleep, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Sleep waits for d, or until ctx ends, whose cause it then returns.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// call is one request to the control plane.
type call struct {
	method, path string
	query        url.Values
	body         any  // sent as JSON; nil for none
	answer       any  // decoded from JSON; nil when the answer does not matter
	idempotent   bool // may be sent again when it is not known whether it was done
}

func (k call) name() string { return k.method + " " + k.path }

// do sends k until it is answered, and returns the answer's header. A request that the service refused for coming too
// often is sent again if it says when; one that broke off or met a failure of the service, only if it is idempotent.
func (c *Client) do(ctx context.Context, k call) (http.Header, error) {
	var body []byte
	if k.body != nil {
		var err error
		if body, err = json.Marshal(k.body); err != nil {
			return nil, err
		}
	}
	wait := firstWait
	for n := 1; ; n++ {
		header, err := c.once(ctx, k, body)
		pause, retry := retryable(err, k.idempotent)
		if err == nil || !retry || n == attempts || ctx.Err() != nil {
			return header, err
		}
		if pause == 0 {
			pause = wait/2 + rand.N(wait)
			wait = min(2*wait, maxWait)
		}
		if c.Sleep(ctx, pause) != nil {
			return nil, err
		}
	}
}

// retryable says whether a call that failed with err is sent again, and after how long; 0 leaves that to the caller.
func retryable(err error, idempotent bool) (time.Duration, bool) {
	var e *Error
	switch {
	case !errors.As(err, &e):
		return 0, false
	case e.Status == http.StatusTooManyRequests:
		return e.RetryAfter, e.RetryAfter > 0 && e.RetryAfter <= maxRetryAfter
	}
	return 0, e.Unsent || idempotent && (e.Unanswered || e.Status >= 500)
}

// once sends k one time.
func (c *Client) once(ctx context.Context, k call, body []byte) (http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	address := c.base + k.path
	if len(k.query) > 0 {
		address += "?" + k.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, k.method, address, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("the address of the control plane: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("X-API-Key", c.key)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "hutch-backend-e2b")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unanswered(k, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	invalid := func(why string) error { return &Error{Call: k.name(), Status: resp.StatusCode, Message: why} }
	switch {
	case err != nil:
		return nil, c.unanswered(k, err)
	case len(answer) > maxAnswer:
		return nil, invalid("the answer is longer than any should be")
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return nil, c.refusal(k, resp, answer)
	case k.answer == nil:
		return resp.Header, nil
	}
	if err := json.Unmarshal(answer, k.answer); err != nil {
		return nil, invalid("the answer is not what was expected: " + c.clean(err.Error()))
	}
	return resp.Header, nil
}

// unanswered is the error of a call that got no answer. It was not done if there was no connection.
func (c *Client) unanswered(k call, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // without the long address
	}
	e := &Error{Call: k.name(), Unanswered: true, Message: c.clean(err.Error()), Err: err}
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, &certificate) {
		e.Unanswered, e.Unsent = false, true
		e.Message = c.clean(c.base + " cannot be reached: " + err.Error())
	}
	return e
}

// refusal reads the error out of an answer.
func (c *Client) refusal(k call, resp *http.Response, body []byte) error {
	e := &Error{Call: k.name(), Status: resp.StatusCode, Message: http.StatusText(resp.StatusCode)}
	var answer struct {
		Message string `json:"message"`
		Code    string `json:"error_code"`
	}
	if json.Unmarshal(body, &answer) == nil && answer.Message != "" {
		e.Message, e.Code = c.clean(answer.Message), c.clean(answer.Code)
	}
	if s, err := strconv.Atoi(strings.TrimSpace(resp.Header.Get("Retry-After"))); err == nil && s > 0 {
		e.RetryAfter = time.Duration(min(s, 24*60*60)) * time.Second
	}
	return e
}

// clean makes a text of the service fit for a message: short, on one line, and without the key.
func (c *Client) clean(s string) string {
	if c.key != "" {
		s = strings.ReplaceAll(s, c.key, "[the API key]")
	}
	return plaintext.Line(s, 500)
}
