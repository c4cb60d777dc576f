package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/config"
	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/lockfile"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
)

func open(t *testing.T) *Session {
	t.Helper()
	t.Setenv("HUTCH_BACKEND_PATH", t.TempDir())
	s, err := Open(Options{Store: store.Options{Home: t.TempDir()}, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

func TestNothingIsMadeBeforeItIsAskedFor(t *testing.T) {
	run, err := os.MkdirTemp("/tmp", "run-") // t.TempDir is too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	t.Setenv("XDG_RUNTIME_DIR", run)
	s := open(t)
	if left, _ := filepath.Glob(filepath.Join(run, "hutch/*")); len(left) > 0 {
		t.Errorf("Open made %v", left)
	}
	if _, err := s.Pool(); err != nil {
		t.Fatal(err)
	}
	if made, _ := filepath.Glob(filepath.Join(run, "hutch/*")); len(made) != 1 {
		t.Errorf("Pool made %v, want one directory", made)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(run, "hutch/*")); len(left) > 0 {
		t.Errorf("Close left %v", left)
	}
}

func TestConfigIsReadOnce(t *testing.T) {
	s := open(t)
	path := s.Store().Paths().ConfigFile()
	if err := os.WriteFile(path, []byte(`jobs = 3`), 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := s.Config()
	if err != nil || first.Jobs != 3 {
		t.Fatalf("%+v, %v", first, err)
	}
	if err := os.WriteFile(path, []byte(`nonsense`), 0o600); err != nil {
		t.Fatal(err)
	}
	var second *config.Config
	if second, err = s.Config(); err != nil || second != first {
		t.Errorf("read again: %+v, %v", second, err)
	}
}

func TestNamed(t *testing.T) {
	for src, want := range map[string]string{
		"run \"a\" {\n  backend \"bwrap\" {}\n}": "bwrap",
		"backend \"x-1\" {\n}\nbackend \"y\" {}": "x-1",
		"# backend \"no\" {}\n":                  "",
		"backend \"../evil\" {}":                 "",
		"backend \"Upper\" {}":                   "",
		"  backend\t\"tab\" {":                   "tab",
		"x = \"backend \\\"quoted\\\"\"":         "",
	} {
		got := ""
		if m := named().FindStringSubmatch(src); m != nil {
			got = m[1]
		}
		if got != want {
			t.Errorf("%q: %q, want %q", src, got, want)
		}
	}
}

func TestStartForForgivesEverything(t *testing.T) {
	s := open(t)
	dir := t.TempDir()
	good := filepath.Join(dir, "good.hcl")
	if err := os.WriteFile(good, []byte("backend \"nosuch\" {}"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.StartFor([]string{filepath.Join(dir, "missing.hcl"), dir, good})
}

func TestDestroyWithoutBackend(t *testing.T) {
	s := open(t)
	var missing *backend.NotFoundError
	if err := s.Destroy(t.Context(), store.Intent{ID: "x", Backend: "nosuch"}); !errors.As(err, &missing) {
		t.Errorf("got %v, want a NotFoundError", err)
	}
	binary := filepath.Join(t.TempDir(), "hutch-backend-nosuch")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\necho no plugin\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Destroy(t.Context(), store.Intent{ID: "x", Backend: "nosuch", Binary: binary}); err == nil {
		t.Error("a script that is no plugin destroyed a sandbox")
	}
}

func TestCheckBlocksWarnsOnceForEachBackend(t *testing.T) {
	s := open(t)
	run := func(backends ...string) *runfile.Definition {
		d := &runfile.Definition{}
		for _, b := range backends {
			d.Backends = append(d.Backends, runfile.NewBackend(b))
		}
		return d
	}
	ds, err := s.CheckBlocks(t.Context(), []*runfile.Definition{run("a", "b"), run("b")})
	if err != nil {
		t.Fatal(err)
	}
	if len(ds) != 2 || ds.HasErrors() || ds[0].Severity != diag.Warning {
		t.Errorf("got %v, want a warning for each of a and b", ds)
	}
}

// The same version again would speak the same protocol again.
func TestLockOfAnotherProtocol(t *testing.T) {
	l := &locks{own: "/home/lock.hcl", runs: map[string]string{"/p/lock.hcl": "ci.hcl"}}
	b := &lockfile.Backend{Name: "acme", Source: "reg.example/acme", Version: "2.0.0", Protocols: []int{7}, Platforms: []lockfile.Platform{{Name: backend.Platform}}}
	for path, want := range map[string]string{
		"/home/lock.hcl": "run hutch backend install reg.example/acme for a newer version, or another version of hutch",
		"/p/lock.hcl":    "run hutch init -upgrade ci.hcl, or another version of hutch",
	} {
		_, err := l.selection(path, b)
		var lock *backend.LockError
		if !errors.As(err, &lock) || lock.Fix != want {
			t.Errorf("%s: %v, want the fix %q", path, err, want)
		}
	}
}
