package supervise_test

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/hutch-run/hutch/sdk/supervise"
)

// Arguments and variables are bytes, also on their way through the init.
func TestBytesThatAreNoText(t *testing.T) {
	var out bytes.Buffer
	cmd := exec.Command("/bin/sh", "-c", `printf '%s|%s' "$1" "$V"`, "sh", "\xff\xfe")
	cmd.Env = []string{"V=caf\xe9"}
	cmd.Stdout = &out
	p, err := supervise.Start(cmd, supervise.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r := p.Wait(t.Context()); r.Code != 0 || r.Err != nil {
		t.Fatalf("%+v", r)
	}
	if got := out.String(); got != "\xff\xfe|caf\xe9" {
		t.Errorf("got %q", got)
	}
}
