//go:build unix

package command

import (
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/supervise"
)

// Environment returns the whole environment of c, NAME=VALUE each, in order: c's own, and where that is silent base and
// what every program needs. It checks c on the way: what cannot be passed on, or is no command, is a ReasonConfig
// error.
func Environment(c *sdk.Command, base map[string]string) ([]string, error) {
	env := map[string]string{"PATH": supervise.DefaultPath, "LANG": "C.UTF-8"}
	if c.TTY != nil {
		env["TERM"] = "xterm-256color"
	}
	maps.Copy(env, base)
	maps.Copy(env, c.Env)
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return nil, sdk.Errorf(sdk.ReasonConfig, "%q is no name of an environment variable", name)
		}
		list = append(list, name+"="+env[name])
	}
	switch {
	case len(c.Argv) == 0 || c.Argv[0] == "":
		return nil, sdk.Errorf(sdk.ReasonConfig, "there is no command to run")
	case c.Dir != "" && !path.IsAbs(c.Dir):
		return nil, sdk.Errorf(sdk.ReasonConfig, "the directory %q to work in is not absolute", c.Dir)
	case strings.Contains(strings.Join(append(list, c.Argv...), ""), "\x00"):
		return nil, sdk.Errorf(sdk.ReasonConfig, "the command cannot be passed on: an argument or a variable has a zero byte")
	}
	return list, nil
}

// Candidates lists the paths that execvp would try for a program, given its environment.
func Candidates(program string, env []string) []string {
	if strings.Contains(program, "/") {
		return []string{program}
	}
	search := supervise.DefaultPath
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			search = v
		}
	}
	var out []string
	for dir := range strings.SplitSeq(search, ":") {
		if dir == "" {
			dir = "." // as in any shell
		}
		out = append(out, path.Join(dir, program))
	}
	return out
}

// NotStarted is the end of a command that could not be executed, with the paths that were tried.
func NotStarted(errno syscall.Errno, tried []string) *sdk.Exit {
	code := 126
	if errno == syscall.ENOENT || errno == syscall.ENOTDIR {
		code = 127
	}
	return &sdk.Exit{Cause: sdk.CauseExited, NotStarted: true, Code: code,
		Evidence: "execve: " + errno.Error() + " (tried " + strings.Join(tried, ", ") + ")"}
}

// UsedUp is the error of a sandbox that has no processes or descriptors left to do what.
func UsedUp(what string, err error) error {
	return sdk.Errorf(sdk.ReasonQuota, "the sandbox could not %s: %w", what, err).
		WithFix("its processes or descriptors are used up: end some of its commands, or raise its limits")
}
