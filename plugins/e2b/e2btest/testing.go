package e2btest

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// TB is what ForTest needs of a *testing.T or *testing.B.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// ForTest starts a server that is closed with the test. Where bubblewrap is missing or cannot work the test is skipped,
// or fails if HUTCH_TEST_REQUIRE lists bwrap.
func ForTest(t TB, o Options) *Server {
	t.Helper()
	if out, err := exec.Command("bwrap", "--unshare-user", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "true").CombinedOutput(); err != nil {
		if slices.Contains(strings.Split(os.Getenv("HUTCH_TEST_REQUIRE"), ","), "bwrap") {
			t.Fatalf("bwrap is required (HUTCH_TEST_REQUIRE): %v %s", err, out)
		}
		t.Skipf("bwrap does not work here: %v %s", err, out)
	}
	s, err := Start(context.Background(), o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the E2B-compatible server: %v", err)
		}
	})
	return s
}
