package e2btest

import (
	"context"
	"crypto/rand"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// control is the handler of the control plane.
func (s *Server) control() http.Handler {
	mux := http.NewServeMux()
	route := func(pattern string, h func(w http.ResponseWriter, r *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := h(w, r); err != nil {
				writeError(w, err)
			}
		})
	}
	version := func(n int, h func(w http.ResponseWriter, r *http.Request, v int) error) func(http.ResponseWriter, *http.Request) error {
		return func(w http.ResponseWriter, r *http.Request) error { return h(w, r, n) }
	}
	route("POST /sandboxes", version(1, s.create))
	route("POST /sandboxes/{id}/connect", version(1, s.connect))
	if !s.opts.OnlyV1 {
		route("POST /v2/sandboxes", version(2, s.create))
		route("POST /v2/sandboxes/{id}/connect", version(2, s.connect))
	}
	route("GET /sandboxes", s.listV1)
	route("GET /v2/sandboxes", s.listV2)
	route("GET /sandboxes/metrics", s.allMetrics)
	route("GET /sandboxes/{id}", s.get)
	route("DELETE /sandboxes/{id}", s.remove)
	route("POST /sandboxes/{id}/timeout", s.setTimeout)
	route("POST /sandboxes/{id}/refreshes", s.refresh)
	route("POST /sandboxes/{id}/pause", s.pause)
	route("POST /sandboxes/{id}/resume", s.resume)
	route("GET /sandboxes/{id}/metrics", s.metrics)
	route("GET /v2/sandboxes/{id}/logs", s.logs)
	route("POST /e2btest/faults", s.postFaults)
	route("DELETE /e2btest/faults", s.deleteFaults)
	route("/", func(_ http.ResponseWriter, r *http.Request) error {
		if s.opts.OnlyV1 && strings.HasPrefix(r.URL.Path, "/v2/") { // as an older installation says it
			return refuse(http.StatusNotFound, "%s %s is not there", r.Method, r.URL.Path)
		}
		// Not 404, which E2B's SDK takes for a sandbox that is gone.
		return refuse(http.StatusNotImplemented, "the local server does not implement %s %s", r.Method, r.URL.Path)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch key := r.Header.Get("X-API-Key"); {
		case r.Method == http.MethodGet && r.URL.Path == "/health":
			w.WriteHeader(http.StatusOK)
		case key == "":
			writeError(w, refuse(http.StatusUnauthorized, "Missing authorization header"))
		case key != s.Key:
			writeError(w, refuse(http.StatusUnauthorized, "Invalid API key, please visit https://e2b.dev/docs/api-key to get your API key"))
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

func (s *Server) create(w http.ResponseWriter, r *http.Request, version int) error {
	var req newSandbox
	if err := readJSON(w, r, &req, false); err != nil {
		return err
	}
	timeout := 15 * time.Second
	if version == 2 {
		timeout, req.Secure = 300*time.Second, true
	}
	if req.Timeout != nil {
		timeout = time.Duration(*req.Timeout) * time.Second
	}
	if err := s.check(&req, timeout); err != nil {
		return err
	}
	b := &sandbox{server: s, id: newID(), request: req, started: time.Now()}
	b.dir = filepath.Join(s.opts.Dir, b.id)
	if req.Secure {
		b.token = strings.ToLower(rand.Text() + rand.Text())
	}
	b.mu.Lock() // nobody looks at it before it is whole
	defer b.mu.Unlock()
	if err := s.admit(b); err != nil {
		return err
	}
	if err := b.make(r.Context()); err != nil {
		s.mu.Lock()
		delete(s.sandboxes, b.id)
		s.mu.Unlock()
		b.state = gone
		_ = removeAll(b.dir)
		return err
	}
	b.live(time.Now().Add(timeout))
	writeJSON(w, http.StatusCreated, b.handle())
	return nil
}

// check refuses what the service refuses.
func (s *Server) check(req *newSandbox, timeout time.Duration) error {
	switch {
	case req.TemplateID == "":
		return refuse(http.StatusBadRequest, "Error when parsing request: templateID is required")
	case !slices.Contains(s.opts.Templates, strings.TrimSuffix(req.TemplateID, ":default")):
		return refuse(http.StatusNotFound, "template '%s' not found", req.TemplateID)
	case timeout <= 0:
		return refuse(http.StatusBadRequest, "Timeout must be greater than 0")
	case timeout > s.opts.MaxTimeout:
		return refuse(http.StatusBadRequest, "Timeout cannot be greater than %d hours", int(s.opts.MaxTimeout.Hours()))
	case req.AutoPauseMemory != nil && !*req.AutoPauseMemory && !req.AutoPause:
		return refuse(http.StatusBadRequest, "autoPauseMemory can only be false when autoPause is true")
	case req.AutoPauseMemory != nil && !*req.AutoPauseMemory && req.AutoResume.Enabled:
		return refuse(http.StatusBadRequest, "autoResume cannot be enabled when autoPauseMemory is false")
	case req.Network != nil && req.Network.AllowPublicTraffic != nil && !*req.Network.AllowPublicTraffic:
		return refuse(http.StatusBadRequest, "this server has no traffic access tokens: allowPublicTraffic false is not there")
	case len(req.VolumeMounts) > 0:
		return refuse(http.StatusBadRequest, "this server has no volumes")
	case len(req.MCP) > 0 && string(req.MCP) != "null":
		return refuse(http.StatusBadRequest, "this server has no MCP gateway")
	}
	return nil
}

// admit gives the sandbox its place among those that run, if there is one.
func (s *Server) admit(b *sandbox) error {
	s.admitting.Lock()
	defer s.admitting.Unlock()
	s.mu.Lock()
	var others []*sandbox
	for _, o := range s.sandboxes {
		others = append(others, o)
	}
	s.mu.Unlock()
	running := 0
	for _, o := range others {
		if !o.mu.TryLock() { // it is being made, paused or ended: it takes a place
			running++
			continue
		}
		if o.state == Running {
			running++
		}
		o.mu.Unlock()
	}
	if running >= s.opts.MaxSandboxes {
		return refuse(http.StatusTooManyRequests, "you have reached the maximum number of concurrent E2B sandboxes (%d). If you need more, please contact us at 'https://e2b.dev/docs/sandbox/rate-limits'", s.opts.MaxSandboxes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return refuse(http.StatusServiceUnavailable, "the server is closing")
	}
	s.sandboxes[b.id] = b
	return nil
}

// make lays the sandbox out and starts it. mu is held.
func (b *sandbox) make(ctx context.Context) error {
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		return err
	}
	if err := layOut(filepath.Join(b.dir, "root")); err != nil {
		return err
	}
	// A client that goes away does not undo what it asked for.
	return b.boot(context.WithoutCancel(ctx))
}

// locked finds the sandbox of a request and locks it, unless it has ended.
func (s *Server) locked(r *http.Request) (*sandbox, error) {
	id := r.PathValue("id")
	b := s.find(id)
	if b == nil {
		return nil, noSandbox(id)
	}
	b.mu.Lock()
	if b.state != Running && b.state != Paused {
		b.mu.Unlock()
		return nil, noSandbox(id)
	}
	return b, nil
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) error {
	b, err := s.locked(r)
	if err != nil {
		return err
	}
	defer b.mu.Unlock()
	d := detail{listed: b.listed(), EnvdAccessToken: b.token, Internet: b.request.Internet, Network: b.request.Network}
	d.Lifecycle = lifecycle{OnTimeout: "kill", AutoResume: b.request.AutoResume.Enabled}
	if b.request.AutoPause {
		d.Lifecycle.OnTimeout = "pause"
	}
	writeJSON(w, http.StatusOK, d)
	return nil
}

func (s *Server) remove(w http.ResponseWriter, r *http.Request) error {
	b := s.find(r.PathValue("id"))
	if b == nil {
		return noSandbox(r.PathValue("id"))
	}
	if err := b.finish(); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) setTimeout(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		Timeout *int32 `json:"timeout"`
	}
	if err := readJSON(w, r, &req, false); err != nil {
		return err
	}
	if req.Timeout == nil || *req.Timeout < 0 {
		return refuse(http.StatusBadRequest, "Error when parsing request: timeout must be at least 0")
	}
	b, err := s.locked(r)
	if err != nil {
		return err
	}
	defer b.mu.Unlock()
	if b.state == Paused {
		return noSandbox(b.id)
	}
	last := b.started.Add(s.opts.MaxTimeout)
	if time.Now().After(last) {
		return refuse(http.StatusBadRequest, "Max instance length exceeded")
	}
	until := time.Now().Add(time.Duration(*req.Timeout) * time.Second)
	if until.After(last) {
		until = last
	}
	b.live(until)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) refresh(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		Duration int `json:"duration"`
	}
	if err := readJSON(w, r, &req, true); err != nil {
		return err
	}
	if req.Duration < 0 || req.Duration > 3600 {
		return refuse(http.StatusBadRequest, "Error when parsing request: duration must be between 0 and 3600")
	}
	b, err := s.locked(r)
	if err != nil {
		return err
	}
	defer b.mu.Unlock()
	if b.state == Paused {
		return noSandbox(b.id)
	}
	b.extend(max(15*time.Second, time.Duration(req.Duration)*time.Second))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// extend lets the sandbox live for at least so long from now. mu is held.
func (b *sandbox) extend(d time.Duration) {
	if until := time.Now().Add(d); until.After(b.end) {
		b.live(until)
	}
}

func (s *Server) pause(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		Memory *bool `json:"memory"`
	}
	if err := readJSON(w, r, &req, true); err != nil {
		return err
	}
	b, err := s.locked(r)
	if err != nil {
		return err
	}
	defer b.mu.Unlock()
	if b.state == Paused {
		return refuse(http.StatusConflict, "Sandbox '%s' is already paused", b.id)
	}
	b.pause(req.Memory == nil || *req.Memory)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// awaken is the body of a connect or resume.
type awaken struct {
	Timeout   *int32 `json:"timeout"`
	Memory    *bool  `json:"memory"`
	AutoPause *bool  `json:"autoPause"`
}

func (s *Server) connect(w http.ResponseWriter, r *http.Request, version int) error {
	var req awaken
	if err := readJSON(w, r, &req, version == 2); err != nil {
		return err
	}
	if req.Timeout == nil && version == 1 {
		return refuse(http.StatusBadRequest, "Error when parsing request: timeout is required")
	}
	return s.wake(w, r, &req, 300*time.Second, false)
}

func (s *Server) resume(w http.ResponseWriter, r *http.Request) error {
	var req awaken
	if err := readJSON(w, r, &req, true); err != nil {
		return err
	}
	return s.wake(w, r, &req, 15*time.Second, true)
}

// wake resumes a sandbox, or lets one that runs live longer unless it has to be paused.
func (s *Server) wake(w http.ResponseWriter, r *http.Request, req *awaken, timeout time.Duration, paused bool) error {
	if req.Timeout != nil {
		timeout = time.Duration(*req.Timeout) * time.Second
	}
	if timeout < 0 {
		return refuse(http.StatusBadRequest, "Error when parsing request: timeout must be at least 0")
	}
	if timeout > s.opts.MaxTimeout {
		return refuse(http.StatusBadRequest, "Timeout cannot be greater than %d hours", int(s.opts.MaxTimeout.Hours()))
	}
	b, err := s.locked(r)
	if err != nil {
		return err
	}
	defer b.mu.Unlock()
	if b.state == Running {
		if paused {
			return refuse(http.StatusConflict, "Sandbox %s is already running", b.id)
		}
		b.extend(timeout)
		writeJSON(w, http.StatusOK, b.handle())
		return nil
	}
	if req.AutoPause != nil {
		b.request.AutoPause = *req.AutoPause
	}
	if err := b.resume(context.WithoutCancel(r.Context()), req.Memory == nil || *req.Memory, time.Now().Add(timeout)); err != nil {
		return err
	}
	b.started = time.Now() // a pause begins its life again
	writeJSON(w, http.StatusCreated, b.handle())
	return nil
}
