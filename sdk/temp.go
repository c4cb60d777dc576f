package sdk

import (
	"cmp"
	"os"
	"path/filepath"

	"github.com/hutch-run/hutch/sdk/internal/handshake"
)

// MkdirTemp makes a private directory (0700) in the directory for temporary files and returns its path. The caller
// removes it; `hutch gc` removes what a killed backend left, once the hutch that started it has ended. It is safe for
// concurrent use.
func MkdirTemp() (string, error) {
	dir, prefix := filepath.Split(cmp.Or(os.Getenv(handshake.EnvTemp), filepath.Join(os.TempDir(), "hutch-")))
	return os.MkdirTemp(dir, prefix+"*")
}
