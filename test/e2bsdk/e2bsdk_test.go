// Package e2bsdk holds the proof that the local E2B-compatible server is faithful: the official JavaScript SDK, pinned
// and unmodified, drives it.
package e2bsdk

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/hutch-run/hutch/plugins/e2b/e2btest"
	"github.com/hutch-run/hutch/test/e2e"
)

// TestSDK runs every case of driver.mjs.
func TestSDK(t *testing.T) {
	if testing.Short() {
		t.Skip("it installs the SDK from the npm registry")
	}
	e2e.Require(t, "npm")
	server := e2btest.ForTest(t, e2btest.Options{})

	dir := e2e.NPM(t, os.DirFS("."), "driver.mjs")
	node := exec.CommandContext(t.Context(), e2e.Node(t), "driver.mjs")
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

	seen, reported := 0, -1
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var line struct {
			Case, Error string
			Cases       int
		}
		switch err := json.Unmarshal(lines.Bytes(), &line); {
		case err == nil && line.Cases > 0:
			reported = line.Cases
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
	if seen != reported {
		t.Errorf("%d cases were heard of, and the driver reported %d", seen, reported)
	}
	for _, left := range server.Sandboxes() {
		t.Errorf("sandbox %s is left: %v", left.ID, left.Metadata)
	}
	if t.Failed() && stderr.Len() > 0 {
		t.Logf("stderr of the driver:\n%s", &stderr)
	}
}
