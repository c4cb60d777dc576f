package e2btest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"slices"
	"sync"
	"time"
)

// Fault says which requests go wrong, and how. What goes wrong may be combined; it comes in the order of the fields.
type Fault struct {
	// Method and Path choose the requests; "" is any. Path is a pattern of path.Match for the URL's path, at the control
	// plane and in sandboxes alike: "/sandboxes", "/sandboxes/*/timeout", "/files", "/process.Process/Start".
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	// Skip lets so many of the chosen requests pass first.
	Skip int `json:"skip,omitempty"`
	// Times is how often it goes wrong: 0 means once, less means always.
	Times int `json:"times,omitempty"`

	// DelayMS is how long nothing happens first, in milliseconds.
	DelayMS int `json:"delayMs,omitempty"`
	// Status, when it is not 0, is answered without doing anything, with Header and Body; a Body of "" is an error of the
	// control plane's form.
	Status int               `json:"status,omitempty"`
	Header map[string]string `json:"header,omitempty"`
	Body   string            `json:"body,omitempty"`
	// Drop closes the connection without an answer: Before nothing has been done, or After it was.
	Drop Moment `json:"drop,omitempty"`
	// Upload, when it is not nil, is how many bytes of the request's body get through. Then the client's connection
	// breaks; with Quiet the rest is lost and all goes on as if it had been the whole body.
	Upload *int64 `json:"upload,omitempty"`
	// CutBytes and CutMessages, when not nil, are how many bytes of the answer's body, or messages of its stream, get
	// through. Then the connection breaks; with Quiet the answer ends well, without a stream's end.
	CutBytes    *int64 `json:"cutBytes,omitempty"`
	CutMessages *int   `json:"cutMessages,omitempty"`
	Quiet       bool   `json:"quiet,omitempty"`
}

// Moment is when a connection is dropped.
type Moment string

// The moments to drop a connection.
const (
	Before Moment = "before"
	After  Moment = "after"
)

// Injected is a fault that was switched on.
type Injected struct {
	fault Fault
	of    *faults
	hits  int
}

// Hits says how often it went wrong so far.
func (i *Injected) Hits() int {
	i.of.mu.Lock()
	defer i.of.mu.Unlock()
	return i.hits
}

// Remove switches the fault off.
func (i *Injected) Remove() {
	i.of.mu.Lock()
	defer i.of.mu.Unlock()
	i.of.on = slices.DeleteFunc(i.of.on, func(o *Injected) bool { return o == i })
}

// Inject switches a fault on. Of several that choose a request the first one switched on counts.
func (s *Server) Inject(f Fault) *Injected {
	i := &Injected{fault: f, of: &s.faults}
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.on = append(s.faults.on, i)
	return i
}

// postFaults switches a fault on over the wire, for clients in other processes.
func (s *Server) postFaults(w http.ResponseWriter, r *http.Request) error {
	var f Fault
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
	d.DisallowUnknownFields() // a fault that is misspelt would be none
	if err := d.Decode(&f); err != nil {
		return refuse(http.StatusBadRequest, "Error when parsing request: %v", err)
	}
	if _, err := path.Match(f.Path, "/"); err != nil {
		return refuse(http.StatusBadRequest, "path: %v", err)
	}
	s.Inject(f)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) deleteFaults(w http.ResponseWriter, _ *http.Request) error {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.on = nil
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// faults are those that are switched on.
type faults struct {
	mu sync.Mutex
	on []*Injected
}

// take returns the fault that a request meets, or nil.
func (fs *faults) take(r *http.Request) *Fault {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, i := range fs.on {
		f := &i.fault
		if ok, _ := path.Match(f.Path, r.URL.Path); f.Path != "" && !ok || f.Method != "" && f.Method != r.Method {
			continue
		}
		if f.Times >= 0 && i.hits >= max(1, f.Times) {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			return nil
		}
		i.hits++
		taken := *f
		return &taken
	}
	return nil
}

// drop ends the request without another word: the server closes the connection.
func drop() { panic(http.ErrAbortHandler) }

// serve answers a request, or lets it go wrong.
func (fs *faults) serve(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	f := fs.take(r)
	if f == nil {
		next(w, r)
		return
	}
	select {
	case <-time.After(time.Duration(f.DelayMS) * time.Millisecond):
	case <-r.Context().Done():
		drop()
	}
	if f.Status != 0 {
		f.answer(w)
		return
	}
	if f.Drop == Before {
		drop()
	}
	if f.Upload != nil {
		r.Body = &shortBody{ReadCloser: r.Body, left: *f.Upload, quiet: f.Quiet}
		r.ContentLength = -1
		r.Header.Del("Content-Length")
	}
	out := w
	cut := &cutWriter{ResponseWriter: w, quiet: f.Quiet}
	switch {
	case f.Drop == After:
		out = &nowhere{header: http.Header{}}
	case f.CutMessages != nil:
		cut.left, cut.messages, out = int64(*f.CutMessages), true, cut
	case f.CutBytes != nil:
		cut.left, out = *f.CutBytes, cut
	}
	func() {
		defer func() {
			// The proxy gives up when it cannot write; a quiet end looks like an ordinary one all the same.
			if cut.done && cut.quiet {
				_ = recover()
			}
		}()
		next(out, r)
	}()
	if f.Drop == After || f.Upload != nil && !f.Quiet {
		drop()
	}
}

func (f *Fault) answer(w http.ResponseWriter) {
	for k, v := range f.Header {
		w.Header().Set(k, v)
	}
	if f.Body != "" {
		w.WriteHeader(f.Status)
		_, _ = io.WriteString(w, f.Body)
		return
	}
	message := http.StatusText(f.Status)
	if f.Status == http.StatusTooManyRequests {
		message = "Rate limit exceeded"
	}
	writeJSON(w, f.Status, apiError{Code: f.Status, Message: message})
}

// shortBody is a request's body of which only the beginning gets through.
type shortBody struct {
	io.ReadCloser
	left  int64
	quiet bool
}

func (b *shortBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		if !b.quiet {
			return 0, io.ErrUnexpectedEOF
		}
		_, _ = io.Copy(io.Discard, b.ReadCloser) // the client is to believe that all was taken
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// cutWriter lets the beginning of an answer through.
type cutWriter struct {
	http.ResponseWriter
	left     int64 // bytes, or messages
	messages bool
	quiet    bool
	done     bool
	pending  bytes.Buffer // of a stream: the message that is not complete yet
}

var errCut = errors.New("the answer is cut here")

// Unwrap is for http.ResponseController.
func (w *cutWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *cutWriter) WriteHeader(status int) {
	w.Header().Del("Content-Length") // with it the cut would show in any case
	w.ResponseWriter.WriteHeader(status)
}

func (w *cutWriter) Write(b []byte) (int, error) {
	if w.done {
		return 0, errCut
	}
	if w.messages {
		return w.writeMessages(b)
	}
	n := min(int64(len(b)), w.left)
	w.left -= n
	if _, err := w.ResponseWriter.Write(b[:n]); err != nil {
		return 0, err
	}
	if n == int64(len(b)) {
		return len(b), nil
	}
	return int(n), w.stop()
}

// writeMessages passes complete messages on: five bytes of flags and length, and as many as the length says.
func (w *cutWriter) writeMessages(b []byte) (int, error) {
	w.pending.Write(b)
	for w.left > 0 {
		head := w.pending.Bytes()
		if len(head) < 5 || len(head) < 5+int(binary.BigEndian.Uint32(head[1:5])) {
			return len(b), nil
		}
		size := 5 + int(binary.BigEndian.Uint32(head[1:5]))
		if _, err := w.ResponseWriter.Write(w.pending.Next(size)); err != nil {
			return 0, err
		}
		w.left--
	}
	return 0, w.stop()
}

// stop ends the answer, after what got through has reached the client.
func (w *cutWriter) stop() error {
	w.done = true
	_ = http.NewResponseController(w.ResponseWriter).Flush()
	if !w.quiet {
		drop()
	}
	return errCut
}

// nowhere discards an answer.
type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n *nowhere) WriteHeader(int)             {}
