package backendtest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-run/hutch/sdk/backendtest"
)

// TestO4ABackendInPython holds the example in another language to the contract, through the door that compiled plugins
// use.
func TestO4ABackendInPython(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the whole suite")
	}
	for _, program := range [][]string{{"/usr/bin/python3", "-c", "import grpc, google.protobuf"}, {"protoc", "--version"}} {
		if out, err := exec.Command(program[0], program[1:]...).CombinedOutput(); err != nil {
			if slices.Contains(strings.Split(os.Getenv("HUTCH_TEST_REQUIRE"), ","), "grpcio") {
				t.Fatalf("grpcio is required (HUTCH_TEST_REQUIRE): install python3-grpcio and protobuf-compiler: %s: %v\n%s", program[0], err, out)
			}
			t.Skipf("it needs python3-grpcio and protobuf-compiler: %s: %v\n%s", program[0], err, out)
		}
	}
	path, err := filepath.Abs("../../examples/backend-python/hutch-backend-snake")
	if err != nil {
		t.Fatal(err)
	}
	backendtest.Run(t, backendtest.Suite{
		Target:     &backendtest.Process{Path: path, StartTimeout: time.Minute},
		BadConfigs: []backendtest.BadConfig{{Name: "rude", Config: map[string]any{"greeting": "rude"}, Path: "greeting"}},
	})
}
