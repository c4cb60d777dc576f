package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/backendtest"
)

// TestConformance runs the suite that every backend has to pass.
func TestConformance(t *testing.T) {
	if err := supported(); err != nil {
		t.Skip(err)
	}
	suite := backendtest.Suite{
		New: func() sdk.Backend { return &backend{} },
		BadConfigs: []backendtest.BadConfig{
			{Name: "reading /proc", Config: map[string]any{"ro_paths": []string{"/opt", "/proc/1"}}, Path: "ro_paths[1]"},
			{Name: "reading a path that is not clean", Config: map[string]any{"ro_paths": []string{"/opt/../root"}}, Path: "ro_paths[0]"},
			{Name: "git is a word", Config: map[string]any{"git": "often"}, Path: "git"},
		},
	}
	if few := os.Getenv("HUTCH_TEST_CHECKS"); few != "" { // to look at a few while working on them
		suite.Only = regexp.MustCompile(few)
	}
	backendtest.Run(t, suite)
}
