package main

import (
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/hutch-run/hutch/sdk/visible"
)

// bwrapArgs are the options of bwrap that are the same for each command of a
// sandbox. The root is ready made, so that bwrap has little to mount: see layout.
func bwrapArgs(uid int, network bool) []string {
	id := strconv.Itoa(uid)
	args := []string{
		"--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try",
		"--uid", id, "--gid", id, "--hostname", "hutch", "--disable-userns", "--cap-drop", "ALL",
		"--die-with-parent", "--as-pid-1", "--clearenv",
	}
	if !network { // else the holder makes it
		args = append(args, "--unshare-net")
	}
	// The mounts below the root have their flags already; device nodes are bound one by one.
	args = append(args, "--dev-bind", inRoot, "/", "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys")
	for _, m := range masks() {
		args = append(args, "--ro-bind", m.with, m.path)
	}
	return append(args, "--chdir", "/")
}

// mask is an option of bwrap that lays nothing over a path.
type mask struct{ with, path string }

// masks lists what this kernel has of [visible.Masked] below /proc; of /sys commands see what layout.show adds.
var masks = sync.OnceValue(func() (out []mask) {
	for _, p := range visible.Masked {
		st, err := os.Lstat(p)
		switch {
		case err != nil || !strings.HasPrefix(p, "/proc/"):
		case st.IsDir():
			out = append(out, mask{inRoot + emptyPath, p})
		default:
			out = append(out, mask{inRoot + "/dev/null", p})
		}
	}
	return out
})
