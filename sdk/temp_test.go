package sdk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/sdk/internal/handshake"
)

// TestL13MkdirTemp: a temporary directory has the name by which the host's gc knows whose it is.
func TestL13MkdirTemp(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "hutch-backend.tmp.1.2.3.0123")
	for _, want := range []string{prefix, filepath.Join(os.TempDir(), "hutch-")} {
		t.Setenv(handshake.EnvTemp, prefix)
		if want != prefix {
			t.Setenv(handshake.EnvTemp, "")
		}
		dir, err := MkdirTemp()
		if err != nil {
			t.Fatal(err)
		}
		defer os.Remove(dir)
		if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 || !strings.HasPrefix(dir, want) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
