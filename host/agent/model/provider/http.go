package provider

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// maxBody is how much is read of one answer, in bytes: far more than any model writes, with what surrounds each piece.
const maxBody = 256 << 20

// NewHTTPClient is a client for one provider. It follows no redirects, which would bring the key to an address that nobody
// named; an answer that is not 2xx is a [*Failure]; bodies are bounded. It has no deadline of its own: a context has.
func NewHTTPClient() *http.Client {
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          4,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   30 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
	return &http.Client{
		Transport:     &transport{t},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// transport makes failures of answers that are none, and bounds bodies.
type transport struct{ *http.Transport }

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := t.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 != 2 {
		defer res.Body.Close()
		return nil, FromResponse(res)
	}
	res.Body = &boundedBody{ReadCloser: res.Body, left: maxBody}
	return res, nil
}

type boundedBody struct {
	io.ReadCloser
	left int64
}

// Read implements [io.Reader].
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, tooLarge(fmt.Sprintf("%d MiB", maxBody>>20))
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	return n, err
}
