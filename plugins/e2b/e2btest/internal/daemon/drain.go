package daemon

import (
	"io"
	"net/http"
)

// drainingWriter reads what is left of a request before it answers. The connection is closed after the answer, and what
// was not read by then would take the answer with it. net/http does the same, but only for connections that it keeps.
type drainingWriter struct {
	http.ResponseWriter
	body  io.Reader
	limit int64
	begun bool
}

// drained is how much is read of a request that is refused; of a file all is, so that its sender hears why.
const drained = 256 << 10

func newDrainingWriter(w http.ResponseWriter, r *http.Request) *drainingWriter {
	d := &drainingWriter{ResponseWriter: w, body: r.Body, limit: drained}
	if r.URL.Path == "/files" {
		d.limit = 1 << 62
	}
	return d
}

func (w *drainingWriter) begin() {
	if !w.begun {
		w.begun = true
		_, _ = io.CopyN(io.Discard, w.body, w.limit) // a body that breaks off has nobody to be told
	}
}

func (w *drainingWriter) WriteHeader(status int) {
	w.begin()
	w.ResponseWriter.WriteHeader(status)
}

func (w *drainingWriter) Write(b []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(b)
}

// Flush is for connect, which asks for an http.Flusher.
func (w *drainingWriter) Flush() {
	w.begin()
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap is for http.ResponseController.
func (w *drainingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
