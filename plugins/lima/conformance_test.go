package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/backendtest"
)

// TestConformance runs the suite that every backend has to pass: on the stand-in, or with HUTCH_TEST_LIMA=1 on a real
// VM.
func TestConformance(t *testing.T) {
	needVM(t)
	suite := backendtest.Suite{
		New:    func() sdk.Backend { return newBackend() },
		Config: testConfig(t), StandIn: os.Getenv(realVariable) != "1",
		BadConfigs: []backendtest.BadConfig{
			{Name: "a name that is an option", Config: map[string]any{"instance": "--all"}, Path: "instance"},
			{Name: "a name that leads elsewhere", Config: map[string]any{"instance": "../x"}, Path: "instance"},
			{Name: "an image that is no path", Config: map[string]any{"image": "debian"}, Path: "image"},
			{Name: "a kernel without an image", Config: map[string]any{"kernel": "/boot/vmlinuz"}, Path: "kernel"},
			{Name: "no processors", Config: map[string]any{"cpus": 0}, Path: "cpus"},
			{Name: "a tiny memory", Config: map[string]any{"memory": "1MiB"}, Path: "memory"},
			{Name: "an unknown mount type", Config: map[string]any{"mount_type": "nfs"}, Path: "mount_type"},
			{Name: "an empty provision script", Config: map[string]any{"provision": []string{"true", " "}}, Path: "provision[1]"},
			{Name: "a start without time", Config: map[string]any{"start_timeout": "1s"}, Path: "start_timeout"},
		},
	}
	if few := os.Getenv("HUTCH_TEST_CHECKS"); few != "" { // to look at a few while working on them
		suite.Only = regexp.MustCompile(few)
	}
	backendtest.Run(t, suite)
}
