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
	maxAnswer   = 4 << 20          // bytes of an answer that are read
	callTime    = 60 * time.Second // for one attempt
	attempts    = 5                // of one call, the first one included
	firstWait   = 250 * time.Millisecond
	maxWait     = 8 * time.Second  // between two attempts, when the service does not say
	maxTold     = 60 * time.Second // a Retry-After beyond that is not waited for
	callerAgent = "hutch-backend-e2b"
)

// Client speaks to one control plane with one key. It may be used concurrently.
type Client struct {
	base string
	key  string
	http *http.Client
	// Sleep waits between attempts. Tests replace it; nil means real time.
	Sleep func(ctx context.Context, d time.Duration) error
}

// New returns a client for the control plane at base, for example https://api.e2b.app. The key is sent to that host and
// to no other: redirects are not followed.
func New(base, key string, transport http.RoundTripper) *Client {
	return &Client{base: strings.TrimRight(base, "/"), key: key, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// call is one request to the control plane.
type call struct {
	method, path string
	query        url.Values
	body         any  // marshalled as JSON; nil for none
	answer       any  // decoded from JSON; nil when the answer does not matter
	again        bool // idempotent: may be sent again when nobody knows whether it was done
	header       http.Header
}

// do sends c until it is answered. A request that the service refused for coming too often is sent again when it says
// so; one that broke off, or met a failure of the service, only when it is idempotent.
func (c *Client) do(ctx context.Context, k call) (int, error) {
	var body []byte
	if k.body != nil {
		var err error
		if body, err = json.Marshal(k.body); err != nil {
			return 0, err
		}
	}
	wait := firstWait
	for n := 1; ; n++ {
		status, err := c.once(ctx, k, body)
		pause, retry := retryable(err, k.again)
		if err == nil || !retry || n == attempts || ctx.Err() != nil {
			return status, err
		}
		if pause == 0 {
			pause = wait/2 + rand.N(wait)
			wait = min(2*wait, maxWait)
		}
		if serr := c.sleep(ctx, pause); serr != nil {
			return status, err
		}
	}
}

// retryable says whether a call that failed with err is sent again, and after how long; 0 leaves that to the caller.
func retryable(err error, idempotent bool) (time.Duration, bool) {
	var e *Error
	switch {
	case err == nil:
		return 0, false
	case !errors.As(err, &e):
		return 0, false
	case e.Status == http.StatusTooManyRequests:
		return e.RetryAfter, e.RetryAfter > 0 && e.RetryAfter <= maxTold
	case e.Unsent:
		return 0, true
	case e.Unanswered || e.Status >= 500:
		return 0, idempotent
	}
	return 0, false
}

func (c *Client) sleep(ctx context.Context, d time.Duration) error {
	if c.Sleep != nil {
		return c.Sleep(ctx, d)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// once sends k one time.
func (c *Client) once(ctx context.Context, k call, body []byte) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	at := c.base + k.path
	if len(k.query) > 0 {
		at += "?" + k.query.Encode()
	}
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, k.method, at, r)
	if err != nil {
		return 0, fmt.Errorf("the address of the control plane: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("X-API-Key", c.key)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", callerAgent)
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, c.unanswered(k, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return resp.StatusCode, c.unanswered(k, err)
	}
	if len(answer) > maxAnswer {
		return resp.StatusCode, &Error{Call: k.name(), Status: resp.StatusCode, Message: "the answer is longer than any should be"}
	}
	if k.header != nil {
		for name, v := range resp.Header {
			k.header[name] = v
		}
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return resp.StatusCode, c.refusal(k, resp, answer)
	}
	if k.answer == nil {
		return resp.StatusCode, nil
	}
	if err := json.Unmarshal(answer, k.answer); err != nil {
		return resp.StatusCode, &Error{Call: k.name(), Status: resp.StatusCode, Message: "the answer is not what was expected: " + c.clean(err.Error())}
	}
	return resp.StatusCode, nil
}

func (k call) name() string { return k.method + " " + k.path }

// unanswered is a call of which nobody knows whether it was done, unless there was nobody to take it.
func (c *Client) unanswered(k call, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // without the address, which is long and says little
	}
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, &certificate) {
		return &Error{Call: k.name(), Unsent: true, Message: c.clean(c.base + " cannot be reached: " + err.Error()), Err: err}
	}
	return &Error{Call: k.name(), Unanswered: true, Message: c.clean(err.Error()), Err: err}
}

// refusal reads the error out of an answer.
func (c *Client) refusal(k call, resp *http.Response, body []byte) error {
	e := &Error{Call: k.name(), Status: resp.StatusCode}
	var told struct {
		Message string `json:"message"`
		Code    string `json:"error_code"`
	}
	if json.Unmarshal(body, &told) == nil && told.Message != "" {
		e.Message, e.Code = c.clean(told.Message), c.clean(told.Code)
	} else {
		e.Message = strings.TrimSpace(http.StatusText(resp.StatusCode))
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
