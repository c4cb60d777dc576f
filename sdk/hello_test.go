package sdk_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// The backend of the example works, and is as short as is said.
func TestTheExample(t *testing.T) {
	c, err := client.InProcess(plain{}, client.Options{PipeDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := context.Background()
	sb, err := c.Create(ctx, &sdk.CreateRequest{ID: "one", StateDir: t.TempDir(), Spec: sdk.Spec{ // as hutch run asks without a file
		Network: sdk.NetworkFull, Workspace: sdk.Workspace{Mode: sdk.WorkspacePrivate}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		script string
		code   int
		cause  sdk.Cause
	}{
		{"echo hello; exit 3", 3, sdk.CauseExited},
		{"echo hello; kill -KILL $$", 137, sdk.CauseSignaled},
		{"echo hello; sleep 1000", 143, sdk.CauseTimeout},
		{"trap 'exit 0' TERM; echo hello; while :; do sleep 0.1; done", 0, sdk.CauseTimeout},
	} {
		var out bytes.Buffer
		exit, err := sb.Exec(ctx, &client.Command{Argv: []string{"/bin/sh", "-c", tt.script}, Env: map[string]string{"PATH": os.Getenv("PATH")},
			Stdout: &out, Timeout: time.Second, Grace: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if exit.Code != tt.code || exit.Cause != tt.cause || out.String() != "hello\n" {
			t.Errorf("%s: got %+v and %q", tt.script, exit, out.String())
		}
	}
	text, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n >= 60 {
		t.Errorf("the example has %d lines", n)
	}
}

// The page for authors shows the example as it is tested here.
func TestThePageShowsTheExample(t *testing.T) {
	text, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/writing-a-backend.md")
	if err != nil {
		t.Fatal(err)
	}
	code, _, found := strings.Cut(string(text), "// A whole backend: its main calls Serve.")
	code = strings.Replace(code, "package sdk_test", "package main", 1) + "func main() { sdk.Serve(plain{}) }\n"
	if !found || !strings.Contains(string(page), "```go\n"+code+"```\n") {
		t.Error("docs/writing-a-backend.md does not hold the program of example_test.go")
	}
}
