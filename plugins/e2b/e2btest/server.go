package e2btest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options say what server to start. The zero value is good for tests.
type Options struct {
	// Addr is where to listen; "" is a free port of 127.0.0.1.
	Addr string
	// Key is the API key to ask for; "" makes one up. E2B's have the form e2b_ and hexadecimal digits.
	Key string
	// Dir is where the files of sandboxes lie. It is made when it is missing. "" is a temporary directory that is
	// removed with the server. Files of sandboxes that still exist when the server closes are removed in any case.
	Dir string
	// Templates are the names that sandboxes can be made from; none means "base". They all are the same system.
	Templates []string
	// MaxSandboxes is how many may run at once; 0 means 20.
	MaxSandboxes int
	// MaxTimeout is the longest life of a sandbox; 0 means one hour.
	MaxTimeout time.Duration
	// HostNetwork gives sandboxes that ask for the internet the machine's own network. Otherwise no sandbox has any.
	HostNetwork bool
	// Log receives every request; nil discards them.
	Log *slog.Logger
}

// Server is a local E2B-compatible service. Its methods are safe for concurrent use.
type Server struct {
	// URL is the base of both the control plane and the edge: http://127.0.0.1:PORT.
	URL string
	// Key is the API key.
	Key string

	opts   Options
	http   *http.Server
	bwrap  string
	ownDir bool
	faults faults
	done   chan struct{} // closed when the server no longer serves

	admitting sync.Mutex // one at a time, so that they count each other

	mu        sync.Mutex
	sandboxes map[string]*sandbox
	closed    bool
	requests  []Request
}

// Start starts a server that runs until ctx ends or Close is called.
func Start(ctx context.Context, o Options) (*Server, error) {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		return nil, fmt.Errorf("e2btest: sandboxes need bubblewrap: %w", err)
	}
	s := &Server{Key: o.Key, opts: o, bwrap: bwrap, sandboxes: map[string]*sandbox{}, done: make(chan struct{})}
	if s.Key == "" {
		b := make([]byte, 20)
		rand.Read(b)
		s.Key = "e2b_" + hex.EncodeToString(b)
	}
	if len(s.opts.Templates) == 0 {
		s.opts.Templates = []string{"base"}
	}
	if s.opts.MaxSandboxes == 0 {
		s.opts.MaxSandboxes = 20
	}
	if s.opts.MaxTimeout == 0 {
		s.opts.MaxTimeout = time.Hour
	}
	if s.opts.Log == nil {
		s.opts.Log = slog.New(slog.DiscardHandler)
	}
	if s.opts.Addr == "" {
		s.opts.Addr = "127.0.0.1:0"
	}
	if s.opts.Dir == "" {
		s.ownDir = true
		s.opts.Dir, err = os.MkdirTemp("", "e2btest-")
	} else {
		err = os.MkdirAll(s.opts.Dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("e2btest: directory for sandboxes: %w", err)
	}
	listener, err := net.Listen("tcp", s.opts.Addr)
	if err != nil {
		if s.ownDir {
			os.Remove(s.opts.Dir)
		}
		return nil, fmt.Errorf("e2btest: %w", err)
	}
	s.URL = "http://" + listener.Addr().String()
	s.http = &http.Server{Handler: s.handler(), ReadHeaderTimeout: time.Minute, ErrorLog: s.errorLog()}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.opts.Log.Error("serve", "error", err)
		}
	}()
	context.AfterFunc(ctx, func() { s.Close() })
	return s, nil
}

// Close ends all sandboxes, removes their files and stops serving. Only the first call does anything.
func (s *Server) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	errs := []error{s.http.Close()} // ends every stream
	<-s.done
	for _, b := range s.all() {
		errs = append(errs, b.shut())
	}
	if s.ownDir {
		errs = append(errs, removeAll(s.opts.Dir))
	}
	return errors.Join(errs...)
}

// Env returns the environment, as NAME=VALUE, by which E2B's SDKs and the backend find the server.
func (s *Server) Env() []string {
	return []string{"E2B_API_KEY=" + s.Key, "E2B_API_URL=" + s.URL, "E2B_SANDBOX_URL=" + s.URL}
}

// all returns the sandboxes, in no order.
func (s *Server) all() []*sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.sandboxes))
}

// Request is a request that the server has answered, or dropped.
type Request struct {
	Method, Path string
	Query        string
	Header       http.Header
	Sandbox      string // for a request to the edge
	Status       int    // 0 if nothing was answered
	Sent         int64  // bytes of the answer's body
}

// keptRequests is how many requests are remembered.
const keptRequests = 10_000

// Requests returns the requests so far, in the order in which they ended: the last ten thousand.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *Server) errorLog() *log.Logger {
	return slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelWarn)
}

// handler serves control plane and edge, and injects faults.
func (s *Server) handler() http.Handler {
	control := s.control()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, port, edge, problem := meant(r)
		seen := &seenWriter{ResponseWriter: w}
		defer func() {
			q := Request{
				Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Header: r.Header.Clone(),
				Sandbox: id, Status: seen.status, Sent: seen.sent,
			}
			s.mu.Lock()
			s.requests = append(s.requests[max(0, len(s.requests)+1-keptRequests):], q)
			s.mu.Unlock()
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
	if w.status < 200 { // the real one follows an informational one
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

// TB is what ForTest needs of a *testing.T or *testing.B.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// ForTest starts a server that is closed with the test. Where bubblewrap is missing or cannot work the test is skipped,
// or fails if HUTCH_TEST_REQUIRE lists bwrap.
func ForTest(t TB, o Options) *Server {
	t.Helper()
	probe := exec.Command("bwrap", "--unshare-user", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "true")
	if out, err := probe.CombinedOutput(); err != nil {
		if slices.Contains(strings.Split(os.Getenv("HUTCH_TEST_REQUIRE"), ","), "bwrap") {
			t.Fatalf("bwrap is required (HUTCH_TEST_REQUIRE): %v %s", err, out)
		}
		t.Skipf("bwrap does not work here: %v %s", err, out)
	}
	s, err := Start(context.Background(), o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the E2B-compatible server: %v", err)
		}
	})
	return s
}
