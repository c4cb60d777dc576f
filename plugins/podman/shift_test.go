package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/hostids"
)

// TestS1HostID looks who commands are to the host when root runs hutch, and whether they can work in a project of
// root's.
func TestS1HostID(t *testing.T) {
	if !hostids.Root() {
		t.Skip("an ordinary user's containers have a user namespace of Podman's")
	}
	b := newBackend()
	for over, modes := range map[string][]sdk.WorkspaceMode{
		overlayNative: {sdk.WorkspacePrivate, sdk.WorkspaceReadOnly, sdk.WorkspaceShared},
		overlayCopy:   {sdk.WorkspacePrivate}, // the others have no overlay
	} {
		for _, mode := range modes {
			t.Run(over+" "+string(mode), func(t *testing.T) {
				dir := project(t)
				if err := os.Chmod(filepath.Join(dir, "a.txt"), 0o600); err != nil {
					t.Fatal(err)
				}
				spec := private(t, dir)
				spec.Workspace.Mode = mode
				configOf(&spec).Overlay = over
				s := newSandbox(t, b, spec)
				if got := must(t, s, "id -u; cat a.txt; stat -c %u a.txt"); got != "0\na\n0\n" {
					t.Errorf("inside: %q", got)
				}
				for _, user := range []string{"", "1"} { // another one by podman exec
					r := sh(t, s, "cat /proc/self/uid_map", func(c *sdk.Command) { c.User = user })
					var inside, outside, n int
					if _, err := fmt.Sscan(r.out, &inside, &outside, &n); err != nil || inside != 0 || outside < hostids.Base(0) || n != hostids.OnDisk {
						t.Errorf("user %q has the namespace %q %q", user, r.out, r.err)
					}
				}
				if mode == sdk.WorkspaceReadOnly {
					return
				}
				must(t, s, "echo new > new; echo more >> a.txt")
				st, err := os.Stat(filepath.Join(dir, "new"))
				if shared := mode == sdk.WorkspaceShared; shared != (err == nil) || shared && who(st) != 0 {
					t.Errorf("the project has %v, %v", st, err)
				}
			})
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), shiftedDir+"/test-"+fmt.Sprint(os.Getpid())) {
		t.Errorf("mounts are left: %v\n%s", err, mounts)
	}
}

func who(fi os.FileInfo) uint32 { return fi.Sys().(*syscall.Stat_t).Uid }
