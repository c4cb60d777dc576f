package e2btest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-run/hutch/plugins/e2b/e2btest/internal/daemon"
)

// newSandbox is the body of POST /sandboxes and /v2/sandboxes.
type newSandbox struct {
	TemplateID string            `json:"templateID"`
	Timeout    *int32            `json:"timeout"` // seconds
	Secure     bool              `json:"secure"`  // v1 only; in v2 all are
	Metadata   map[string]string `json:"metadata"`
	EnvVars    map[string]string `json:"envVars"`
	Internet   *bool             `json:"allow_internet_access"`
	AutoPause  bool              `json:"autoPause"`
	AutoResume struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	Network struct {
		AllowPublicTraffic *bool `json:"allowPublicTraffic"`
	} `json:"network"`
	VolumeMounts []json.RawMessage `json:"volumeMounts"`
	MCP          *json.RawMessage  `json:"mcp"`
}

// handle says how to reach a sandbox.
type handle struct {
	TemplateID         string  `json:"templateID"`
	SandboxID          string  `json:"sandboxID"`
	ClientID           string  `json:"clientID"`
	EnvdVersion        string  `json:"envdVersion"`
	EnvdAccessToken    string  `json:"envdAccessToken,omitempty"`
	TrafficAccessToken *string `json:"trafficAccessToken"`
	Domain             *string `json:"domain"`
}

// detail describes a sandbox. In a list it has no token and lifecycle.
type detail struct {
	TemplateID      string            `json:"templateID"`
	SandboxID       string            `json:"sandboxID"`
	ClientID        string            `json:"clientID"`
	StartedAt       time.Time         `json:"startedAt"`
	EndAt           time.Time         `json:"endAt"`
	CPUCount        int               `json:"cpuCount"`
	MemoryMB        int               `json:"memoryMB"`
	DiskSizeMB      int               `json:"diskSizeMB"`
	State           string            `json:"state"`
	EnvdVersion     string            `json:"envdVersion"`
	Metadata        map[string]string `json:"metadata,omitempty"`
	VolumeMounts    []struct{}        `json:"volumeMounts"`
	EnvdAccessToken string            `json:"envdAccessToken,omitempty"`
	Internet        *bool             `json:"allowInternetAccess,omitempty"`
	Lifecycle       *lifecycle        `json:"lifecycle,omitempty"`
}

type lifecycle struct {
	OnTimeout  string `json:"onTimeout"` // "kill" or "pause"
	AutoResume bool   `json:"autoResume"`
}

// apiError is an error in the control plane's form.
type apiError struct {
	Code      int    `json:"code"`
	Message   string `json:"message"`
	ErrorCode string `json:"error_code,omitempty"`
}

func (e *apiError) Error() string { return fmt.Sprintf("%d: %s", e.Code, e.Message) }

func refuse(code int, format string, args ...any) error {
	return &apiError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// invalid refuses a request that says something impossible.
func invalid(format string, args ...any) error {
	return refuse(http.StatusBadRequest, "Error when parsing request: "+format, args...)
}

func noSandbox(id string) error {
	return refuse(http.StatusNotFound, "Sandbox %q doesn't exist or you don't have access to it", id)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

func writeError(w http.ResponseWriter, err error) {
	var known *apiError
	if !errors.As(err, &known) {
		known = &apiError{Code: http.StatusInternalServerError, Message: err.Error(), ErrorCode: "internal_server_error"}
	}
	writeJSON(w, known.Code, known)
}

// readJSON decodes a request's body into v. An empty one leaves v as it is where optional.
func readJSON(r *http.Request, v any, optional bool) error {
	err := json.NewDecoder(io.LimitReader(r.Body, 16<<20)).Decode(v)
	if err == nil || err == io.EOF && optional {
		return nil
	}
	return invalid("%v", err)
}

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
	// one routes requests for a sandbox, which h gets with mu held.
	one := func(pattern string, h func(w http.ResponseWriter, r *http.Request, b *sandbox) error) {
		route(pattern, func(w http.ResponseWriter, r *http.Request) error {
			id := r.PathValue("id")
			b := s.find(id)
			if b == nil {
				return noSandbox(id)
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.state != Running && b.state != Paused {
				return noSandbox(id)
			}
			return h(w, r, b)
		})
	}
	route("POST /sandboxes", func(w http.ResponseWriter, r *http.Request) error { return s.create(w, r, 1) })
	route("POST /v2/sandboxes", func(w http.ResponseWriter, r *http.Request) error { return s.create(w, r, 2) })
	route("GET /v2/sandboxes", s.list)
	route("DELETE /sandboxes/{id}", s.remove)
	one("GET /sandboxes/{id}", get)
	one("POST /sandboxes/{id}/timeout", setTimeout)
	one("POST /sandboxes/{id}/pause", pause)
	one("POST /sandboxes/{id}/connect", connect)
	one("POST /v2/sandboxes/{id}/connect", connect)
	route("POST /e2btest/faults", s.postFaults)
	route("DELETE /e2btest/faults", s.deleteFaults)
	route("/", func(_ http.ResponseWriter, r *http.Request) error {
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
			writeError(w, refuse(http.StatusUnauthorized,
				"Invalid API key, please visit https://e2b.dev/docs/api-key to get your API key"))
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

func (s *Server) create(w http.ResponseWriter, r *http.Request, version int) error {
	var req newSandbox
	if err := readJSON(r, &req, false); err != nil {
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
	b.mu.Lock() // others see it when it is whole
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

// check refuses what the service refuses, and what this server does not have.
func (s *Server) check(req *newSandbox, timeout time.Duration) error {
	public := req.Network.AllowPublicTraffic
	switch {
	case req.TemplateID == "":
		return invalid("templateID is required")
	case !slices.Contains(s.opts.Templates, strings.TrimSuffix(req.TemplateID, ":default")):
		return refuse(http.StatusNotFound, "template '%s' not found", req.TemplateID)
	case timeout <= 0:
		return refuse(http.StatusBadRequest, "Timeout must be greater than 0")
	case public != nil && !*public:
		return refuse(http.StatusBadRequest, "this server has no traffic access tokens for allowPublicTraffic false")
	case len(req.VolumeMounts) > 0:
		return refuse(http.StatusBadRequest, "this server has no volumes")
	case req.AutoResume.Enabled:
		return refuse(http.StatusBadRequest, "this server does not resume a sandbox by itself")
	case req.MCP != nil:
		return refuse(http.StatusBadRequest, "this server has no MCP gateway")
	}
	return s.checkTimeout(timeout)
}

func (s *Server) checkTimeout(timeout time.Duration) error {
	if timeout > s.opts.MaxTimeout {
		return refuse(http.StatusBadRequest, "Timeout cannot be greater than %d hours", int(s.opts.MaxTimeout.Hours()))
	}
	return nil
}

// admit counts the sandbox among those that run, if there is room.
func (s *Server) admit(b *sandbox) error {
	s.admitting.Lock()
	defer s.admitting.Unlock()
	running := 0
	for _, o := range s.all() {
		if !o.mu.TryLock() { // being made, paused or ended, it counts as well
			running++
			continue
		}
		if o.state == Running {
			running++
		}
		o.mu.Unlock()
	}
	if running >= s.opts.MaxSandboxes {
		return refuse(http.StatusTooManyRequests, "you have reached the maximum number of concurrent E2B sandboxes (%d). "+
			"If you need more, please contact us at 'https://e2b.dev/docs/sandbox/rate-limits'", s.opts.MaxSandboxes)
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
	// A client that disconnects does not undo its request.
	return b.boot(context.WithoutCancel(ctx))
}

func (b *sandbox) handle() handle {
	return handle{
		TemplateID: b.request.TemplateID, SandboxID: b.id, ClientID: "e2btest", EnvdVersion: daemon.Version,
		EnvdAccessToken: b.token,
	}
}

// describe describes the sandbox as a list does. mu is held.
func (b *sandbox) describe() detail {
	return detail{
		TemplateID: b.request.TemplateID, SandboxID: b.id, ClientID: "e2btest", EnvdVersion: daemon.Version,
		StartedAt: b.started.UTC(), EndAt: b.end.UTC(), CPUCount: 2, MemoryMB: 512, DiskSizeMB: 1024,
		State: b.state, Metadata: b.request.Metadata, VolumeMounts: []struct{}{},
	}
}

func get(w http.ResponseWriter, _ *http.Request, b *sandbox) error {
	d := b.describe()
	d.EnvdAccessToken, d.Internet = b.token, b.request.Internet
	d.Lifecycle = &lifecycle{OnTimeout: "kill"}
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

func setTimeout(w http.ResponseWriter, r *http.Request, b *sandbox) error {
	var req struct {
		Timeout *int32 `json:"timeout"`
	}
	if err := readJSON(r, &req, false); err != nil {
		return err
	}
	if req.Timeout == nil || *req.Timeout < 0 {
		return invalid("timeout must be at least 0")
	}
	if b.state == Paused {
		return noSandbox(b.id)
	}
	last := b.started.Add(b.server.opts.MaxTimeout)
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

func pause(w http.ResponseWriter, r *http.Request, b *sandbox) error {
	req := struct {
		Memory bool `json:"memory"`
	}{true}
	if err := readJSON(r, &req, true); err != nil {
		return err
	}
	if b.state == Paused {
		return refuse(http.StatusConflict, "Sandbox '%s' is already paused", b.id)
	}
	b.pause(req.Memory)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// connect extends the life of a sandbox, and resumes one that is paused.
func connect(w http.ResponseWriter, r *http.Request, b *sandbox) error {
	v2 := strings.HasPrefix(r.URL.Path, "/v2/")
	var req struct {
		Timeout *int32 `json:"timeout"`
	}
	if err := readJSON(r, &req, v2); err != nil {
		return err
	}
	timeout := 300 * time.Second
	switch {
	case req.Timeout == nil && !v2:
		return invalid("timeout is required")
	case req.Timeout != nil && *req.Timeout < 0:
		return invalid("timeout must be at least 0")
	case req.Timeout != nil:
		timeout = time.Duration(*req.Timeout) * time.Second
	}
	if err := b.server.checkTimeout(timeout); err != nil {
		return err
	}
	until := time.Now().Add(timeout)
	if b.state == Running {
		if until.After(b.end) {
			b.live(until)
		}
		writeJSON(w, http.StatusOK, b.handle())
		return nil
	}
	if err := b.resume(context.WithoutCancel(r.Context()), until); err != nil {
		return err
	}
	b.started = time.Now() // a pause restarts its life
	writeJSON(w, http.StatusCreated, b.handle())
	return nil
}

// list answers with a page of the sandboxes in the query's states whose metadata hold every pair of the query, the
// newest first. The token of the next page names the last sandbox of this one.
func (s *Server) list(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	want, err := metadataFilter(query)
	if err != nil {
		return err
	}
	states := []string{Running, Paused}
	if given := query["state"]; len(given) > 0 {
		states = strings.Split(strings.Join(given, ","), ",")
	}
	for _, state := range states {
		if state != Running && state != Paused {
			return invalid("invalid state %q", state)
		}
	}
	limit := 100
	if given := query.Get("limit"); given != "" {
		if limit, err = strconv.Atoi(given); err != nil || limit < 1 || limit > 100 {
			return invalid("limit must be between 1 and 100")
		}
	}
	before, err := base64.RawURLEncoding.DecodeString(query.Get("nextToken"))
	if err != nil || len(before) > 0 && !strings.Contains(string(before), "__") {
		return refuse(http.StatusBadRequest, "Invalid next token")
	}
	key := func(d detail) string { return d.StartedAt.Format("2006-01-02T15:04:05.000000000") + "__" + d.SandboxID }
	page := []detail{}
	for _, b := range s.all() {
		b.mu.Lock()
		d := b.describe()
		b.mu.Unlock()
		if slices.Contains(states, d.State) && carries(d.Metadata, want) && (len(before) == 0 || key(d) < string(before)) {
			page = append(page, d)
		}
	}
	slices.SortFunc(page, func(a, b detail) int { return strings.Compare(key(b), key(a)) })
	if len(page) > limit {
		page = page[:limit]
		w.Header().Set("X-Next-Token", base64.RawURLEncoding.EncodeToString([]byte(key(page[limit-1]))))
	}
	writeJSON(w, http.StatusOK, page)
	return nil
}

// carries reports whether metadata holds every pair of want.
func carries(metadata, want map[string]string) bool {
	for k, v := range want {
		if got, ok := metadata[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// metadataFilter decodes the value of the query's metadata: pairs whose parts are encoded once more, in a query that is
// encoded again as a whole.
func metadataFilter(query url.Values) (map[string]string, error) {
	text, err := url.QueryUnescape(query.Get("metadata"))
	if err != nil || text == "" {
		return nil, metadataError(err)
	}
	want := map[string]string{}
	for pair := range strings.SplitSeq(text, "&") {
		k, v, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, refuse(http.StatusBadRequest, "invalid metadata filter: %q is no pair", pair)
		}
		name, nerr := url.QueryUnescape(k)
		value, verr := url.QueryUnescape(v)
		if err := errors.Join(nerr, verr); err != nil {
			return nil, metadataError(err)
		}
		want[name] = value
	}
	return want, nil
}

func metadataError(err error) error {
	if err == nil {
		return nil
	}
	return refuse(http.StatusBadRequest, "Error when parsing metadata: %v", err)
}
