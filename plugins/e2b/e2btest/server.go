package e2btest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"
)

// Options say what server to start. The zero value is good for tests.
type Options struct {
	// Addr is where to listen; "" is a free port of 127.0.0.1.
	Addr string
	// Key is the API key to ask for; "" makes one up. E2B's have the form e2b_ and hexadecimal digits.
	Key string
	// Dir is where the files of sandboxes lie. It is made when it is missing. "" is a temporary directory that goes with
	// the server. Files of sandboxes that still exist when the server closes are removed in any case.
	Dir string
	// Templates are the names that sandboxes can be made from; none means "base". They all are the same system.
	Templates []string
	// MaxSandboxes is how many may run at once; 0 means 20.
	MaxSandboxes int
	// MaxTimeout is the longest life of a sandbox; 0 means one hour.
	MaxTimeout time.Duration
	// HostNetwork gives sandboxes that ask for the internet the machine's own network. Otherwise no sandbox has any.
	HostNetwork bool
	// OnlyV1 leaves out POST /v2/sandboxes and /v2/sandboxes/{id}/connect, as older installations do.
	OnlyV1 bool
	// Log is notified of every request; nil means nobody is.
	Log *slog.Logger
}

// Server is a local E2B-compatible service. Its methods may be called at any time, by several at once.
type Server struct {
	// URL is the base of both the control plane and the edge: http://127.0.0.1:PORT.
	URL string
	// Key is the API key.
	Key string

	opts    Options
	http    *http.Server
	bwrap   string
	ownDir  bool
	faults  faults
	records records
	done    chan struct{} // closed when the server no longer serves

	admitting sync.Mutex // one after the other, so that they count each other

	mu        sync.Mutex
	sandboxes map[string]*sandbox
	closed    bool
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
	addr := o.Addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("e2btest: %w", err)
	}
	if s.opts.Dir == "" {
		s.ownDir = true
		s.opts.Dir, err = os.MkdirTemp("", "e2btest-")
	} else {
		err = os.MkdirAll(s.opts.Dir, 0o700)
	}
	if err != nil {
		listener.Close()
		return nil, fmt.Errorf("e2btest: directory for sandboxes: %w", err)
	}
	s.URL = "http://" + listener.Addr().String()
	s.http = &http.Server{Handler: s.handler(), ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelWarn)}
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
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	var all []*sandbox
	for _, b := range s.sandboxes {
		all = append(all, b)
	}
	s.mu.Unlock()
	err := s.http.Close() // and with it every stream
	<-s.done
	for _, b := range all {
		if e := b.shut(); e != nil && err == nil {
			err = e
		}
	}
	if s.ownDir {
		if e := removeAll(s.opts.Dir); e != nil && err == nil {
			err = e
		}
	}
	return err
}

// Env returns the environment, as NAME=VALUE, by which E2B's SDKs and the backend find the server.
func (s *Server) Env() []string {
	return []string{"E2B_API_KEY=" + s.Key, "E2B_API_URL=" + s.URL, "E2B_SANDBOX_URL=" + s.URL}
}
