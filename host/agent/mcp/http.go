package mcp

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxRequest is how many bytes a request may have: a file to write, in JSON.
const maxRequest = 16 << 20

// minToken is how many characters a token has at least.
const minToken = 16

// Listen listens for HTTP on a loopback address, and on no other.
func Listen(addr string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("%q is no address to listen on; write 127.0.0.1:PORT, with port 0 for any", addr)
	}
	ip := net.ParseIP(host)
	if host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("%q is not this machine alone; only loopback addresses are served, such as 127.0.0.1:8181", addr)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	if a, ok := l.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
		return nil, errors.Join(fmt.Errorf("%q leads to %s, which is not this machine alone", addr, l.Addr()), l.Close())
	}
	return l, nil
}

// ServeHTTP serves any number of clients at /mcp until ctx ends. Every request needs the token as its bearer.
func (s *Server) ServeHTTP(ctx context.Context, l net.Listener, token string) error {
	if len(token) < minToken {
		return fmt.Errorf("the token has less than %d characters", minToken)
	}
	srv := &http.Server{Handler: s.handler(l.Addr().(*net.TCPAddr).Port, token), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			_ = srv.Close()
		}
	})
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// handler checks a request before any of it is looked at. Sessions are not kept, so that nothing but a POST does
// anything: a GET or DELETE is refused.
func (s *Server) handler(port int, token string) http.Handler {
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.server }, &mcp.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, MaxRequestBodyBytes: maxRequest, PropagateRequestCancellation: true,
	})
	hosts := []string{fmt.Sprintf("localhost:%d", port), fmt.Sprintf("127.0.0.1:%d", port), fmt.Sprintf("[::1]:%d", port)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case !slices.Contains(hosts, r.Host): // a name of somebody else's that leads here
			http.Error(w, "this host is not served", http.StatusForbidden)
		case r.Header.Get("Origin") != "": // a page in a browser
			http.Error(w, "no origin is served", http.StatusForbidden)
		case !bearer || subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
		case r.URL.Path != "/mcp":
			http.NotFound(w, r)
		case r.Method != http.MethodPost:
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "only POST does anything here", http.StatusMethodNotAllowed)
		default:
			inner.ServeHTTP(w, r)
		}
	})
}
