package main

import (
	"os"
	"path"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/supervise/microinit"
	"github.com/hutch-run/hutch/sdk/visible"
)

// defaultPath is the PATH of a command that is given none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

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

// commandArgs turns a command into the arguments of pid 1. It returns the paths
// that will be tried, for a message.
func commandArgs(c *sdk.Command) (args, candidates []string, err error) {
	env := map[string]string{"HOME": homePath, "PATH": defaultPath, "LANG": "C.UTF-8"}
	if c.TTY != nil {
		env["TERM"] = "xterm-256color"
	}
	for k, v := range c.Env {
		env[k] = v
	}
	list := make([]string, 0, len(env))
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return nil, nil, sdk.Errorf(sdk.ReasonConfig, "%s is no name of an environment variable", strconv.Quote(k))
		}
		list = append(list, k+"="+v)
	}
	sort.Strings(list)
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return nil, nil, sdk.Errorf(sdk.ReasonConfig, "there is no command to run")
	}
	dir := c.Dir
	if dir == "" {
		dir = workspacePath
	}
	candidates = lookup(c.Argv[0], env["PATH"])
	args, err = microinit.Args(c.TTY != nil, dir, candidates, list, c.Argv)
	if err != nil {
		return nil, nil, sdk.Errorf(sdk.ReasonConfig, "the command cannot be passed on: %w", err)
	}
	return append([]string{initPath}, args...), candidates, nil
}

// lookup lists the paths that execvp would try.
func lookup(name, searchPath string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	var out []string
	for _, dir := range strings.Split(searchPath, ":") {
		if dir == "" {
			dir = "." // as in any shell
		}
		out = append(out, path.Join(dir, name))
	}
	return out
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
