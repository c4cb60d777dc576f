// Package pypitest has an index of Python packages, as pip takes it, for tests of what installs dependencies.
package pypitest

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// Index is an index with one package of one module. It is safe for concurrent use.
type Index struct {
	mux       http.ServeMux
	downloads atomic.Int32

	// SHA256 is the digest of the package's archive, in hexadecimal.
	SHA256 string
}

// uploaded is when releases were made.
const uploaded = "2020-01-01T00:00:00Z"

// New is the index of a package with a module of the same name.
func New(t *testing.T, name, version, code string) *Index {
	t.Helper()
	pkg := wheel(t, name, version, code)
	file := fmt.Sprintf("%s-%s-py3-none-any.whl", name, version)
	x := &Index{SHA256: fmt.Sprintf("%x", sha256.Sum256(pkg))}
	x.mux.HandleFunc("/simple/"+name+"/", func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept"), "application/vnd.pypi.simple.v1+json") {
			fmt.Fprintf(w, `<!DOCTYPE html><a href="/files/%s#sha256=%s">%s</a>`, file, x.SHA256, file)
			return
		}
		w.Header().Set("Content-Type", "application/vnd.pypi.simple.v1+json")
		fmt.Fprintf(w, `{"meta": {"api-version": "1.1"}, "name": %q, "versions": [%q], "files": [{"filename": %q, "url": "/files/%s",
			"hashes": {"sha256": %q}, "size": %d, "upload-time": %q}]}`, name, version, file, file, x.SHA256, len(pkg), uploaded)
	})
	x.mux.HandleFunc("/files/"+file, func(w http.ResponseWriter, _ *http.Request) {
		x.downloads.Add(1)
		_, _ = w.Write(pkg)
	})
	return x
}

// Downloads is how often the package was fetched.
func (x *Index) Downloads() int { return int(x.downloads.Load()) }

// ServeHTTP implements [http.Handler]: the index is at /simple/.
func (x *Index) ServeHTTP(w http.ResponseWriter, r *http.Request) { x.mux.ServeHTTP(w, r) }

// wheel builds a package as pip takes it.
func wheel(t *testing.T, name, version, code string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	info := name + "-" + version + ".dist-info/"
	for _, f := range [][2]string{
		{name + ".py", code},
		{info + "METADATA", "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", ""},
	} {
		w, err := z.Create(f[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
