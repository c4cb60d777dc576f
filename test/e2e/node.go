package e2e

import (
	"context"
	"embed"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/semver"
)

// oldestNode is the first version of Node.js that the official clients used here take. Debian 12 has an older one.
const oldestNode = "v20.18.1"

//go:embed node/package.json node/package-lock.json
var nodePackage embed.FS

// Node is a Node.js that is new enough: the machine's own, else one from the npm registry.
func Node(t *testing.T) string {
	t.Helper()
	v, err := exec.Command("node", "--version").Output()
	if err == nil && semver.Compare(strings.TrimSpace(string(v)), oldestNode) >= 0 {
		return "node"
	}
	t.Logf("Node.js %s is needed, this machine has %q (%v): one is brought from the npm registry", oldestNode, v, err)
	from, err := fs.Sub(nodePackage, "node")
	if err != nil {
		t.Fatal(err)
	}
	// one of its optional dependencies, by processor
	dir := npmCI(t, from)
	// older npm makes no link in .bin
	found, err := filepath.Glob(filepath.Join(dir, "node_modules", "node-linux-*", "bin", "node"))
	if err != nil || len(found) != 1 {
		t.Fatalf("npm brought no Node.js for this machine: %q %v", found, err)
	}
	return found[0]
}

// NPM has npm install what the lock file in from says, without what is optional, in its own directory that holds a
// copy of files too.
func NPM(t *testing.T, from fs.FS, files ...string) string {
	t.Helper()
	dir := npmCI(t, from, "--omit=dev", "--omit=optional")
	for _, name := range files {
		copyInto(t, dir, from, name)
	}
	return dir
}

func npmCI(t *testing.T, from fs.FS, args ...string) string {
	t.Helper()
	Require(t, "npm")
	dir := t.TempDir()
	copyInto(t, dir, from, "package.json")
	copyInto(t, dir, from, "package-lock.json")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", append([]string{"ci", "--ignore-scripts", "--no-audit", "--no-fund",
		"--no-progress"}, args...)...)
	npm.Dir = dir
	npm.WaitDelay = time.Second
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	return dir
}

func copyInto(t *testing.T, dir string, from fs.FS, name string) {
	t.Helper()
	b, err := fs.ReadFile(from, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
		t.Fatal(err)
	}
}
