//go:build unix

package command

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/supervise"
)

func TestEnvironment(t *testing.T) {
	got, err := Environment(&sdk.Command{Argv: []string{"x"}, Env: map[string]string{"HOME": "/own", "A": ""}, TTY: &sdk.WindowSize{}},
		map[string]string{"HOME": "/base", "LANG": "de"})
	want := []string{"A=", "HOME=/own", "LANG=de", "PATH=" + supervise.DefaultPath, "TERM=xterm-256color"}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	for name, c := range map[string]*sdk.Command{
		"no command": {}, "an empty one": {Argv: []string{""}}, "a relative directory": {Argv: []string{"x"}, Dir: "d"},
		"a zero byte": {Argv: []string{"x", "a\x00b"}}, "one in a variable": {Argv: []string{"x"}, Env: map[string]string{"A": "\x00"}},
		"a variable without a name": {Argv: []string{"x"}, Env: map[string]string{"": "a"}}, "one with two": {Argv: []string{"x"}, Env: map[string]string{"A=B": "a"}},
	} {
		if _, err := Environment(c, nil); sdk.ReasonOf(err) != sdk.ReasonConfig {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCandidates(t *testing.T) {
	for _, tc := range []struct {
		program string
		env     []string
		want    []string
	}{
		{"./x", nil, []string{"./x"}},
		{"x", []string{"A=1", "PATH=/a::/b/"}, []string{"/a/x", "x", "/b/x"}},
		{"x", nil, []string{"/usr/local/sbin/x", "/usr/local/bin/x", "/usr/sbin/x", "/usr/bin/x", "/sbin/x", "/bin/x"}},
	} {
		if d := cmp.Diff(tc.want, Candidates(tc.program, tc.env)); d != "" {
			t.Errorf("%s %q (-want +got):\n%s", tc.program, tc.env, d)
		}
	}
}
