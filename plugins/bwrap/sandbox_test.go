package main

import (
	"testing"

	"github.com/hutch-run/hutch/sdk"
)

func TestSandboxRuns(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]string{"a.txt": "hello\n", "sub/b.txt": "b\n"})
	s := newSandbox(t, sdk.Spec{Workspace: sdk.Workspace{Source: dir, Mode: sdk.WorkspacePrivate}})
	before := picture(t, dir)
	r := sh(t, s, "id; pwd; ls -la; cat a.txt; echo new > a.txt; rm sub/b.txt; echo out > output/x; cat a.txt; echo oops >&2; exit 7")
	t.Logf("%+v\n%s\n%s", r.Exit, r.out, r.err)
	if r.Cause != sdk.CauseExited || r.Code != 7 || r.err != "oops\n" {
		t.Errorf("got %+v, stderr %q", r.Exit, r.err)
	}
	if after := picture(t, dir); after != before {
		t.Errorf("the host's directory changed:\n%s\nwas\n%s", after, before)
	}
}
