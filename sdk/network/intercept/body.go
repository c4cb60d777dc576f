package intercept

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"sync/atomic"
)

var errForm = errors.New("a form has the placeholder of a secret")

// watched passes the body of a request on and looks for placeholders, which are not replaced there: a value in a body
// can end up where others read it, as in a comment or in a model's context. A form is mostly a login, which would fail
// for no visible reason: it is denied, and if it is a long one cut off before the placeholder. In any other body the placeholder stays, and
// the record says so.
type watched struct {
	io.ReadCloser
	secrets []*secret
	most    int    // length of the longest placeholder
	end     []byte // of what was read, shorter than that
	read    atomic.Int64
	found   func(*secret) error
}

// watch sets r.Body so that found is called for each placeholder that is read from it; its error ends the reading. It
// returns how many bytes were read so far.
func watch(r *http.Request, secrets []*secret, found func(*secret) error) *atomic.Int64 {
	if r.Body == nil || r.Body == http.NoBody {
		return new(atomic.Int64)
	}
	b := &watched{ReadCloser: r.Body, secrets: secrets, found: found}
	for _, x := range secrets {
		b.most = max(b.most, len(x.placeholder))
	}
	r.Body = b
	return &b.read
}

func (b *watched) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read.Add(int64(n))
	text := p[:n]
	across := append(b.end, text[:min(n, b.most-1)]...)
	for _, x := range b.secrets {
		if bytes.Contains(text, []byte(x.placeholder)) || bytes.Contains(across, []byte(x.placeholder)) {
			if err := b.found(x); err != nil {
				return 0, err
			}
		}
	}
	if n >= b.most-1 {
		across = text
	}
	b.end = append([]byte(nil), across[max(0, len(across)-b.most+1):]...)
	return n, err
}

// formAhead is how much of a form is read before any of it is sent: nearly always all.
const formAhead = 64 << 10

// ahead is a body of which a part has been read.
type ahead struct {
	io.Reader
	io.Closer
}

// isForm reports whether the body of r is a form.
func isForm(r *http.Request) bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return kind == "application/x-www-form-urlencoded"
}
