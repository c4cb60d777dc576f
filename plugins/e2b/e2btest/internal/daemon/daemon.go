// Package daemon is what runs in each sandbox of the local E2B server and does there what envd does in E2B's own: files
// over plain HTTP, processes over the Connect protocol.
//
// It behaves as envd 0.6 does, rough edges included, because clients have to live with those: signals reach only the
// leader of a process, output is not kept for clients that connect late, an interrupted upload leaves a short file. The
// doc comment of package e2btest lists the differences.
package daemon

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/hutch-run/hutch/plugins/e2b/internal/api/process/processconnect"
)

const (
	// Port is where clients believe the daemon to listen.
	Port = 49983
	// Version is the version of envd whose behaviour this is.
	Version = "0.6.13"

	serverFD = 3 // the daemon's end of the connection to the server
)

// Init is the body of POST /init, by which the server configures a new daemon.
type Init struct {
	EnvVars        map[string]string `json:"envVars,omitempty"`
	AccessToken    string            `json:"accessToken,omitempty"` // "" for a sandbox that is not secure
	DefaultUser    string            `json:"defaultUser,omitempty"`
	DefaultWorkdir string            `json:"defaultWorkdir,omitempty"`
}

// Daemon serves one sandbox.
type Daemon struct {
	processes *processes

	mu   sync.Mutex
	init Init
}

// Protocols is what server and daemon speak on the one connection between them.
func Protocols() *http.Protocols {
	p := &http.Protocols{}
	p.SetUnencryptedHTTP2(true)
	return p
}

// Main serves the sandbox that this process is in over the connection on descriptor 3. It never returns: when the
// connection ends so does the process, and with it, as process 1, all others.
func Main() {
	file := os.NewFile(serverFD, "server")
	conn, err := net.FileConn(file)
	file.Close()
	if err == nil {
		d := &Daemon{processes: newProcesses(), init: Init{DefaultUser: "user"}}
		d.processes.adoptOrphans()
		server := &http.Server{
			Handler:           d.handler(),
			Protocols:         Protocols(),
			ReadHeaderTimeout: time.Minute,
			// Input that no process reads must not keep other requests from being received.
			HTTP2: &http.HTTP2Config{
				MaxConcurrentStreams: 10_000, MaxReceiveBufferPerConnection: 4<<20 - 1, MaxReceiveBufferPerStream: 64 << 10,
			},
			ConnState: func(_ net.Conn, state http.ConnState) {
				if state == http.StateClosed {
					syscall.Exit(0)
				}
			},
		}
		err = server.Serve(&oneConn{conn: conn})
	}
	slog.Error("the daemon stops", "error", err)
	syscall.Exit(1)
}

// oneConn is a listener that accepts one connection.
type oneConn struct {
	conn     net.Conn
	accepted bool
}

func (l *oneConn) Accept() (net.Conn, error) {
	if l.accepted {
		select {} // Main exits when the connection ends
	}
	l.accepted = true
	return l.conn, nil
}

func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }
func (l *oneConn) Close() error   { return nil }

// handler serves all that the daemon offers.
func (d *Daemon) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/health", method(http.MethodGet, noContent))
	mux.HandleFunc("/init", method(http.MethodPost, d.postInit))
	mux.HandleFunc("/freeze", method(http.MethodPost, signalAll(syscall.SIGSTOP)))
	mux.HandleFunc("/unfreeze", method(http.MethodPost, signalAll(syscall.SIGCONT)))
	mux.HandleFunc("/files", d.files)
	mux.Handle(processconnect.NewProcessHandler(&processService{d}))
	return d.authorized(mux)
}

// settings returns what the server configured last.
func (d *Daemon) settings() Init {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.init
}

// authorized refuses requests without the token of a secure sandbox. The edge lets no client reach the paths that are
// for the server.
func (d *Daemon) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := d.settings().AccessToken
		switch r.URL.Path {
		case "/health", "/init", "/freeze", "/unfreeze":
			token = ""
		}
		if token != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get("X-Access-Token")), []byte(token)) != 1 {
			httpError(w, http.StatusUnauthorized,
				errors.New("unauthorized access, please provide a valid access token or method signing if supported"))
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
	noContent(w, r)
}

// signalAll sends a signal to every process of the sandbox but this one.
func signalAll(sig syscall.Signal) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := syscall.Kill(-1, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			httpError(w, http.StatusInternalServerError, err)
			return
		}
		noContent(w, r)
	}
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

func noContent(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

// httpError answers as envd does outside its RPC services: the code is the HTTP status as a number.
func httpError(w http.ResponseWriter, status int, err error) {
	writeJSON(w, status, map[string]any{"code": status, "message": err.Error()})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

func rpcError(code connect.Code, format string, args ...any) error {
	return connect.NewError(code, fmt.Errorf(format, args...))
}

// keepAlive returns a ticker for a stream's keepalives, as the client's header asks.
func keepAlive(h http.Header) *time.Ticker {
	every := 90 * time.Second
	if n, err := time.ParseDuration(h.Get("Keepalive-Ping-Interval") + "s"); err == nil {
		every = n
	}
	if every <= 0 { // envd panics, and the whole sandbox is lost
		slog.Error("non-positive interval for a keepalive ticker")
		syscall.Exit(2)
	}
	return time.NewTicker(every)
}
