// Package loopback serves HTTP to programs of this machine alone, for `hutch mcp` and `hutch ui`.
package loopback

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	headerTime = 10 * time.Second // for a client to send the head of a request
	endTime    = 5 * time.Second  // for requests under way once the server is to end
)

// Listen listens on a loopback address, and on no other.
func Listen(addr string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("%q is no address to listen on; write 127.0.0.1:PORT, with port 0 for any", addr)
	}
	ip := net.ParseIP(host)
	if host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("%q is not this machine alone; only loopback addresses are served, such as 127.0.0.1:8181",
			addr)
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

// Serve answers requests until ctx ends, of which the context of each request is made, and closes l. Requests under way
// have five seconds to end.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() {
		bounded, cancel := context.WithTimeout(context.Background(), endTime)
		defer cancel()
		if srv.Shutdown(bounded) != nil {
			_ = srv.Close()
		}
	})
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
