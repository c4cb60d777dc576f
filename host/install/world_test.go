package install

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-version"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/install/careful"
	"github.com/hutch-run/hutch/host/install/oci"
	"github.com/hutch-run/hutch/host/lockfile"
	"github.com/hutch-run/hutch/host/release"
	"github.com/hutch-run/hutch/host/runfile"
)

// world is a project directory, a place to install to, and a directory of releases.
type world struct {
	*Installer
	t       *testing.T
	project string
	dist    string

	mu    sync.Mutex
	notes []string
}

// openHere works with a registry in this process, as the helper does in its own.
func openHere(ref string) (Registry, error) {
	return oci.Open(ref, careful.NewClient(nil, time.Minute))
}

// here is the platform that tests install for, whatever they run on.
const here = "linux/amd64"

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{t: t, project: filepath.Join(dir, "project"), dist: filepath.Join(dir, "project", "dist")}
	w.Installer = &Installer{Registry: openHere, Dir: filepath.Join(dir, "installed"), Platform: here, Note: func(name, text string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.notes = append(w.notes, name+": "+text)
	}}
	if err := os.MkdirAll(w.dist, 0o755); err != nil {
		t.Fatal(err)
	}
	return w
}

// release makes a release of a backend called acme for two platforms. The program is a few bytes of text.
func (w *world) release(version string) *release.Manifest {
	w.t.Helper()
	var builds []release.Build
	for _, p := range []string{here, "darwin/arm64"} {
		path := filepath.Join(w.t.TempDir(), "program")
		w.write(path, "#!/bin/sh\necho "+version+" for "+p+"\n", 0o755)
		license := filepath.Join(filepath.Dir(path), "LICENSE")
		w.write(license, "do what you like\n", 0o644)
		builds = append(builds, release.Build{Platform: p, Binary: path, Extra: []string{license}})
	}
	m, err := release.Pack(w.dist, "acme", version, []int{1}, builds)
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func (w *world) write(path, content string, mode os.FileMode) {
	w.t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		w.t.Fatal(err)
	}
}

// requires is a run file of the project that requires acme.
func (w *world) requires(source, constraint string) *runfile.RunFile {
	w.t.Helper()
	r := runfile.RequiredBackend{Name: "acme", Source: source, Version: constraint, Range: diag.Range{File: "ci.hcl", Start: diag.Pos{Line: 3, Column: 5}}}
	if constraint != "" {
		c, err := version.NewConstraint(constraint)
		if err != nil {
			w.t.Fatal(err)
		}
		r.Constraints = c
	}
	return &runfile.RunFile{Path: "ci.hcl", Dir: w.project, RequiredBackends: []runfile.RequiredBackend{r}}
}

func (w *world) init(o InitOptions, files ...*runfile.RunFile) ([]Initialized, error) {
	return w.Init(context.Background(), files, o)
}

// must is init that works, for one backend.
func (w *world) must(o InitOptions, files ...*runfile.RunFile) Initialized {
	w.t.Helper()
	got, err := w.init(o, files...)
	if err != nil {
		w.t.Fatal(err)
	}
	if len(got) != 1 {
		w.t.Fatalf("got %+v", got)
	}
	return got[0]
}

// refused is init that does not work; nothing may be left of it.
func (w *world) refused(want string, o InitOptions, files ...*runfile.RunFile) {
	w.t.Helper()
	before := w.lock()
	_, err := w.init(o, files...)
	if err == nil {
		w.t.Errorf("it was taken, want %q", want)
		return
	}
	if !strings.Contains(err.Error(), want) {
		w.t.Errorf("got %q, want %q", err, want)
	}
	if !bytes.Equal(before, w.lock()) {
		w.t.Errorf("the lock file was changed:\n%s", w.lock())
	}
	w.clean()
}

// clean checks that nothing temporary is left.
func (w *world) clean() {
	w.t.Helper()
	left, _ := filepath.Glob(filepath.Join(w.Dir, tmpPrefix+"*"))
	if len(left) > 0 {
		w.t.Errorf("left: %v", left)
	}
}

func (w *world) lock() []byte {
	b, err := os.ReadFile(filepath.Join(w.project, lockfile.Name))
	if err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}
	return b
}

func (w *world) program(path string) string {
	w.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}
