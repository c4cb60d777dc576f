// Package intercept puts secrets into the HTTP requests of a command that has only their placeholders, for the gate of
// a filtered network (package gate). It runs outside of the sandbox.
//
// It ends the command's TLS with a certificate of the sandbox's own authority, reads HTTP/1.1 or HTTP/2, and speaks to
// the real host over TLS that the host's roots verify. A placeholder in a header, Basic credentials included, or in the
// query becomes the value if the host is one of the secret's, a rule admits method and path, and the connection is
// encrypted or ends on this machine. A request with a placeholder that may not become the value is answered 403 with
// the reason; it never leaves. A request that is signed with a placeholder as the key, by AWS's Signature Version 4, is
// signed again with the value. In bodies nothing is replaced: a form with a placeholder is denied, and in another body
// it goes out as it is, which is recorded as a denial.
//
// In responses the value becomes the placeholder again, in headers, trailers and bodies, as it is and as JSON, URLs and
// Basic credentials write it. That undoes echoes. It cannot stop a host that encodes the value to give it away: a
// secret's hosts are trusted with it.
//
// Everything streams: server-sent events, chunks, gRPC, WebSocket. Content that is not HTTP passes as it is.
package intercept

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/network"
)

const (
	maxHeader     = 64 << 10         // bytes of a request's header
	maxUses       = 16               // placeholders in one request
	headerTimeout = 60 * time.Second // for the first bytes, the TLS handshake and a request's header
	idleTimeout   = 10 * time.Minute // between requests
)

// MinValue and MaxValue bound the value of a secret, in bytes. A shorter one would be found in responses by chance.
const (
	MinValue = 8
	MaxValue = 16 << 10
)

// Interceptor puts the secrets of one command into its connections. Its methods may be called concurrently.
type Interceptor struct {
	// RootCAs verify the real hosts; nil means the host's. It is for tests, to be set before the first connection.
	RootCAs *x509.CertPool

	secrets []*secret
	issuer  *issuer
	signing chan struct{} // has an element for each body that is held for its signature
	meter   meter
}

// Outcome is what came of a connection.
type Outcome struct {
	Sent, Received int64    // bytes by the command, and to it
	Secrets        []string // names of the secrets that were put in, sorted
	Reason         string   // what failed first, for a person; "" when all went well
	Denied         []Denial // requests that were denied, each kind once

	Requests     []sdk.HTTPRequest // in the order of their ends, at most [sdk.MaxRequests]
	RequestsMore int64             // beyond those
}

// Denial says why a request was denied.
type Denial struct{ Rule, Reason string } // Rule names the secret, as in "secret TOKEN"; "" when it is about none

// maxDenied bounds the denials of one connection that are kept.
const maxDenied = 20

// secret is a checked [sdk.Secret].
type secret struct {
	name, placeholder, value string
	hosts                    []network.Rule
	rules                    []requestRule // empty: any request
}

// New checks secrets and authority. A host without a port stands for its ports 443 and 80. budget bounds the requests
// to these hosts, with nil for none. The error names the secret and never holds a value.
func New(secrets []sdk.Secret, authority *sdk.Authority, budget *sdk.Budget) (*Interceptor, error) {
	if authority == nil {
		return nil, errors.New("secrets need an authority")
	}
	issuer, err := newIssuer(authority)
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	i := &Interceptor{issuer: issuer, signing: make(chan struct{}, maxSigning)}
	if budget != nil {
		i.meter.budget = *budget
	}
	for _, s := range secrets {
		checked, err := check(s)
		if err != nil {
			return nil, fmt.Errorf("secret %s: %w", s.Name, err)
		}
		i.secrets = append(i.secrets, checked)
	}
	return i, nil
}

// Check reports what is wrong with a secret's hosts and rules: what [New] refuses besides the value and the
// placeholder.
func Check(s sdk.Secret) error {
	_, err := checkPlaces(s)
	return err
}

func check(s sdk.Secret) (*secret, error) {
	out, err := checkPlaces(s)
	if err != nil {
		return nil, err
	}
	if len(s.Placeholder) < 16 || !placeholderOK(s.Placeholder) {
		return nil, errors.New("invalid placeholder: want at least 16 characters of A-Z, a-z, 0-9, _ and -")
	}
	if err := CheckValue(s.Value); err != nil {
		return nil, err
	}
	out.placeholder, out.value = s.Placeholder, s.Value
	return out, nil
}

// CheckValue reports why v cannot be the value of a secret. The error does not hold it.
func CheckValue(v string) error {
	switch {
	case v == "":
		return errors.New("the value is empty")
	case len(v) < MinValue:
		return fmt.Errorf("the value has less than %d bytes, too few to be found in responses", MinValue)
	case len(v) > MaxValue:
		return fmt.Errorf("the value has more than %d bytes", MaxValue)
	case !httpguts.ValidHeaderFieldValue(v) || strings.TrimSpace(v) != v:
		return errors.New("the value has line breaks, control characters or spaces at an end, which no header can carry")
	}
	return nil
}

func checkPlaces(s sdk.Secret) (*secret, error) {
	out := &secret{name: s.Name}
	if len(s.Hosts) == 0 {
		return nil, errors.New("no hosts: name at least one, such as api.example.com")
	}
	for _, text := range s.Hosts {
		rule, err := network.ParseRule(text)
		if err != nil {
			return nil, fmt.Errorf("hosts: %w", err)
		}
		if rule.Name() == "" {
			return nil, fmt.Errorf("hosts: %q is an address: want a name, which a certificate can be for", text)
		}
		out.hosts = append(out.hosts, rule)
	}
	for _, r := range s.Rules {
		rule, err := newRequestRule(r)
		if err != nil {
			return nil, err
		}
		out.rules = append(out.rules, rule)
	}
	return out, nil
}

func placeholderOK(s string) bool {
	for _, c := range []byte(s) {
		if !isAlnum(c) && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// isFor reports whether name on port is one of the secret's hosts.
func (s *secret) isFor(name string, port int) bool {
	return slices.ContainsFunc(s.hosts, func(r network.Rule) bool {
		return r.Matches(name, port) && (r.Port() != 0 || port == 443 || port == 80)
	})
}

// Covers reports whether a secret has name on port among its hosts.
func (i *Interceptor) Covers(name string, port int) bool {
	name = network.Canonical(name)
	return slices.ContainsFunc(i.secrets, func(s *secret) bool { return s.isFor(name, port) })
}

// Serve takes over conn, a command's connection to name on port that the rules allow, until it is over or ctx is, and
// closes it. Each call of dial makes a connection to an address that the rules admit.
func (i *Interceptor) Serve(ctx context.Context, conn net.Conn, name string, port int,
	dial func(context.Context) (net.Conn, error)) Outcome {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := newClient(conn)
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	s := &session{i: i, name: network.Canonical(name), port: port, dial: dial}
	for _, x := range i.secrets {
		if x.isFor(s.name, port) {
			s.redacts = append(s.redacts, forms(x.value, x.placeholder)...)
		}
	}

	_ = c.SetReadDeadline(time.Now().Add(headerTimeout))
	kind, err := c.peek()
	_ = c.SetReadDeadline(time.Time{})
	switch {
	case err != nil:
		if err != io.EOF && ctx.Err() == nil {
			s.note("the command sent nothing that begins a request: " + err.Error())
		}
	case kind == kindTLS:
		s.tls = true
		s.serveTLS(ctx, c)
	case kind == kindHTTP:
		s.serveHTTP(ctx, c, c)
	default:
		s.relay(ctx, c)
	}
	return s.outcome(c)
}

// session is one connection of the command.
type session struct {
	i       *Interceptor
	name    string
	port    int
	tls     bool
	dial    func(context.Context) (net.Conn, error)
	redacts []pair

	mu     sync.Mutex
	reason string
	denied []Denial
	used   []string
	ended  bool

	requests     []sdk.HTTPRequest
	requestsMore int64
	active       sync.WaitGroup // handlers; none starts after ended
}

// note keeps the first reason.
func (s *session) note(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == "" {
		s.reason = redactString(reason, s.redacts)
	}
}

func (s *session) deny(d Denial) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.denied) < maxDenied && !slices.Contains(s.denied, d) {
		s.denied = append(s.denied, d)
	}
}

func (s *session) outcome(c *client) Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.used)
	return Outcome{Sent: c.read.Load(), Received: c.written.Load(), Secrets: slices.Compact(s.used), Reason: s.reason,
		Denied:   s.denied,
		Requests: s.requests, RequestsMore: s.requestsMore}
}

// record notes a request that is over.
func (s *session) record(r sdk.HTTPRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) == sdk.MaxRequests {
		s.requestsMore++
		return
	}
	s.requests = append(s.requests, r)
}

// serveTLS answers as the host. A client that names another host in its hello gets the alert unrecognized_name.
func (s *session) serveTLS(ctx context.Context, c *client) {
	wrong := ""
	conn := tls.Server(c, &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if hello.ServerName != "" && network.Canonical(hello.ServerName) != s.name {
				wrong = hello.ServerName
				return nil, nil // the alert unrecognized_name
			}
			return s.i.issuer.leaf(s.name)
		},
	})
	hctx, cancel := context.WithTimeout(ctx, headerTimeout)
	err := conn.HandshakeContext(hctx)
	cancel()
	switch {
	case wrong != "":
		s.deny(Denial{Reason: fmt.Sprintf("TLS to %s named another host, %.100q", s.name, wrong)})
	case err != nil && ctx.Err() == nil && !errors.Is(err, io.EOF):
		s.note("TLS with the command, which has to trust the sandbox's authority: " + err.Error())
	}
	if err == nil {
		s.serveHTTP(ctx, c, conn)
	}
}

// serveHTTP reads requests from conn, which is c or TLS over it, until c is closed and every handler has returned.
func (s *session) serveHTTP(ctx context.Context, c *client, conn net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	transport := s.transport()
	defer transport.CloseIdleConnections()
	server := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.handle(w, r, transport) }),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          discard,
	}
	_ = server.Serve(&oneConn{conn: conn, closed: c.closed})
	cancel()
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.active.Wait()
}

// begin reports whether a handler may work; then it calls s.active.Done at its end.
func (s *session) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.active.Add(1)
	}
	return !s.ended
}

// transport speaks to the real host. Each of the command's connections has one, so that no two share a connection.
func (s *session) transport() *http.Transport {
	name := s.name
	if name == network.Host {
		name = "localhost"
	}
	return &http.Transport{
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return s.dial(ctx) },
		TLSClientConfig:        &tls.Config{ServerName: name, RootCAs: s.i.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    headerTimeout,
		ForceAttemptHTTP2:      true,
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 4 * maxHeader,
	}
}

// relay passes on what is not HTTP, in both directions, until both have ended or one failed.
func (s *session) relay(ctx context.Context, c *client) {
	up, err := s.dial(ctx)
	if err != nil {
		s.note(err.Error())
		return
	}
	defer up.Close()
	defer context.AfterFunc(ctx, func() { _ = up.Close() })()
	one := func(dst, src net.Conn) {
		if _, err := io.Copy(dst, src); err != nil {
			_, _ = c.Close(), up.Close()
			return
		}
		if half, ok := dst.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		} else {
			_ = dst.Close()
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); one(up, c) }()
	one(c, up)
	<-done
}

// oneConn is a listener with one connection. Its second Accept fails once that is closed.
type oneConn struct {
	conn   net.Conn
	taken  bool
	closed <-chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if !l.taken {
		l.taken = true
		return l.conn, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }

// client is the command's end: it counts, can look at the first bytes, and says when it is closed.
type client struct {
	net.Conn
	seen          []byte // peeked and not yet read
	read, written atomic.Int64
	once          sync.Once
	closed        chan struct{}
}

func newClient(conn net.Conn) *client { return &client{Conn: conn, closed: make(chan struct{})} }

type kind int

const (
	kindOther kind = iota
	kindTLS
	kindHTTP
)

// peek reads until the bytes show what the connection is. A method is at most 20 letters, upper case, and a space.
// HTTP/2 without TLS passes for something else: nothing speaks it to a host on the internet.
func (c *client) peek() (kind, error) {
	buf := make([]byte, 21)
	for n := 0; ; {
		m, err := c.Conn.Read(buf[n:])
		n += m
		c.read.Add(int64(m))
		c.seen = buf[:n]
		for i, b := range buf[:n] {
			switch {
			case i == 0 && b == 0x16:
				return kindTLS, nil
			case i > 0 && b == ' ' && string(buf[:i]) != "PRI":
				return kindHTTP, nil
			case b < 'A' && b != '-' || b > 'Z' && b != '_':
				return kindOther, nil
			}
		}
		switch {
		case n == len(buf):
			return kindOther, nil
		case err == io.EOF && n > 0:
			return kindOther, nil
		case err != nil:
			return kindOther, err
		}
	}
}

func (c *client) Read(p []byte) (int, error) {
	if len(c.seen) > 0 {
		n := copy(p, c.seen)
		c.seen = c.seen[n:]
		return n, nil
	}
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

func (c *client) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

func (c *client) Close() error {
	err := net.ErrClosed
	c.once.Do(func() { err = c.Conn.Close(); close(c.closed) })
	return err
}

// CloseWrite ends the command's reading, as the other end did.
func (c *client) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// buffers are what bodies are copied through.
type buffers struct{ pool sync.Pool }

var _ httputil.BufferPool = (*buffers)(nil)

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(p []byte) { b.pool.Put(&p) }
