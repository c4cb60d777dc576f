package main

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/sdk"
)

// TestObserve has a command name what is mounted, what only the host has, and what the image has in its own way.
func TestObserve(t *testing.T) {
	dir, err := os.MkdirTemp("/var/lib", "hutch-observe-") // and not /tmp, which no mount can show
	if err != nil {
		t.Skip("root's alone; the conformance suite looks at what ordinary users' commands open")
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a": "a\n", "vain": "x"} {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := newSandbox(t, newBackend(), sdk.Spec{Config: config(t), Mounts: []sdk.Mount{{Source: dir, Target: "/m", ReadOnly: true}}})
	r := sh(t, s, "cat /m/a /etc/hostname /etc/debian_version; (echo new > /m/b) 2>/dev/null; cat "+dir+"/vain; mkdir "+dir+"/made",
		func(c *sdk.Command) { c.Observe = true })
	want := []sdk.FileUse{{Path: "/m/a", Found: true}, {Path: "/m/b", Found: true, Write: true},
		{Path: dir + "/made", Write: true}, {Path: dir + "/vain"}}
	if diff := cmp.Diff(want, r.Files); diff != "" {
		t.Errorf("-want +got:\n%s\n%s", diff, r.err)
	}
	if again := sh(t, s, "cat /m/a"); again.out != "a\n" || again.Files != nil {
		t.Errorf("a command that is not observed: %q %v", again.out, again.Files)
	}
}
