package e2btest

import (
	"net/http"
	"sync"
)

// Request is a request that the server has answered, or dropped.
type Request struct {
	Method, Path string
	Query        string
	Header       http.Header
	Sandbox      string // for a request to the edge
	Status       int    // 0 if nothing was answered
	Sent         int64  // bytes of the answer's body
}

// records are the requests of late.
type records struct {
	mu   sync.Mutex
	last []Request
}

// keptRequests is how many requests are remembered.
const keptRequests = 10_000

func (r *records) add(q Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = append(r.last[max(0, len(r.last)+1-keptRequests):], q)
}

// Requests returns the requests so far, in the order in which they ended: the last ten thousand.
func (s *Server) Requests() []Request {
	s.records.mu.Lock()
	defer s.records.mu.Unlock()
	return append([]Request(nil), s.records.last...)
}

// handler is what clients talk to.
func (s *Server) handler() http.Handler {
	control := s.control()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, port, edge, problem := meant(r)
		seen := &seenWriter{ResponseWriter: w}
		defer func() {
			q := Request{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Header: r.Header.Clone(), Sandbox: id, Status: seen.status, Sent: seen.sent}
			s.records.add(q)
			s.opts.Log.Info("request", "method", q.Method, "path", q.Path, "sandbox", q.Sandbox, "status", q.Status)
		}()
		s.faults.serve(seen, r, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case problem != "":
				http.Error(w, problem, http.StatusBadRequest)
			case edge:
				s.edge(w, r, id, port)
			default:
				control.ServeHTTP(w, r)
			}
		})
	})
}

// seenWriter remembers the status, and how much was sent.
type seenWriter struct {
	http.ResponseWriter
	status int
	sent   int64
}

func (w *seenWriter) WriteHeader(status int) {
	if w.status < 200 { // after an informational one comes the real one
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *seenWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.sent += int64(n)
	return n, err
}

// Unwrap is for http.ResponseController.
func (w *seenWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
