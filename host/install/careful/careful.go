// Package careful talks to servers that may be hostile: with bounds on sizes, redirects and waiting, and never without
// encryption to another machine.
package careful

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// How patient we are with a server.
const (
	dialTime     = 20 * time.Second // to connect, and as long for TLS
	headerTime   = time.Minute      // from the request to the first byte
	maxRedirects = 5
)

// DefaultStall is how long a server may send nothing.
const DefaultStall = time.Minute

// ErrPlain says that a server is not to be talked to without encryption.
var ErrPlain = errors.New("http is only for this machine; use https")

// NewClient returns a client for servers that may be hostile: https only, except on this machine; no redirect away from
// https; and no wait without a bound. base is what it talks through, nil for the network.
func NewClient(base http.RoundTripper, stall time.Duration) *http.Client {
	if base == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.DialContext = (&net.Dialer{Timeout: dialTime}).DialContext
		t.TLSHandshakeTimeout = dialTime
		t.ResponseHeaderTimeout = headerTime
		t.MaxResponseHeaderBytes = 64 << 10
		t.DisableCompression = true // sizes are those of what was sent
		base = t
	}
	return &http.Client{
		Transport: &careful{base: base, stall: stall},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return fmt.Errorf("more than %d redirects", maxRedirects)
			}
			if via[len(via)-1].URL.Scheme == "https" && req.URL.Scheme != "https" {
				return fmt.Errorf("it redirects from https to %s: that is not followed", req.URL.Redacted())
			}
			return nil
		},
	}
}

// careful refuses plain http to other machines, no matter who thought of the address: a run file, a redirect, or a
// registry that names where to get a token. It ends answers that come to a halt.
type careful struct {
	base  http.RoundTripper
	stall time.Duration
}

func (c *careful) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" && (req.URL.Scheme != "http" || !IsLocal(req.URL.Hostname())) {
		return nil, fmt.Errorf("%s: %w", req.URL.Redacted(), ErrPlain)
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	// The same patience for the answer's beginning as for each of its pieces, and for what the request brings along.
	timer := time.AfterFunc(c.stall+headerTime, func() { cancel(errStalled) })
	r := req.Clone(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		r.Body = &watched{ReadCloser: req.Body, timer: timer, stall: c.stall + headerTime, ctx: ctx, cancel: func() {}}
	}
	res, err := c.base.RoundTrip(r)
	if err != nil {
		timer.Stop()
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	timer.Reset(c.stall)
	res.Body = &watched{ReadCloser: res.Body, timer: timer, stall: c.stall, ctx: ctx, cancel: func() { cancel(nil) }}
	return res, nil
}

var errStalled = errors.New("the server stopped sending")

// watched gives each piece of a body the same time.
type watched struct {
	io.ReadCloser
	timer  *time.Timer
	stall  time.Duration
	ctx    context.Context
	cancel func()
}

func (w *watched) Read(p []byte) (int, error) {
	w.timer.Reset(w.stall)
	n, err := w.ReadCloser.Read(p)
	if err != nil && context.Cause(w.ctx) != nil { // even at the end: a server that notices may end its answer well
		err = context.Cause(w.ctx)
	}
	return n, err
}

func (w *watched) Close() error {
	w.timer.Stop()
	defer w.cancel()
	return w.ReadCloser.Close()
}

// IsLocal reports whether a host, a name or an address without a port, is this machine.
func IsLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Get copies what is at a URL, at most max bytes, to w.
func Get(ctx context.Context, client *http.Client, from string, max int64, w io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "hutch")
	res, err := client.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) { // its own text repeats the address
			err = ue.Err
		}
		return fmt.Errorf("%s: %w", shown(from), err)
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%s: %w", shown(from), ErrNone)
	case res.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: the server answered %d %s", shown(from), res.StatusCode, http.StatusText(res.StatusCode))
	case res.ContentLength > max:
		return fmt.Errorf("%s: it is %d bytes, at most %d are taken", shown(from), res.ContentLength, max)
	}
	n, err := io.Copy(w, io.LimitReader(res.Body, max+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s: after %d bytes: %w", shown(from), n, err)
	case n > max:
		return fmt.Errorf("%s: it is more than the %d bytes that are taken", shown(from), max)
	}
	return nil
}

// ErrNone says that a source has no such file or version.
var ErrNone = errors.New("there is nothing of that name")

// shown is an address without a password in it.
func shown(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return strings.ToValidUTF8(address, "?")
	}
	return u.Redacted()
}
