// Package e2e has what tests of the whole program share: they build hutch and
// its backends once and run them as users do.
package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/internal/gobuild"
	"github.com/hutch-run/hutch/sdk/supervise/procstat"
)

// Ordinary is the uid of a user who is nobody in particular: no entry in the
// password database, no home, no delegated cgroup.
const Ordinary = 42424

// Dir is where [Main] put bin/hutch and libexec/hutch/….
var Dir string

// sources looks at them while tests run, which [Main] does not.
var sources = sync.OnceValue(gobuild.Sources)

// Hutch is the path of the command under test.
func Hutch() string {
	if err := sources(); err != nil {
		panic(err)
	}
	return filepath.Join(Dir, "bin", "hutch")
}

// Main builds hutch, its bwrap backend and more (path below Dir -> package) into
// a directory that every user may enter, runs the tests and removes it.
func Main(m *testing.M, more map[string]string) int {
	dir, err := os.MkdirTemp("/var/tmp", "hutch-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	Dir = dir
	const module = "github.com/hutch-run/hutch/"
	targets := map[string]string{"bin/hutch": module + "cmd/hutch",
		"libexec/hutch/hutch-backend-bwrap": module + "plugins/bwrap"}
	for out, pkg := range more {
		targets[out] = module + pkg
	}
	for out, pkg := range targets {
		if err := gobuild.Build(filepath.Join(dir, out), pkg); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

// Require skips the test where a tool is missing, and fails it where
// HUTCH_TEST_REQUIRE (a comma-separated list) names that tool.
func Require(t testing.TB, tool string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		Missing(t, tool, tool+" is not installed")
	}
}

// Missing skips the test because something is not there, and fails it where
// HUTCH_TEST_REQUIRE names that thing.
func Missing(t testing.TB, what, why string) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("HUTCH_TEST_REQUIRE"), ","), what) {
		t.Fatalf("%s is required (HUTCH_TEST_REQUIRE): %s", what, why)
	}
	t.Skip(why)
}

// Users lists who to run as: an ordinary user, and root where we are root.
func Users() map[string]int {
	if os.Getuid() == 0 {
		return map[string]int{"root": 0, "user": Ordinary}
	}
	return map[string]int{"user": os.Getuid()}
}

// Marked returns the processes that carry marker on their command line.
func Marked(marker string) []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p)))
		if err != nil || pid == os.Getpid() {
			continue
		}
		if b, err := os.ReadFile(p); err == nil && bytes.Contains(b, []byte(marker)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// KillMarked ends what a failed test would leave running.
func KillMarked(marker string) {
	for _, pid := range Marked(marker) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// Ended reports whether pid is gone or a zombie.
func Ended(pid int) bool { return !procstat.Alive(pid) }

// Eventually polls until ok, for at most d, and reports whether it became so.
func Eventually(d time.Duration, ok func() bool) bool {
	deadline := time.After(d)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok() {
			return true
		}
		select {
		case <-tick.C:
		case <-deadline:
			return false
		}
	}
}
