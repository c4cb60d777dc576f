package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/backendtest"
)

// TestSandboxConformance runs the suite that every backend has to pass.
func TestSandboxConformance(t *testing.T) {
	suite := backendtest.Suite{
		New:    func() sdk.Backend { return newBackend() },
		Config: map[string]any{"image": podmantest.Busybox(t), "pull": "never"},
		BadConfigs: []backendtest.BadConfig{
			{Name: "an image that is an option", Config: map[string]any{"image": "--privileged"}, Path: "image"},
			{Name: "an unknown pull policy", Config: map[string]any{"pull": "sometimes"}, Path: "pull"},
			{Name: "a user with a name", Config: map[string]any{"user": "root"}, Path: "user"},
			{Name: "an unknown overlay strategy", Config: map[string]any{"overlay": "fuse"}, Path: "overlay"},
			{Name: "a runtime that is a path", Config: map[string]any{"runtime": "/tmp/evil"}, Path: "runtime"},
			{Name: "a tiny /tmp", Config: map[string]any{"tmp_size": "1KiB"}, Path: "tmp_size"},
			{Name: "a tmpfs over the workspace", Config: map[string]any{"tmpfs": []string{"/var/cache", "/workspace/x"}}, Path: "tmpfs[1]"},
			{Name: "a tmpfs with options", Config: map[string]any{"tmpfs": []string{"/var/cache:suid"}}, Path: "tmpfs[0]"},
			{Name: "a capability that opens the boundary", Config: map[string]any{"cap_add": []string{"CHOWN", "SYS_ADMIN"}}, Path: "cap_add[1]"},
		},
	}
	if few := os.Getenv("HUTCH_TEST_CHECKS"); few != "" { // to look at a few while working on them
		suite.Only = regexp.MustCompile(few)
	} else {
		suite.Only = only(func(id string) bool { return os.Getenv(startedFor) == "" || again(id) })
	}
	backendtest.Run(t, suite)
}

// only is a pattern of the checks that take returns true for.
func only(take func(id string) bool) *regexp.Regexp {
	var ids []string
	for _, c := range backendtest.Checks() {
		if take(c.ID) {
			ids = append(ids, regexp.QuoteMeta(c.ID))
		}
	}
	return regexp.MustCompile("^(" + strings.Join(ids, "|") + ")$")
}

// again says whether a check can end otherwise for an ordinary user than for root, who runs them all: it looks at who
// owns what, at mounts, at the network, or at how a command is killed.
func again(id string) bool {
	group, name, _ := strings.Cut(id, "/")
	names, ok := map[string][]string{
		"end": nil, "put": nil, "plan": {"refusals"}, "mount": {"observed"}, "network": {"full", "publish", "publish-filtered"}, "layers": {"empty", "private"}, "reset": {"soft-keeps", "hard-restores"},
		"workspace": {"private-host-unchanged", "private-writes", "odd-source", "read-only-source", "shared-writes", "readonly-holds", "own-input-output", "other-group"},
	}[group]
	return ok && (names == nil || slices.Contains(names, name))
}
