package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/session"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/internal/testbackend"
)

func TestMain(m *testing.M) { os.Exit(testbackend.Run(m)) }

// world is a server whose sandboxes are of plugins/fake, with a project, and a browser that has the cookie.
type world struct {
	*Server
	t       testing.TB
	origin  string
	project string
	browser *http.Client
}

func newWorld(t testing.TB) *world {
	t.Helper()
	t.Setenv("HUTCH_BACKEND_PATH", testbackend.Dir(t, "fake"))
	t.Setenv("TMPDIR", t.TempDir())
	s, err := session.Open(session.Options{Store: store.Options{Home: t.TempDir()}, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	files, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v, err := New(s, "test", l.Addr().(*net.TCPAddr), files.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- v.Serve(ctx, l, files) }()
	w := &world{Server: v, t: t, origin: "http://" + l.Addr().String(), project: t.TempDir()}
	t.Cleanup(func() {
		cancel()
		bounded, done := context.WithTimeout(context.Background(), time.Minute)
		defer done()
		if err := errors.Join(<-served, w.manager.RemoveAllOf(bounded, store.Self()), s.Close(bounded)); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	w.write("a.txt", "one\ntwo\n")
	jar, _ := cookiejar.New(nil)
	w.browser = &http.Client{Jar: jar, Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if code, body := w.get(w.Link()); code != http.StatusOK || !strings.Contains(body, w.guard.prefix) {
		t.Fatalf("the link: %d\n%s", code, body)
	}
	return w
}

func (w *world) write(name, text string) {
	w.t.Helper()
	p := filepath.Join(w.project, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) read(name string) string {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(w.project, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Fatal(err)
	}
	return string(b)
}

// create makes a sandbox on the project and returns its id.
func (w *world) create(name string) string {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "t.hcl")
	text := fmt.Sprintf("run \"t\" {\n  backend \"fake\" {}\n  command = [\"true\"]\n  workspace {\n    source = %q\n  }\n}\n", w.project)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	conf, ds := runfile.Load([]string{file}, runfile.Options{Environ: []string{}})
	if ds.HasErrors() {
		w.t.Fatal(ds)
	}
	info, err := w.manager.Create(w.t.Context(), conf.Runs()[0], name)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := w.manager.Remove(context.Background(), info.ID, true); err != nil && !errors.Is(err, store.ErrNoSandbox) {
			w.t.Error(err)
		}
	})
	return info.ID
}

// sh runs a line of shell in a sandbox, as another process would, and returns the run's id.
func (w *world) sh(id, line string) string {
	w.t.Helper()
	sb, err := w.manager.Open(w.t.Context(), id, sandbox.Shared)
	if err != nil {
		w.t.Fatal(err)
	}
	defer sb.Close()
	r, err := sb.Run(w.t.Context(), sandbox.Command{Argv: []string{"sh", "-c", line}}, run.Streams{})
	if err != nil || r.Error != nil {
		w.t.Fatalf("%v %v", err, r)
	}
	return r.ID
}

// url is a page of the server, or an address that is one already.
func (w *world) url(path string) string {
	if strings.HasPrefix(path, "http") {
		return path
	}
	return w.origin + w.guard.prefix + path
}

func (w *world) do(r *http.Request) (code int, body string, h http.Header) {
	w.t.Helper()
	a, err := w.browser.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return a.StatusCode, string(b), a.Header
}

func (w *world) get(path string) (code int, body string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.url(path), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	code, body, _ = w.do(r)
	return code, body
}

// see is a page that must be there, with what it must have.
func (w *world) see(path string, parts ...string) string {
	w.t.Helper()
	code, body := w.get(path)
	if code != http.StatusOK {
		w.t.Fatalf("%s: %d\n%s", path, code, body)
	}
	for _, p := range parts {
		if !strings.Contains(body, p) {
			w.t.Errorf("%s has no %q:\n%s", path, p, body)
		}
	}
	return body
}

// post sends a form as our page does and returns the page that follows.
func (w *world) post(path string, form url.Values) string {
	w.t.Helper()
	if form == nil {
		form = url.Values{}
	}
	form.Set(csrfField, w.guard.csrf)
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url(path), strings.NewReader(form.Encode()))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", w.origin)
	code, body, h := w.do(r)
	if code != http.StatusSeeOther {
		w.t.Fatalf("%s: %d\n%s", path, code, body)
	}
	return w.see(w.origin + h.Get("Location"))
}
