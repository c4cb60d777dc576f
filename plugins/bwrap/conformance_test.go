package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/backendtest"
)

// TestSandboxConformance runs the suite that every backend has to pass.
func TestSandboxConformance(t *testing.T) {
	needBwrap(t)
	suite := backendtest.Suite{
		New: func() sdk.Backend { return newBackend() },
		BadConfigs: []backendtest.BadConfig{
			{Name: "binding /proc", Config: map[string]any{"ro_bind": []string{"/opt", "/proc/1"}}, Path: "ro_bind[1]"},
			{Name: "binding a path that is not clean", Config: map[string]any{"ro_bind": []string{"/opt/../root"}}, Path: "ro_bind[0]"},
			{Name: "a tiny /tmp", Config: map[string]any{"tmp_size": "1KiB"}, Path: "tmp_size"},
			{Name: "a uid beyond all", Config: map[string]any{"uid": 70000}, Path: "uid"},
		},
	}
	if few := os.Getenv("HUTCH_TEST_CHECKS"); few != "" { // to look at a few while working on them
		suite.Only = regexp.MustCompile(few)
	}
	backendtest.Run(t, suite)
}

func TestReservedPaths(t *testing.T) {
	for p, want := range map[string]bool{"/": true, "/proc": true, "/proc/1": true, "/etc": true, "/etc/ssl": false, "/usr/local": true,
		"/opt": false, "/opt/x": false, "/home": true, "/home/user/sdk": false, "/workspace/x": true, "/processor": false, "/var/tmp/x": true, "/var/lib/x": false, "/root/go": false} {
		if got := reserved(p); got != want {
			t.Errorf("%s: %v", p, got)
		}
	}
}
