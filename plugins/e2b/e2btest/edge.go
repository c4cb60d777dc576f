package e2btest

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-run/hutch/plugins/e2b/e2btest/internal/daemon"
	"github.com/hutch-run/hutch/plugins/e2b/internal/api/process/processconnect"
)

// What a host name says of the sandbox it means: the port, the id, and behind another dash what nobody looks at.
var hostName = regexp.MustCompile(`^([0-9]+)-([a-z0-9]+)(-[^.]*)?\.`)

// meant says which sandbox and port a request is for. ok is false for one that is for the control plane.
func meant(r *http.Request) (id string, port int, ok bool, problem string) {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	text := ""
	if m := hostName.FindStringSubmatch(host); m != nil && net.ParseIP(host) == nil {
		text, id = m[1], m[2]
	} else {
		id, text = r.Header.Get("E2b-Sandbox-Id"), r.Header.Get("E2b-Sandbox-Port")
		if id == "" && text == "" {
			if r.URL.Path == "/files" || strings.HasPrefix(r.URL.Path, "/process.") || strings.HasPrefix(r.URL.Path, "/filesystem.") {
				return "", 0, true, "missing header"
			}
			return "", 0, false, ""
		}
		if id == "" || text == "" {
			return "", 0, true, "missing header"
		}
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
	if port == daemon.Port && slices.Contains(internalPaths, r.URL.Path) {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	b := s.find(id)
	var running *box
	var ctx context.Context
	if b != nil {
		b.mu.Lock()
		if b.state == Paused && b.request.AutoResume.Enabled {
			// The caller may be gone before it runs; the next one finds it so.
			if err := b.resume(context.WithoutCancel(r.Context()), true, time.Now().Add(5*time.Minute)); err != nil {
				s.opts.Log.Error("resume", "sandbox", b.id, "error", err)
			}
		}
		if b.state == Running {
			running, ctx = b.box, b.streams
		}
		b.mu.Unlock()
	}
	if running == nil {
		notFound(w, id)
		return
	}
	// What waits for the sandbox does so no longer when that is paused or ended.
	each, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	if err := readAhead(r); err != nil {
		drop()
	}
	proxy := &httputil.ReverseProxy{
		Transport:     running.client.Transport,
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelWarn),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: "envd"})
			p.Out.Host = p.In.Host
			p.Out.Header.Set("E2b-Sandbox-Id", id)
			p.Out.Header.Del(daemon.HostHeader)
			if port != daemon.Port {
				p.Out.Header.Set(daemon.HostHeader, strconv.Itoa(port))
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if ctx.Err() != nil {
				notFound(w, id)
				return
			}
			if r.Context().Err() == nil {
				s.opts.Log.Warn("the daemon did not answer", "sandbox", id, "path", r.URL.Path, "error", err)
			}
			panic(http.ErrAbortHandler)
		},
	}
	proxy.ServeHTTP(w, r.WithContext(each))
}

// readAhead takes a request that is small, or whose answer may begin before its end was read, into memory. Otherwise
// the server would close the request's body when the answer begins, while the proxy is still looking for its end, and
// the connection to the daemon would be lost with the answer.
func readAhead(r *http.Request) error {
	rpc := strings.HasPrefix(r.URL.Path, "/process.") || strings.HasPrefix(r.URL.Path, "/filesystem.")
	if r.URL.Path == processconnect.ProcessStreamInputProcedure || !rpc && (r.ContentLength < 0 || r.ContentLength > 1<<20) {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
	if err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	r.TransferEncoding = nil
	return nil
}

// notFound says that a sandbox is gone or paused, as the edge says both.
func notFound(w http.ResponseWriter, id string) {
	writeJSON(w, http.StatusBadGateway, map[string]any{"sandboxId": id, "message": "The sandbox was not found", "code": http.StatusBadGateway})
}
