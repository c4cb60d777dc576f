// Package testbackend builds backends for tests of packages that must not import them.
package testbackend

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hutch-run/hutch/internal/gobuild"
)

var (
	mu   sync.Mutex
	dirs = map[string]string{} // by name
)

// Dir is a directory that holds the backend name of this tree and nothing else. It is built once for all tests of a
// package, whose TestMain calls [Run].
func Dir(t testing.TB, name string) string {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	if dir := dirs[name]; dir != "" {
		return dir
	}
	dir, err := os.MkdirTemp("", "hutch-test-backend-")
	if err != nil {
		t.Fatal(err)
	}
	if err := gobuild.Build(filepath.Join(dir, "hutch-backend-"+name), "github.com/hutch-run/hutch/plugins/"+name); err != nil {
		os.RemoveAll(dir)
		t.Fatal(err)
	}
	dirs[name] = dir
	return dir
}

// Run runs the tests of a package and removes what was built.
func Run(m *testing.M) int {
	defer func() {
		for _, dir := range dirs {
			os.RemoveAll(dir)
		}
	}()
	return m.Run()
}
