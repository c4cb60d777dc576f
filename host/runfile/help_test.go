package runfile

import (
	"net"
	"testing"

	"github.com/hutch-run/hutch/host/diag"
)

var testStyle = diag.Style{Width: 100}

// listen makes a socket in the file system.
func listen(t *testing.T, path string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}
