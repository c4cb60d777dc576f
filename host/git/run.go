// Package git drives the git of this host: in the user's own repository, and in private ones that hutch makes for a
// moment.
//
// It is never run inside anything that a sandbox can write. What comes back from one is a bundle, which package bundle
// takes apart in a private repository first.
//
// Every call gets the same surroundings: no hooks, no file system monitor, no credential helper, no pager, no editor,
// no question on the terminal, no transport but files, no lazy fetch, no replaced objects, no maintenance, and nothing
// of the environment but PATH and what names the user's own configuration. Hooks of the user are left out too, because
// core.hooksPath and hook managers lead into the work tree, which pulled commits change.
package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/keep"
	"github.com/hutch-run/hutch/host/termsafe"
)

// ErrMissing says that git is not installed.
var ErrMissing = errors.New("git is not installed on this host")

// Error is a git that ended with something else than 0.
type Error struct {
	Command string // such as "merge"
	Code    int    // exit code; -1 for a signal
	Stderr  string // what it said, escaped; the end of it
}

// Error implements error with the line that says most.
func (e *Error) Error() string {
	if line := said(e.Stderr); line != "" {
		return "git " + e.Command + ": " + line
	}
	return fmt.Sprintf("git %s: exit code %d", e.Command, e.Code)
}

// said is the first line that git calls fatal or an error, else the last line.
func said(stderr string) string {
	last := ""
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		for _, word := range []string{"fatal: ", "error: "} {
			if rest, ok := strings.CutPrefix(line, word); ok {
				return rest
			}
		}
		if line != "" {
			last = line
		}
	}
	return last
}

// code is the exit code that an error of a call stands for; -1 for other errors.
func code(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return -1
}

// maxStderr is how much of what git says is kept: the end.
const maxStderr = 16 << 10

// maxOutput bounds what a call may print: more is an error of the call. What may be larger is streamed.
const maxOutput = 64 << 20

// settings are stronger than every configuration file.
var settings = []string{
	"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.pager=cat", "core.askPass=", "core.quotePath=true",
	"core.alternateRefsCommand=",
	"credential.helper=", "gc.auto=0", "maintenance.auto=false", "submodule.recurse=false",
	"fetch.recurseSubmodules=false", "fetch.prune=false",
	"fetch.fsckObjects=true", "fetch.writeCommitGraph=false", "log.showSignature=false", "diff.external=",
	"merge.autoStash=false", "protocol.allow=never",
	"protocol.file.allow=always", "commit.gpgSign=false", "color.ui=false", "advice.diverging=false",
	"status.showUntrackedFiles=all",
}

// Tool is a git that works in one directory. It is safe for concurrent use.
type Tool struct {
	Dir     string // absolute: a work tree, or a repository without one
	Private bool   // a repository of hutch's own: the user's configuration says nothing about it
}

// command prepares a call. Arguments are never put together by a shell, and every value among them follows an option or
// stands behind "--".
func (t Tool) command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	path, err := exec.LookPath("git")
	if err != nil {
		return nil, ErrMissing
	}
	argv := []string{"--no-pager", "--literal-pathspecs"}
	for _, s := range settings {
		argv = append(argv, "-c", s)
	}
	cmd := exec.CommandContext(ctx, path, append(argv, args...)...)
	cmd.Dir = t.Dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it removes its lock files then
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC", "GIT_CONFIG_NOSYSTEM=1", "GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0",
		"GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=file", "GIT_PROTOCOL_FROM_USER=0",
		"GIT_ASKPASS=true", "SSH_ASKPASS=true", "GIT_EDITOR=false",
		"GIT_SSH_COMMAND=false", "GIT_ADVICE=0",
	}
	if t.Private {
		cmd.Env = append(cmd.Env, "HOME=/nonexistent", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CEILING_DIRECTORIES=/",
			"GIT_DIR=.")
		return cmd, nil
	}
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	// It is trusted as the file in HOME is. A relative path would name a file in the work tree, which a pull may bring.
	if v, ok := os.LookupEnv("GIT_CONFIG_GLOBAL"); ok && (v == "" || filepath.IsAbs(v)) {
		cmd.Env = append(cmd.Env, "GIT_CONFIG_GLOBAL="+v)
	}
	return cmd, nil
}

// Call is one call with all that can be said about it.
type Call struct {
	Stdin  io.Reader // nil is empty
	Stdout io.Writer // nil collects it, up to 64 MiB
	Env    []string  // on top of the usual, as NAME=VALUE
}

// Run calls git and returns what it printed, without the end of the last line.
func (t Tool) Run(ctx context.Context, args ...string) (string, error) {
	return t.Do(ctx, Call{}, args...)
}

// Do is Run with streams. A git that fails is an [*Error].
func (t Tool) Do(ctx context.Context, c Call, args ...string) (string, error) {
	cmd, err := t.command(ctx, args...)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	errs := keep.Tail{Max: maxStderr}
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = c.Stdin, &keep.Limit{W: &out, Max: maxOutput}, &errs,
		append(cmd.Env, c.Env...)
	if c.Stdout != nil {
		cmd.Stdout = c.Stdout
	}
	err = cmd.Run()
	if cause := context.Cause(ctx); cause != nil {
		return "", cause
	}
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		said, _ := errs.Bytes()
		return "", &Error{Command: args[0], Code: ended.ExitCode(), Stderr: termsafe.String(string(said))}
	case err != nil:
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}
