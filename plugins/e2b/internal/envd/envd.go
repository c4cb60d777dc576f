// Package envd is a client for the daemon in an E2B sandbox: it runs commands in it, with the Connect protocol, and
// carries files in and out, over plain HTTP.
//
// The daemon writes the arguments and variables of every command, and every unary request, to a log that leaves the
// sandbox. Nothing secret may be in them: it goes with Upload, or with Input.
package envd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/hutch-run/hutch/plugins/e2b/internal/api/process/processconnect"
	"github.com/hutch-run/hutch/sdk/plaintext"
)

// Port is the one that the daemon listens on inside a sandbox.
const Port = 49983

const (
	callTime = 60 * time.Second // for one unary call
	maxBody  = 64 << 10         // bytes of an answer that are read
)

// Address says where the daemon of one sandbox is.
type Address struct {
	URL   string // without a path
	ID    string // of the sandbox
	Token string // its access token, a secret; empty for a sandbox that is not secured
}

// Client speaks to the daemon of one sandbox. It may be used concurrently.
type Client struct {
	at   Address
	http *http.Client
	rpc  processconnect.ProcessClient
}

// Transport returns what clients send their requests through. It does not ask for compression: the daemon compresses on
// the fly, ten times slower than it sends.
func Transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true
	t.MaxIdleConnsPerHost = 64
	return t
}

// New returns a client. The transport may be shared by many.
func New(at Address, transport http.RoundTripper) *Client {
	at.URL = strings.TrimRight(at.URL, "/")
	c := &Client{at: at}
	c.http = &http.Client{
		Transport:     &refusals{at: at, next: transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c.rpc = processconnect.NewProcessClient(c.http, at.URL)
	return c
}

// Error is a request that the daemon, or what stands before it, refused.
type Error struct {
	Status  int          // of HTTP, 0 for an error that came in a stream
	Code    connect.Code // of the protocol, 0 when it was HTTP alone that spoke
	Message string       // one line, foreign words
	Err     error
}

// Error implements the error interface.
func (e *Error) Error() string { return "the sandbox's daemon says: " + e.Message }

// Unwrap returns the error underneath.
func (e *Error) Unwrap() error { return e.Err }

// Gone reports whether err says that the sandbox does not run: it was ended or paused, or its time was over.
func Gone(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == http.StatusBadGateway && strings.Contains(e.Message, "not found")
}

// refusals adds what every request carries, and reads answers that are no message of the protocol: the daemon and the
// proxies before it answer in plain HTTP, with a body that connect-go does not understand and would throw away.
type refusals struct {
	at   Address
	next http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (t *refusals) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("E2b-Sandbox-Id", t.at.ID)
	r.Header.Set("E2b-Sandbox-Port", strconv.Itoa(Port))
	r.Header.Set("User-Agent", "hutch-backend-e2b")
	if t.at.Token != "" {
		r.Header.Set("X-Access-Token", t.at.Token)
	}
	resp, err := t.next.RoundTrip(r)
	if err != nil || resp.StatusCode < 300 {
		return resp, err
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	resp.Body.Close()
	var answer struct {
		Code    any    `json:"code"`
		Message string `json:"message"`
	}
	e := &Error{Status: resp.StatusCode, Message: http.StatusText(resp.StatusCode)}
	if json.Unmarshal(body, &answer) == nil {
		if code, ok := answer.Code.(string); ok { // the protocol's own form
			_ = e.Code.UnmarshalText([]byte(code))
		}
		if answer.Message != "" {
			e.Message = answer.Message
		}
	}
	e.Message = t.clean(e.Message)
	return nil, e
}

// clean makes a foreign text fit for a message.
func (t *refusals) clean(s string) string {
	if t.at.Token != "" {
		s = strings.ReplaceAll(s, t.at.Token, "[the access token]")
	}
	return plaintext.Line(s, 500)
}

// plain turns an error of connect-go into ours.
func plain(err error) error {
	var ours *Error
	var theirs *connect.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ours):
		return ours
	case errors.As(err, &theirs):
		return &Error{Code: theirs.Code(), Message: theirs.Message(), Err: theirs}
	}
	return err
}

// do sends a plain HTTP request. An answer that is an error is an *Error.
func (c *Client) do(
	ctx context.Context, method, path string, header http.Header, body io.Reader,
) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.at.URL+path, body)
	if err != nil {
		return nil, err
	}
	req.Header = header
	resp, err := c.http.Do(req)
	var u *url.Error
	if errors.As(err, &u) {
		return nil, u.Err // without the address, which says nothing to a user
	}
	return resp, err
}

// Health reports whether the daemon answers. An error of which Gone is true means that the daemon is gone.
func (c *Client) Health(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	resp, err := c.do(ctx, http.MethodGet, "/health", http.Header{}, nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Upload writes a file, as root, and gives it to user. It is not atomic: an interrupted upload leaves the beginning of
// the file, so the caller checks what arrived before it is used.
func (c *Client) Upload(ctx context.Context, path, user string, body io.Reader) error {
	header := http.Header{"Content-Type": {"application/octet-stream"}}
	resp, err := c.do(ctx, http.MethodPost, file(path, user), header, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxBody))
	return err
}

// Download reads a file, as root, from a byte on. Size is that of the body, or -1 when the daemon does not say. The
// caller closes the body, which ends when ctx does.
func (c *Client) Download(ctx context.Context, path string, from int64) (body io.ReadCloser, size int64, err error) {
	header := http.Header{"Accept-Encoding": {"identity"}}
	if from > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	resp, err := c.do(ctx, http.MethodGet, file(path, "root"), header, nil)
	if err != nil {
		return nil, 0, err
	}
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		resp.Body.Close()
		return nil, 0, fmt.Errorf("the sandbox's daemon sends %s encoded as %.40q, which was not asked for", path, enc)
	}
	if from > 0 && resp.StatusCode != http.StatusPartialContent {
		resp.Body.Close()
		return nil, 0, fmt.Errorf("the sandbox's daemon sends %s from its beginning, and not from byte %d on", path, from)
	}
	return resp.Body, resp.ContentLength, nil
}

// file is the path and query for a file of the sandbox.
func file(path, user string) string {
	return "/files?" + url.Values{"path": {path}, "username": {user}}.Encode()
}
