package e2btest

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hutch-run/hutch/plugins/e2b/e2btest/internal/daemon"
)

// What a host name says of the sandbox it means: the port, the id, and behind another dash what is ignored.
var hostName = regexp.MustCompile(`^([0-9]+)-([a-z0-9]+)(-[^.]*)?\.`)

// meant returns the sandbox and port that a request is for, by its host or else its headers. edge is false for a
// request to the control plane; problem says why a request to the edge is invalid.
func meant(r *http.Request) (id string, port int, edge bool, problem string) {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	id, text := r.Header.Get("E2b-Sandbox-Id"), r.Header.Get("E2b-Sandbox-Port")
	if m := hostName.FindStringSubmatch(host); m != nil && net.ParseIP(host) == nil {
		text, id = m[1], m[2]
	}
	if id == "" || text == "" {
		path := r.URL.Path
		if id == "" && text == "" && path != "/files" &&
			!strings.HasPrefix(path, "/process.") && !strings.HasPrefix(path, "/filesystem.") {
			return "", 0, false, ""
		}
		return "", 0, true, "missing header"
	}
	port, err := strconv.Atoi(text)
	if err != nil || port < 1 || port > 65535 {
		return "", 0, true, "Invalid sandbox port"
	}
	return id, port, true, ""
}

// The daemon's paths that are for the service itself.
var internalPaths = []string{"/init", "/freeze", "/unfreeze", "/fsfreeze", "/fsthaw", "/collapse"}

// edge passes a request on to the sandbox it is for.
func (s *Server) edge(w http.ResponseWriter, r *http.Request, id string, port int) {
	switch {
	case port != daemon.Port:
		writeError(w, refuse(http.StatusNotImplemented, "the local server passes requests on to port %d only", daemon.Port))
		return
	case slices.Contains(internalPaths, r.URL.Path):
		w.WriteHeader(http.StatusNotFound)
		return
	}
	box, streams := s.running(id)
	if box == nil {
		notFound(w, id)
		return
	}
	// A pause or the sandbox's end ends the request.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(streams, cancel)()
	// The answer may begin, or be all there is, before the request has been read to its end.
	_ = http.NewResponseController(w).EnableFullDuplex()
	proxy := &httputil.ReverseProxy{
		Transport:     box.daemon,
		FlushInterval: -1,
		ErrorLog:      s.errorLog(),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: "envd"})
			p.Out.Host = p.In.Host
			p.Out.Header.Set("E2b-Sandbox-Id", id)
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if streams.Err() != nil {
				notFound(w, id)
				return
			}
			if r.Context().Err() == nil {
				s.opts.Log.Warn("the daemon did not answer", "sandbox", id, "path", r.URL.Path, "error", err)
			}
			drop()
		},
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
	_, _ = io.Copy(io.Discard, r.Body) // a client that still sends reads the answer afterwards
}

// running returns what runs a sandbox, and the context of its streams; nil for one that does not run.
func (s *Server) running(id string) (*box, context.Context) {
	b := s.find(id)
	if b == nil {
		return nil, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != Running {
		return nil, nil
	}
	return b.box, b.streams
}

// notFound is the edge's answer for a sandbox that is gone or paused.
func notFound(w http.ResponseWriter, id string) {
	writeJSON(w, http.StatusBadGateway, map[string]any{
		"sandboxId": id, "message": "The sandbox was not found", "code": http.StatusBadGateway,
	})
}
