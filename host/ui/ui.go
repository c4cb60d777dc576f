// Package ui is `hutch ui`: a web page on this machine's loopback that shows persistent sandboxes and runs as they are,
// and does with them what the command line does. It is linked into hutch-agent alone.
//
// Every page is HTML from templates and works without script, forms included. A script of ours fetches the page again
// when the server says that something changed, and changes in place what differs. The server keeps nothing that another
// process could not change: each page is made from the store and from what the backends say.
package ui

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/loopback"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/session"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/workspace"
	"github.com/hutch-run/hutch/host/workspace/review"
)

// Server serves the pages of one store to one user. Its methods are safe for concurrent use.
type Server struct {
	version string // of hutch
	session *session.Session
	store   *store.Store
	pool    *backend.Pool
	manager *sandbox.Manager
	ledger  *review.Ledger

	guard   *guard
	files   *fileServer
	watch   *watch
	notices notices
	works   works
	checks  checks
	machine machine
	latest  latest
}

// New returns a server for the store of a session, at two loopback addresses: files is that of what runs left. Nothing
// is started yet.
func New(s *session.Session, version string, at, files *net.TCPAddr) (*Server, error) {
	m, err := s.Sandboxes(nil)
	if err != nil {
		return nil, err
	}
	pool, err := s.Pool()
	if err != nil {
		return nil, err
	}
	v := &Server{
		version: version, session: s, store: s.Store(), pool: pool, manager: m, guard: newGuard(at, files.Port),
		files: newFileServer(files.Port, s.Store()), ledger: workspace.Ledger(s.Store()),
	}
	v.watch = newWatch()
	v.works.changed = v.watch.again
	return v, nil
}

// Link makes a link that opens the page in one browser. It can be used once.
func (s *Server) Link() string { return s.guard.link() }

// Serve answers requests until ctx ends, and then ends the commands that were started from the page. It closes l
// and files, which are those at the addresses of New.
func (s *Server) Serve(ctx context.Context, l, files net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.watchRecords(ctx)
	go s.watchSandboxes(ctx)
	go func() { _ = loopback.Serve(ctx, files, s.files) }()
	err := loopback.Serve(ctx, l, s.Handler())
	cancel()
	s.works.close()
	return err
}

// Call says how `hutch ui` was called.
type Call struct {
	Version   string // of hutch: both programs are of one build
	Hutch     string // its path, beside which backends lie
	Port      int    // 0 for any
	NoOpen    bool   // do not open a browser
	OnceToken bool   // there is one link, and none after it was used
}

// Run serves until ctx ends. say prints a line on stdout, note prints a message for the user.
func Run(ctx context.Context, c Call, say func(line string), note func(format string, args ...any)) (err error) {
	s, err := session.Open(session.Options{Version: c.Version, Executable: c.Hutch,
		Warn: func(line string) { note("%s", line) }})
	if err != nil {
		return err
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = errors.Join(err, s.Close(bounded))
	}()
	listen := func(port int) (net.Listener, error) {
		l, err := loopback.Listen(net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return nil, fmt.Errorf("%w; --port names another port", err)
		}
		return l, nil
	}
	l, err := listen(c.Port)
	if err != nil {
		return err
	}
	second := 0
	if c.Port > 0 {
		second = c.Port%65535 + 1
	}
	files, err := listen(second)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	v, err := New(s, c.Version, l.Addr().(*net.TCPAddr), files.Addr().(*net.TCPAddr))
	if err != nil {
		return errors.Join(err, l.Close(), files.Close())
	}
	var mu sync.Mutex
	printed := v.Link()
	opened := printed
	if !c.OnceToken {
		v.guard.used = func(link string) {
			mu.Lock()
			defer mu.Unlock()
			if link == printed {
				printed = v.Link()
				note("the link was used; this one opens another browser, once: %s", printed)
			}
		}
		opened = v.Link()
	}
	say(printed) // nothing is served yet
	note("the page of %s; the link works once, and ^C ends it", s.Store().Paths().Data)
	if !c.NoOpen {
		open(opened, note)
	}
	return v.Serve(ctx, l, files)
}

// open shows a link in the user's browser, where there is a display.
func open(link string, note func(format string, args ...any)) {
	program := "xdg-open"
	switch {
	case runtime.GOOS == "darwin":
		program = "open"
	case os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "":
		return
	}
	cmd := exec.Command(program, link)
	if err := cmd.Start(); err != nil {
		note("no browser could be opened: %s", err)
		return
	}
	go func() { _ = cmd.Wait() }()
}
