package e2e

import (
	"os"
	"os/user"
	"strconv"
	"testing"
)

// Rootless returns the ordinary user with subordinate ids as whom root tests rootless Podman: hutch-test, whom
// scripts/setup makes, or the one that HUTCH_TEST_ROOTLESS_USER names. Without one the test is skipped, or fails where
// podman is required.
func Rootless(t *testing.T) (uid, gid int, home string) {
	t.Helper()
	name := "hutch-test"
	if n := os.Getenv("HUTCH_TEST_ROOTLESS_USER"); n != "" {
		name = n
	}
	u, err := user.Lookup(name)
	if err != nil {
		Missing(t, "podman", "there is no user "+name+" to be rootless as: "+err.Error()+" (useradd --create-home "+name+")")
	}
	uid, err = strconv.Atoi(u.Uid)
	if err != nil {
		t.Fatal(err)
	}
	if gid, err = strconv.Atoi(u.Gid); err != nil {
		t.Fatal(err)
	}
	return uid, gid, u.HomeDir
}
