//go:build linux

package run

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/internal/pypitest"
	"github.com/hutch-run/hutch/internal/testbackend"
	"github.com/hutch-run/hutch/sdk"
)

// need skips a test on a machine without a program, unless HUTCH_TEST_REQUIRE lists it.
func need(t *testing.T, tool, why string, there bool) {
	t.Helper()
	if there {
		return
	}
	if slices.Contains(strings.Split(os.Getenv("HUTCH_TEST_REQUIRE"), ","), tool) {
		t.Fatalf("%s is required (HUTCH_TEST_REQUIRE): %s", tool, why)
	}
	t.Skipf("%s: %s", tool, why)
}

// needProgram is need for something that sandboxes find in the system's directories.
func needProgram(t *testing.T, tool string, argv ...string) {
	t.Helper()
	cmd := exec.Command("/usr/bin/env", append([]string{"-i", "PATH=" + defaultPath + ":/usr/local/go/bin", "HOME=/tmp"}, argv...)...)
	out, err := cmd.CombinedOutput()
	need(t, tool, fmt.Sprintf("%q: %v %s", argv, err, out), err == nil)
}

func TestMain(m *testing.M) { os.Exit(testbackend.Run(m)) }

// newBwrapWorld is a world with the real backend.
func newBwrapWorld(t *testing.T) (*world, *backend.Pool) {
	t.Helper()
	_, err := exec.LookPath("bwrap")
	need(t, "bwrap", "it is not there", err == nil)
	bin := testbackend.Dir(t, "bwrap")
	w := newWorld(t)
	dir, err := store.NewRuntimeDir()
	if err != nil {
		t.Fatal(err)
	}
	p := backend.NewPool(backend.Options{Dir: dir.Path(), CacheDir: w.store.Paths().Backends(), Paths: []string{bin}})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := dir.Close(); err != nil {
			t.Error(err)
		}
	})
	b, err := p.Get(context.Background(), "bwrap")
	if err != nil {
		t.Fatal(err)
	}
	findings, err := b.Check(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if f.Status == sdk.SeverityError {
			need(t, "bwrap", f.Name+": "+f.Detail, false)
		}
	}
	w.opt.Backends = p
	return w, p
}

// write writes a file beside the run file.
func (w *world) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) runOn(src string) *result.Result {
	w.t.Helper()
	o := w.opt
	o.Store = w.store
	ds := w.load(src)
	r, err := New(o).Run(context.Background(), ds[0], Streams{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.check(r)
	return r
}

func TestLanguagesInSandbox(t *testing.T) {
	w, _ := newBwrapWorld(t)
	for name, tc := range map[string]struct {
		probe []string
		files map[string]string
		entry string
	}{
		"python":      {[]string{"python3", "-c", ""}, map[string]string{"app/main.py": "import sys\nfrom lib.util import f\nprint(f(), sys.argv[1])", "lib/util.py": "def f(): return 7", "lib/__init__.py": ""}, "app/main.py"},
		"commonjs":    {[]string{"node", "-e", ""}, map[string]string{"main.js": "console.log(require('lib/util').f(), process.argv[2])", "lib/util.js": "exports.f = () => 7"}, "main.js"},
		"esm":         {[]string{"node", "-e", ""}, map[string]string{"main.mjs": "import {f} from './lib/util.mjs'; console.log(f(), process.argv[2])", "lib/util.mjs": "export const f = () => 7"}, "main.mjs"},
		"sh":          {[]string{"sh", "-c", ""}, map[string]string{"main.sh": ". $HUTCH_INPUT/lib.sh; echo $(f) $1", "lib.sh": "f() { echo 7; }"}, "main.sh"},
		"bash":        {[]string{"bash", "-c", ""}, map[string]string{"main.sh": "#!/bin/bash\na=(5 7); echo ${a[1]} $1"}, "main.sh"},
		"perl":        {[]string{"perl", "-e", ""}, map[string]string{"main.pl": "use Util; print Util::f(), \" $ARGV[0]\\n\"", "Util.pm": "package Util; sub f { 7 } 1;"}, "main.pl"},
		"ruby":        {[]string{"ruby", "-e", ""}, map[string]string{"main.rb": "require 'lib/util'; puts \"#{f} #{ARGV[0]}\"", "lib/util.rb": "def f = 7"}, "main.rb"},
		"go":          {[]string{"go", "version"}, map[string]string{"main.go": "package main\nimport (\"fmt\"; \"os\")\nfunc main() { fmt.Println(f(), os.Args[1]) }", "f.go": "package main\nfunc f() int { return 7 }"}, "main.go"},
		"go packages": {[]string{"go", "version"}, map[string]string{"main.go": "package main\nimport (\"fmt\"; \"os\"; \"run/lib\")\nfunc main() { fmt.Println(lib.F(), os.Args[1]) }", "lib/f.go": "package lib\nfunc F() int { return 7 }"}, "main.go"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.probe[0] == "go" && testing.Short() {
				t.Skip("compiles the standard library: not in -short")
			}
			needProgram(t, tc.probe[0], tc.probe...)
			var b strings.Builder
			b.WriteString("run \"r\" {\n backend \"bwrap\" {}\n")
			for f, content := range tc.files {
				fmt.Fprintf(&b, " file %q { content = %s }\n", f, hclString(content))
			}
			fmt.Fprintf(&b, " entrypoint = %q\n args = [\"arg\"]\n limits { timeout = \"3m\" }\n}\n", tc.entry)
			r := w.runOn(b.String())
			if !r.OK || r.Stdout.Text != "7 arg\n" {
				t.Errorf("%s %v %q %q %v", r.Cause, r.Status, r.Stdout.Text, r.Stderr.Text, r.Error)
			}
		})
	}
}

// TestS4NewRepositories names the git repositories that a command made in a shared workspace, where nothing guards
// them.
func TestS4NewRepositories(t *testing.T) {
	w, _ := newBwrapWorld(t)
	project := filepath.Join(w.dir, "shared")
	if err := os.MkdirAll(filepath.Join(project, "old", ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := w.runOn(`run "r" {
  backend "bwrap" {}
  workspace {
    source = "shared"
    mode   = "shared"
  }
  command = ["sh", "-c", "mkdir -p new/.git bare/objects bare/refs plain && echo x > bare/HEAD"]
}`)
	want := []string{filepath.Join(project, "bare"), filepath.Join(project, "new", ".git")}
	if !r.OK || !slices.Equal(r.NewRepositories, want) {
		t.Errorf("%s %v: %q, want %q", r.Cause, r.Error, r.NewRepositories, want)
	}
}

// TestPipInstalls installs from an index on loopback that wants a password.
func TestPipInstalls(t *testing.T) {
	w, _ := newBwrapWorld(t)
	needProgram(t, "pip", "python3", "-m", "pip", "--version")
	mux := pypitest.New(t, "hutchprobe", "1.2", "def f(): return 'installed'\n")
	const password = "pa55-of-the-index"
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if _, p, _ := r.BasicAuth(); p != password {
			http.Error(rw, "who are you", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(rw, r)
	}))
	defer srv.Close()
	index := strings.Replace(srv.URL, "http://", "http://user:"+password+"@", 1) + "/simple/"
	w.opt.Environ = []string{"PIP_INDEX_URL=" + index, "SECRET_OF_THE_USER=x", "PIP_RETRIES=0"}
	src := func(dep string) string {
		return fmt.Sprintf(`
run "r" {
  backend "bwrap" {}
  file "main.py" { content = "import hutchprobe, os, socket\nprint(hutchprobe.f(), 'PIP_INDEX_URL' in os.environ)\ntry:\n  open(hutchprobe.__file__, 'a')\nexcept OSError: print('read-only')\ntry:\n  socket.create_connection(('127.0.0.1', %s))\nexcept OSError: print('no network')\n" }
  entrypoint   = "main.py"
  dependencies = [%q]
}`, srv.URL[strings.LastIndexByte(srv.URL, ':')+1:], dep)
	}
	first := w.runOn(src("hutchprobe==1.2"))
	if !first.OK || first.Stdout.Text != "installed False\nread-only\nno network\n" {
		t.Fatalf("%s %q %q %v", first.Cause, first.Stdout.Text, first.Stderr.Text, first.Error)
	}
	if len(first.Dependencies) != 1 || first.Dependencies[0].Cached || !strings.Contains(first.Dependencies[0].Installer, " ") {
		t.Errorf("%+v", first.Dependencies)
	}
	if f := first.Dependencies[0].Fetched; len(f) != 1 || f[0].Name != "hutchprobe" || f[0].Version != "1.2" || !strings.HasPrefix(f[0].Digest, "sha256-") {
		t.Errorf("fetched: %+v", f)
	}
	second := w.runOn(src("hutchprobe==1.2"))
	if !second.OK || !second.Dependencies[0].Cached || mux.Downloads() != 1 {
		t.Errorf("%d downloads, %+v, %v", mux.Downloads(), second.Dependencies, second.Error)
	}
	bad := w.runOn(src("hutchprobe==9.9"))
	if bad.Cause != sdk.CauseSetupFailed || bad.Status != 125 || bad.Error == nil || bad.Error.Phase != "dependencies" || !strings.Contains(bad.Error.Detail, "9.9") {
		t.Errorf("%s %d %+v", bad.Cause, bad.Status, bad.Error)
	}
	again := w.runOn(src("hutchprobe==9.9"))
	if again.OK || again.Error == nil {
		t.Error("a failed installation was cached")
	}
	noSecret(t, w, password)
	// The release is of 2020. pip before 26.0 cannot ask for that.
	aged := func(age string) *result.Result {
		return w.runOn(strings.Replace(src("hutchprobe"), "  entrypoint", "  min_age = \""+age+"\"\n  entrypoint", 1))
	}
	if r := aged("3d"); r.OK {
		if r := aged("36500d"); r.OK || r.Error == nil || !strings.Contains(r.Error.Detail, "hutchprobe") {
			t.Errorf("a release that is too young: %+v", r.Error)
		}
	} else if r.Error == nil || r.Error.Fix != "min_age needs pip 26.0 or newer, or uv" {
		t.Errorf("min_age: %+v", r.Error)
	}

	// A lock file's digest is compared with that of what comes.
	locked := func(digest string) *result.Result {
		w.write("requirements.txt", "# made by a test\nhutchprobe==1.2 \\\n    --hash=sha256:"+digest+"\n    # via nothing\n")
		return w.runOn(strings.Replace(src(""), `dependencies = [""]`, `lock_file = "requirements.txt"`, 1))
	}
	if r := locked(strings.Repeat("0", 64)); r.OK || r.Error == nil || !strings.Contains(r.Error.Detail, "DO NOT MATCH THE HASHES") {
		t.Errorf("another digest: %+v", r.Error)
	}
	if r := locked(mux.SHA256); !r.OK || !r.Dependencies[0].Locked || !slices.Equal(r.Dependencies[0].Packages, []string{"hutchprobe==1.2"}) {
		t.Errorf("the digest: %+v %+v", r.Error, r.Dependencies)
	}

	secure := httptest.NewTLSServer(mux)
	defer secure.Close()
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	w.opt.Environ = []string{"PIP_INDEX_URL=" + secure.URL + "/simple/", "PIP_RETRIES=0"}
	if r := w.runOn(src("hutchprobe==1.2")); r.OK || r.Error == nil || !strings.Contains(r.Error.Fix, "PIP_CERT") {
		t.Errorf("an unknown authority: %+v", r.Error)
	}
	w.opt.Environ = append(w.opt.Environ, "SSL_CERT_FILE="+authority(t, secure))
	if r := w.runOn(src("hutchprobe==1.2")); !r.OK {
		t.Errorf("a private authority: %+v", r.Error)
	}
}

// noSecret looks for a secret in everything that the store holds.
func noSecret(t *testing.T, w *world, secret string) {
	t.Helper()
	p := w.store.Paths()
	for _, dir := range []string{p.Data, p.Cache, p.State} {
		err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			b, err := os.ReadFile(name)
			if bytes.Contains(b, []byte(secret)) {
				t.Errorf("%s holds the secret", name)
			}
			return err
		})
		if err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
	}
}

// TestNpmInstalls installs with npm itself, from a registry on loopback.
func TestNpmInstalls(t *testing.T) {
	w, _ := newBwrapWorld(t)
	needProgram(t, "npm", "npm", "--version")
	tgz := npmPackage(t)
	sum := sha512.Sum512(tgz)
	var srv *httptest.Server
	release := func(version string) map[string]any {
		return map[string]any{
			"name": "hutch-probe", "version": version, "bin": map[string]string{"hutch-probe": "cli.js"},
			"dist": map[string]string{"tarball": srv.URL + "/hutch-probe.tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])},
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/hutch-probe", func(rw http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(rw).Encode(map[string]any{
			"name": "hutch-probe", "dist-tags": map[string]string{"latest": "1.0.1"},
			"versions": map[string]any{"1.0.0": release("1.0.0"), "1.0.1": release("1.0.1")},
			"time":     map[string]string{"1.0.0": "2020-01-01T00:00:00.000Z", "1.0.1": time.Now().UTC().Format("2006-01-02T15:04:05.000Z")},
		})
	})
	var unlisted atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { unlisted.Add(1) }))
	defer other.Close()
	sly := npmArchive(t, [][2]string{
		{"package.json", `{"name":"hutch-sly","version":"1.0.0","scripts":{"postinstall":"node ask.js"}}`},
		{"ask.js", fmt.Sprintf("const a = u => fetch(u).then(r => r.status + ' ' + (r.headers.get('x-hutch-denied') ?? ''), e => e.cause?.code ?? e.message)\n"+
			"Promise.all([process.env.NPM_CONFIG_REGISTRY + '/sly', '%s/', 'http://other.example/', 'http://10.1.2.3/'].map(a)).then(r => require('fs').writeFileSync('got', r.join('\\n')))\n", other.URL)},
	})
	mux.HandleFunc("/hutch-sly", func(rw http.ResponseWriter, _ *http.Request) {
		sum := sha512.Sum512(sly)
		_ = json.NewEncoder(rw).Encode(map[string]any{"name": "hutch-sly", "dist-tags": map[string]string{"latest": "1.0.0"}, "versions": map[string]any{"1.0.0": map[string]any{
			"name": "hutch-sly", "version": "1.0.0", "hasInstallScript": true, "scripts": map[string]string{"postinstall": "node ask.js"},
			"dist": map[string]string{"tarball": srv.URL + "/hutch-sly.tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}}}})
	})
	mux.HandleFunc("/hutch-sly.tgz", func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(sly) })
	mux.HandleFunc("/hutch-probe.tgz", func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(tgz) })
	srv = httptest.NewTLSServer(mux)
	defer srv.Close()
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // who does not trust it says so
	const depends = "run \"r\" {\n  backend \"bwrap\" {}\n  dependencies = [\"hutch-probe@1.0.0\"]\n  language = \"javascript\"\n  command = [\"true\"]\n}\n"
	w.opt.Environ = []string{"NPM_CONFIG_REGISTRY=" + srv.URL, "NPM_CONFIG_FETCH_RETRIES=0"}
	r := w.runOn(depends)
	if r.OK || r.Error == nil || !strings.Contains(r.Error.Fix, "NODE_EXTRA_CA_CERTS") || !strings.Contains(r.Error.Detail, "CERT") {
		t.Errorf("an unknown authority: %+v", r.Error)
	}
	// The variable of another program names the authority: npm itself would not look at it.
	w.opt.Environ = []string{"NPM_CONFIG_REGISTRY=" + srv.URL, "CURL_CA_BUNDLE=" + authority(t, srv)}
	if r = w.runOn(depends); !r.OK {
		t.Errorf("a private authority: %+v", r.Error)
	}
	srv.Close()
	srv = httptest.NewServer(mux)
	defer srv.Close()
	w.opt.Environ = []string{"NPM_CONFIG_REGISTRY=" + srv.URL}
	for age, want := range map[string]string{"": "1.0.1", "  min_age = \"3d\"\n": "1.0.0"} {
		r := w.runOn("run \"r\" {\n  backend \"bwrap\" {}\n  dependencies = [\"hutch-probe@^1\"]\n  language = \"javascript\"\n" + age + "  command = [\"true\"]\n}\n")
		if !r.OK || len(r.Dependencies) != 1 {
			t.Fatalf("%s %+v", r.Cause, r.Error)
		}
		if diff := cmp.Diff([]result.Package{{Name: "hutch-probe", Version: want, Digest: "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}}, r.Dependencies[0].Fetched); diff != "" {
			t.Errorf("min_age %q: -want +got\n%s", age, diff)
		}
	}
	integrity := "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
	for _, have := range []string{integrity, "sha512-" + base64.StdEncoding.EncodeToString(make([]byte, 64))} {
		w.write("package-lock.json", fmt.Sprintf(`{"name": "x", "lockfileVersion": 3, "packages": {"": {"name": "x", "dependencies": {"hutch-probe": "^1"}},
			"node_modules/hutch-probe": {"version": "1.0.0", "bin": {"hutch-probe": "cli.js"}, "resolved": "https://registry.npmjs.org/hutch-probe.tgz", "integrity": %q}}}`, have))
		r := w.runOn("run \"r\" {\n  backend \"bwrap\" {}\n  lock_file = \"package-lock.json\"\n  language = \"javascript\"\n  command = [\"hutch-probe\", \"x\"]\n}\n")
		switch {
		case have == integrity:
			if !r.OK || r.Stdout.Text != "program x\n" || !slices.Equal(r.Dependencies[0].Packages, []string{"hutch-probe@1.0.0"}) {
				t.Errorf("the lock file: %+v %q %+v", r.Error, r.Stdout.Text, r.Dependencies)
			}
		case r.OK || r.Error == nil || !strings.Contains(r.Error.Detail, "EINTEGRITY"):
			t.Errorf("another digest: %+v", r.Error)
		}
	}
	// The code of a package reaches its registry while it is installed, and nothing else.
	quiet := w.runOn("run \"r\" {\n  backend \"bwrap\" {}\n  dependencies = [\"hutch-sly\"]\n  language = \"javascript\"\n  file \"main.js\" { content = \"console.log(require('fs').readFileSync(require.resolve('hutch-sly/got'), 'utf8'))\" }\n  entrypoint = \"main.js\"\n}\n")
	port := other.URL[strings.LastIndexByte(other.URL, ':')+1:]
	if want := "404 \nECONNREFUSED\nENOTFOUND\n403 10.1.2.3:80 is not in network.allow\n"; !quiet.OK || quiet.Stdout.Text != want || unlisted.Load() != 0 {
		t.Errorf("code of a package, beside port %s: %d requests, %q, want %q: %+v", port, unlisted.Load(), quiet.Stdout.Text, want, quiet.Error)
	}
	rec, err := w.store.Load(quiet.ID)
	if err != nil {
		t.Fatal(err)
	}
	events, err := rec.Events()
	if err != nil {
		t.Fatal(err)
	}
	decided := map[string]bool{}
	for _, e := range events {
		var d sdk.Traffic
		if e.Type == store.EventNetworkAllowed || e.Type == store.EventNetworkDenied {
			if err := json.Unmarshal(e.Data, &d); err != nil {
				t.Fatal(err)
			}
			decided[d.Name] = d.Allowed
		}
	}
	if diff := cmp.Diff(map[string]bool{"127.0.0.1": true, "other.example": false, "10.1.2.3": false}, decided); diff != "" {
		t.Errorf("what the record says of the installation: %s", diff)
	}
	for name, tc := range map[string]struct{ src, want string }{
		"require": {`file "main.js" { content = "console.log(require('hutch-probe').f())" }
  entrypoint = "main.js"`, "installed\n"},
		"import": {`file "main.mjs" { content = "import p from 'hutch-probe'; console.log(p.f())" }
  entrypoint = "main.mjs"`, "installed\n"},
		"program": {`language = "javascript"
  command = ["hutch-probe", "x"]`, "program x\n"},
		"workspace": {`workspace { source = "." }
  file "main.js" { content = "console.log(require('hutch-probe').f())" }
  entrypoint = "main.js"`, "installed\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.runOn("run \"r\" {\n  backend \"bwrap\" {}\n  dependencies = [\"hutch-probe@1.0.0\"]\n  " + tc.src + "\n}\n")
			if !r.OK || r.Stdout.Text != tc.want {
				t.Errorf("%s %q %q %+v", r.Cause, r.Stdout.Text, r.Stderr.Text, r.Error)
			}
		})
	}
}

// authority writes the certificate of the authority behind a server's to a file.
func authority(t *testing.T, srv *httptest.Server) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func npmPackage(t *testing.T) []byte {
	return npmArchive(t, [][2]string{
		{"package.json", `{"name":"hutch-probe","version":"1.0.0","main":"index.js","bin":{"hutch-probe":"cli.js"}}`},
		{"index.js", "exports.f = () => 'installed'\n"},
		{"cli.js", "#!/usr/bin/env node\nconsole.log('program', process.argv[2])\n"},
	})
}

func npmArchive(t *testing.T, files [][2]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: "package/" + f[0], Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(f[1]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestMuchOutputNeedsLittleMemory passes 256 MiB through and looks at what was allocated for it.
func TestMuchOutputNeedsLittleMemory(t *testing.T) {
	w, _ := newBwrapWorld(t)
	w.runOn("run \"r\" {\n  backend \"bwrap\" {}\n  command = [\"true\"]\n}\n") // whatever is made once
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := w.runOn("run \"r\" {\n  backend \"bwrap\" {}\n  command = [\"head\", \"-c\", \"268435456\", \"/dev/zero\"]\n  limits { output = \"1MiB\" }\n}\n")
	runtime.ReadMemStats(&after)
	if !r.OK || r.Stdout.Bytes != 256<<20 || r.Stdout.Dropped != 255<<20 {
		t.Errorf("%+v %v", r.Stdout, r.Error)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 {
		t.Errorf("%d MiB were allocated", n>>20)
	}
}

// TestPluginKilledDuringExec kills the plugin below a run.
func TestPluginKilledDuringExec(t *testing.T) {
	w, p := newBwrapWorld(t)
	b, err := p.Get(context.Background(), "bwrap")
	if err != nil {
		t.Fatal(err)
	}
	o := w.opt
	o.Store = w.store
	kill := sync.OnceFunc(func() {
		if proc, err := os.FindProcess(b.PID); err == nil {
			_ = proc.Kill()
		}
	})
	r, err := New(o).Run(context.Background(), w.load("run \"r\" {\n  backend \"bwrap\" {}\n  command = [\"sh\", \"-c\", \"echo up; exec sleep 300\"]\n}\n")[0],
		Streams{Stdout: writerFunc(func(b []byte) (int, error) { kill(); return len(b), nil })})
	if err != nil {
		t.Fatal(err)
	}
	w.check(r)
	if r.Cause != sdk.CauseBackend || r.Status != 125 || r.OK || len(r.Leaks) != 0 {
		t.Errorf("%s %d, leaks %q, %+v", r.Cause, r.Status, r.Leaks, r.Error)
	}
}
