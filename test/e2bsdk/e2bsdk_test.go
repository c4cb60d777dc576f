// Package e2bsdk holds the proof that the local E2B-compatible server is faithful: the official JavaScript SDK, pinned
// and unmodified, drives it.
package e2bsdk

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/semver"

	"github.com/hutch-run/hutch/plugins/e2b/e2btest"
	"github.com/hutch-run/hutch/test/e2e"
)

// oldest is the first version of Node.js that the SDK takes.
const oldest = "v20.18.1"

// TestSDK runs every case of driver.mjs.
func TestSDK(t *testing.T) {
	if testing.Short() {
		t.Skip("it installs the SDK from the npm registry")
	}
	e2e.Require(t, "npm")
	server := e2btest.ForTest(t, e2btest.Options{})

	dir := install(t, ".", "driver.mjs")
	node := exec.CommandContext(t.Context(), nodeJS(t), "driver.mjs")
	node.Dir = dir
	node.Env = append(os.Environ(), server.Env()...)
	node.WaitDelay = time.Minute
	var stderr bytes.Buffer
	node.Stderr = &stderr
	out, err := node.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	bound := time.AfterFunc(8*time.Minute, func() { node.Process.Kill() })
	defer bound.Stop()

	seen, told := 0, -1
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var line struct {
			Case, Error string
			Cases       int
		}
		switch err := json.Unmarshal(lines.Bytes(), &line); {
		case err == nil && line.Cases > 0:
			told = line.Cases
		case err == nil && line.Case != "":
			seen++
			t.Run(line.Case, func(t *testing.T) {
				if line.Error != "" {
					t.Error(line.Error)
				}
			})
		default:
			t.Errorf("the driver said: %s", lines.Text())
		}
	}
	if err := node.Wait(); err != nil || lines.Err() != nil {
		t.Errorf("node: %v %v\n%s", err, lines.Err(), &stderr)
	}
	if seen != told {
		t.Errorf("%d cases were heard of, and the driver told of %d", seen, told)
	}
	for _, left := range server.Sandboxes() {
		t.Errorf("sandbox %s is left: %v", left.ID, left.Metadata)
	}
	if t.Failed() && stderr.Len() > 0 {
		t.Logf("stderr of the driver:\n%s", &stderr)
	}
}

// nodeJS is the machine's Node.js, or a pinned one from the npm registry where that is missing or too old: Debian 12
// has 18.
func nodeJS(t *testing.T) string {
	t.Helper()
	v, err := exec.Command("node", "--version").Output()
	if err == nil && semver.Compare(strings.TrimSpace(string(v)), oldest) >= 0 {
		return "node"
	}
	t.Logf("the SDK needs Node.js %s, this machine has %q (%v): one is brought from the npm registry", oldest, v, err)
	return filepath.Join(install(t, "node"), "node_modules", ".bin", "node")
}

// install has npm install what the lock file in from says, in a directory of its own that holds a copy of files too.
func install(t *testing.T, from string, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range append([]string{"package.json", "package-lock.json"}, files...) {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-progress")
	npm.Dir = dir
	npm.WaitDelay = time.Second
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	return dir
}
