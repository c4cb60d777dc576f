package client_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

func TestExecGivesBackEveryByteAndTheCode(t *testing.T) {
	c := serve(t, &processes{})
	sb := create(t, c, "one")
	var out, errs bytes.Buffer
	in := strings.Repeat("0123456789abcdef", 1<<17) // 2 MiB: more than a pipe holds
	exit, err := sb.Exec(context.Background(), &client.Command{
		Argv: []string{"/bin/sh", "-c", "cat; echo oops >&2; exit 7"}, Stdin: strings.NewReader(in), Stdout: &out, Stderr: &errs,
	})
	if err != nil {
		t.Fatal(err)
	}
	if exit.Code != 7 || exit.Cause != sdk.CauseExited {
		t.Errorf("got %+v, want code 7 and cause exited", exit)
	}
	if out.String() != in {
		t.Errorf("stdout has %d bytes, want the %d of stdin", out.Len(), len(in))
	}
	if errs.String() != "oops\n" {
		t.Errorf("stderr is %q", errs.String())
	}
}
