// Package daemon is what runs inside each sandbox of the local E2B-compatible server and does there what envd does in
// E2B's own: files over plain HTTP, processes and directories over the Connect protocol.
//
// It behaves as envd 0.6 was seen to behave, its rough edges included, because a client has to live with those: only
// the leader of a process is killed, output is not kept for those who connect late, an upload that breaks off leaves a
// short file. Where it differs from envd the doc comment of package e2btest says so.
package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/plugins/e2b/internal/api/filesystem/filesystemconnect"
	"github.com/hutch-run/hutch/plugins/e2b/internal/api/process/processconnect"
)

const (
	// Port is where clients believe the daemon to listen.
	Port = 49983
	// Version is the version of envd whose behaviour this is.
	Version = "0.6.13"
	// HostHeader carries the port of the sandbox that a request is meant for when it is not the daemon's own.
	HostHeader = "E2btest-Forward-Port"
)

// Descriptors that Main is started with.
const (
	listenFD = 3 // a unix socket that listens
	aliveFD  = 4 // a pipe: its end means that the server is gone
)

// Init is the body of POST /init, by which the server tells a new daemon what its sandbox is.
type Init struct {
	EnvVars        map[string]string `json:"envVars,omitempty"`
	AccessToken    string            `json:"accessToken,omitempty"` // "" for a sandbox that is not secure
	DefaultUser    string            `json:"defaultUser,omitempty"`
	DefaultWorkdir string            `json:"defaultWorkdir,omitempty"`
}

// Daemon serves one sandbox.
type Daemon struct {
	log       *slog.Logger
	processes *processes
	watchers  *watchers
	load      cpuLoad

	mu   sync.Mutex
	init Init
}

// Main serves the sandbox that this process is in until its server is gone, and never returns.
func Main() {
	alive := os.NewFile(aliveFD, "server")
	syscall.CloseOnExec(aliveFD)
	go func() {
		_, _ = io.Copy(io.Discard, alive)
		syscall.Exit(0) // and the kernel ends all others
	}()
	file := os.NewFile(listenFD, "listener")
	listener, err := net.FileListener(file)
	file.Close()
	if err == nil {
		d := New(slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})))
		d.processes.kids.adopt()
		server := &http.Server{Handler: d.Handler(), ReadHeaderTimeout: time.Minute}
		err = server.Serve(listener)
	}
	slog.Error("the daemon stops", "error", err)
	syscall.Exit(1)
}

// New returns a daemon that logs requests to log, as envd does: with arguments, environments and input.
func New(log *slog.Logger) *Daemon {
	return &Daemon{log: log, processes: newProcesses(), watchers: newWatchers(), init: Init{DefaultUser: "user"}}
}

// Handler returns the whole surface of the daemon.
func (d *Daemon) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/health", method(http.MethodGet, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	mux.HandleFunc("/init", method(http.MethodPost, d.postInit))
	mux.HandleFunc("/envs", method(http.MethodGet, d.getEnvs))
	mux.HandleFunc("/metrics", method(http.MethodGet, d.getMetrics))
	mux.HandleFunc("/freeze", method(http.MethodPost, d.freeze))
	mux.HandleFunc("/unfreeze", method(http.MethodPost, d.freeze))
	mux.HandleFunc("/files", d.files)
	mux.HandleFunc("/files/compose", func(w http.ResponseWriter, _ *http.Request) {
		httpError(w, http.StatusNotImplemented, errors.New("the local server does not implement /files/compose"))
	})
	mux.Handle(processconnect.NewProcessHandler(&processService{d}))
	mux.Handle(filesystemconnect.NewFilesystemHandler(&filesystemService{d}))
	return d.authorized(mux)
}

// settings returns what the server said last.
func (d *Daemon) settings() Init {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.init
}

// authorized lets nobody in who lacks the token of a secure sandbox. /files checks for itself, because a signature does
// too.
func (d *Daemon) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(plain http.ResponseWriter, r *http.Request) {
		w := newDrainingWriter(plain, r)
		if port := r.Header.Get(HostHeader); port != "" {
			forward(plain, r, port)
			return
		}
		token := d.settings().AccessToken
		open := r.URL.Path == "/health" || r.URL.Path == "/files" || r.URL.Path == "/init"
		if token != "" && !open && !sameToken(r.Header.Get(tokenHeader), token) {
			httpError(w, http.StatusUnauthorized, errors.New("unauthorized access, please provide a valid access token or method signing if supported"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (d *Daemon) postInit(w http.ResponseWriter, r *http.Request) {
	var init Init
	if err := json.NewDecoder(r.Body).Decode(&init); err != nil {
		httpError(w, http.StatusBadRequest, err)
		return
	}
	d.mu.Lock()
	d.init = init
	d.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

func (d *Daemon) getEnvs(w http.ResponseWriter, _ *http.Request) {
	envs := maps.Clone(d.settings().EnvVars)
	if envs == nil {
		envs = map[string]string{}
	}
	writeJSON(w, http.StatusOK, envs)
}

// freeze stops every process of the sandbox but this one, or lets them go on: what a sandbox pauses with its memory.
func (d *Daemon) freeze(w http.ResponseWriter, r *http.Request) {
	sig := syscall.SIGSTOP
	if r.URL.Path == "/unfreeze" {
		sig = syscall.SIGCONT
	}
	if err := syscall.Kill(-1, sig); err != nil && err != syscall.ESRCH {
		httpError(w, http.StatusInternalServerError, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// method answers 405 to every other method, HEAD included.
func method(name string, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != name {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		h(w, r)
	}
}

// httpError answers as envd does outside its RPC services: the code is the HTTP status as a number.
func httpError(w http.ResponseWriter, status int, err error) {
	writeJSON(w, status, map[string]any{"code": status, "message": err.Error()})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that is gone needs no answer
}

// keepAlive returns a ticker for a stream's keepalives, by the client's header.
func keepAlive(ctx context.Context, h http.Header) *time.Ticker {
	every := 90 * time.Second
	if n, err := time.ParseDuration(h.Get("Keepalive-Ping-Interval") + "s"); err == nil {
		every = n
	}
	if every <= 0 {
		// envd does not survive this, and so the whole sandbox is lost.
		slog.ErrorContext(ctx, "non-positive interval for a keepalive ticker")
		syscall.Exit(2)
	}
	return time.NewTicker(every)
}
