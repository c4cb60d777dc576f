package install

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/hutch-run/hutch/host/install/careful"
	"github.com/hutch-run/hutch/host/release"
)

// serve serves w.dist over TLS below /v1.0.0/, with h first in line; what h answers is not answered again.
func (w *world) serve(h func(rw http.ResponseWriter, r *http.Request) bool) (source string) {
	w.t.Helper()
	files := http.StripPrefix("/v1.0.0/", http.FileServer(http.Dir(w.dist)))
	s := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if h == nil || !h(rw, r) {
			files.ServeHTTP(rw, r)
		}
	}))
	w.t.Cleanup(s.Close)
	w.Transport = s.Client().Transport
	return s.URL + "/v{version}"
}

func TestWeb(t *testing.T) {
	w := newWorld(t)
	w.release("1.0.0")
	source := w.serve(nil)
	if got := w.must(InitOptions{}, w.requires(source, "= 1.0.0")); got.Version != "1.0.0" || !strings.Contains(w.program(got.Path), "1.0.0") {
		t.Errorf("got %+v", got)
	}
	other := newWorld(t)
	other.Transport = w.Transport
	other.refused("cannot tell which versions there are; name one exactly", InitOptions{}, other.requires(source, ">= 1.0.0"))
	other.refused("hutch-backend-acme_1.0.1_manifest.json: there is nothing of that name", InitOptions{}, other.requires(source, "1.0.1"))
}

// A server that does anything it can think of.
func TestHostileServers(t *testing.T) {
	isArchive := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, ".tar.gz") }
	isManifest := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "manifest.json") }
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a redirect away from https was followed")
	}))
	defer elsewhere.Close()
	for _, tt := range []struct {
		name, want string
		h          func(rw http.ResponseWriter, r *http.Request) bool
	}{
		{"redirects to http", "redirects from https to http", func(rw http.ResponseWriter, r *http.Request) bool {
			http.Redirect(rw, r, elsewhere.URL+r.URL.Path, http.StatusFound)
			return true
		}},
		{"redirects the archive to http", "redirects from https to http", func(rw http.ResponseWriter, r *http.Request) bool {
			if isArchive(r) {
				http.Redirect(rw, r, elsewhere.URL+r.URL.Path, http.StatusFound)
			}
			return isArchive(r)
		}},
		{"redirects for ever", "more than 5 redirects", func(rw http.ResponseWriter, r *http.Request) bool {
			http.Redirect(rw, r, r.URL.Path, http.StatusFound)
			return true
		}},
		{"a manifest without an end", "more than the 262144 bytes", func(rw http.ResponseWriter, r *http.Request) bool {
			if isManifest(r) {
				pour(rw, release.MaxManifest*4)
			}
			return isManifest(r)
		}},
		{"a manifest that says it is big", "at most 262144 are taken", func(rw http.ResponseWriter, r *http.Request) bool {
			if isManifest(r) {
				rw.Header().Set("Content-Length", "99999999999")
			}
			return isManifest(r)
		}},
		{"an archive without an end", "it is more than the", func(rw http.ResponseWriter, r *http.Request) bool {
			if isArchive(r) {
				pour(rw, 64<<20)
			}
			return isArchive(r)
		}},
		{"half an archive", "EOF", func(rw http.ResponseWriter, r *http.Request) bool {
			if isArchive(r) {
				rw.Header().Set("Content-Length", "100")
				fmt.Fprint(rw, "half")
			}
			return isArchive(r)
		}},
		{"an archive that halts", "the server stopped sending", func(rw http.ResponseWriter, r *http.Request) bool {
			if isArchive(r) {
				fmt.Fprint(rw, "half")
				rw.(http.Flusher).Flush()
				<-r.Context().Done()
			}
			return isArchive(r)
		}},
		{"another file", "hutch-backend-acme_1.0.0_linux_amd64.tar.gz", func(rw http.ResponseWriter, r *http.Request) bool {
			if isArchive(r) {
				r.URL.Path = "/v1.0.0/" + strings.Replace(path.Base(r.URL.Path), "linux_amd64", "darwin_arm64", 1)
			}
			return false
		}},
		{"no JSON", "the manifest is not what it should be", func(rw http.ResponseWriter, r *http.Request) bool {
			if isManifest(r) {
				fmt.Fprint(rw, "<html>please log in</html>")
			}
			return isManifest(r)
		}},
		{"an error", "the server answered 503 Service Unavailable", func(rw http.ResponseWriter, _ *http.Request) bool {
			rw.WriteHeader(http.StatusServiceUnavailable)
			return true
		}},
		{"a signature without an end", "more than the 4096 bytes", func(rw http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, ".minisig") {
				pour(rw, 1<<20)
				return true
			}
			return false
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.release("1.0.0")
			w.Stall = 2 * time.Minute
			if strings.Contains(tt.want, "stopped sending") {
				w.Stall = 300 * time.Millisecond
			}
			source := w.serve(tt.h)
			w.refused(tt.want, InitOptions{}, w.requires(source, "1.0.0"))
		})
	}
}

// pour answers n bytes without saying how many.
func pour(rw http.ResponseWriter, n int) {
	chunk := make([]byte, 32<<10)
	rw.(http.Flusher).Flush()
	for ; n > 0; n -= len(chunk) {
		if _, err := rw.Write(chunk); err != nil {
			return
		}
	}
}

// Nothing is asked of another machine without encryption.
func TestPlainHTTPStaysHere(t *testing.T) {
	c := careful.NewClient(nil, time.Minute)
	for _, address := range []string{"http://192.0.2.1/x", "http://example.com/x", "file:///etc/passwd"} {
		res, err := c.Get(address)
		if err == nil {
			res.Body.Close()
		}
		if err == nil || !strings.Contains(err.Error(), careful.ErrPlain.Error()) {
			t.Errorf("%s: %v", address, err)
		}
	}
}
