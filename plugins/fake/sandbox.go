package main

import (
	"context"
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/command"
	"github.com/hutch-run/hutch/sdk/supervise"
)

// sandbox is a few directories and a group of processes.
type sandbox struct {
	b    *backend
	id   string
	st   *state
	turn chan struct{} // holds one token: of the command that runs, with the lie serial
}

func (s *sandbox) handle() sdk.Handle      { return handle(s.id, s.st) }
func (s *sandbox) path(name string) string { return filepath.Join(s.st.Dir, name) }

// Ready implements [sdk.Sandbox].
func (s *sandbox) Ready() sdk.Ready {
	r := sdk.Ready{Workspace: s.st.Workspace, Output: s.path("output"), Holds: s.st.Holds}
	if s.st.Input {
		r.Input = s.path("input")
	}
	r.Layers, r.Exchange = s.layers(), s.exchange()
	return r
}

// exchange is one directory, which has the same path for everybody.
func (s *sandbox) exchange() *sdk.Exchange {
	dir := s.path("exchange")
	switch cfg := &s.st.Config; {
	case cfg.lies("exchange_missing"):
		return &sdk.Exchange{Host: s.path("nowhere"), Guest: s.path("nowhere")}
	case cfg.lies("exchange_apart"):
		return &sdk.Exchange{Host: dir, Guest: s.path("home")}
	case cfg.Exchange:
		return &sdk.Exchange{Host: dir, Guest: dir}
	}
	return nil
}

// layers reports a workspace that is not a copy of its source, whose differences no layer holds.
func (s *sandbox) layers() *sdk.Layers {
	switch cfg := &s.st.Config; {
	case cfg.lies("layers_missing"):
		return &sdk.Layers{Upper: s.path("nowhere")}
	case cfg.lies("layers_stale"):
		return &sdk.Layers{Lower: s.st.Source, Upper: s.path("nothing")}
	case s.st.Shared:
		return &sdk.Layers{Lower: s.st.Source}
	case s.st.Source == "":
		return &sdk.Layers{Upper: s.st.Workspace}
	}
	return nil
}

// Inspect implements [sdk.Inspector].
func (s *sandbox) Inspect(context.Context) (sdk.Status, error) {
	s.st.Config.fault("inspect")
	if _, ok := lookup(s.id); !ok {
		return sdk.Status{State: sdk.StateGone}, nil
	}
	if s.stopped() && !s.st.Config.lies("stop_unseen") {
		return sdk.Status{State: sdk.StateAsleep}, nil
	}
	return sdk.Status{State: sdk.StateReady, Details: map[string]string{"dir": s.st.Dir, "marker": s.st.Config.Marker}},
		nil
}

// Exec implements [sdk.Sandbox].
func (s *sandbox) Exec(ctx context.Context, c *sdk.Command) (*sdk.Exit, error) {
	cfg := &s.st.Config
	cfg.junk()
	if s.stopped() {
		if cfg.lies("stop_deaf") {
			return nil, sdk.Errorf(sdk.ReasonUnavailable, "the sandbox %s is stopped", s.id)
		}
		if err := s.Start(ctx, func(string, int64, int64) {}); err != nil {
			return nil, err
		}
	}
	if cfg.lies("serial") {
		select {
		case s.turn <- struct{}{}:
			defer func() { <-s.turn }()
		case <-time.After(12 * time.Second): // or those that wait for each other would for ever
		}
	}
	if cfg.ExecDelay > 0 {
		select {
		case <-time.After(cfg.ExecDelay):
		case <-ctx.Done():
			return &sdk.Exit{Cause: sdk.CauseOf(ctx), Code: 137, Signal: "SIGKILL", Evidence: "it had not begun",
				NotStarted: true}, nil
		}
	}
	if cfg.CrashDuring != "exec" { // that one waits until the command runs
		cfg.fault("exec")
	}
	env, err := environment(s, c)
	if err != nil {
		return nil, err
	}
	dir := c.Dir
	if dir == "" {
		dir = s.st.Workspace
	}
	if cfg.lies("wrong_dir") {
		dir = s.st.Workspace
	}
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return nil, sdk.Errorf(sdk.ReasonConfig, "the working directory %q does not exist", dir)
	}
	cred, err := credential(c.User)
	if err != nil {
		return nil, err
	}
	argv := slices.Clone(c.Argv)
	if cfg.lies("split_args") && len(argv) > 4 { // after sh -c SCRIPT sh
		argv = append(argv[:4], strings.Fields(strings.Join(argv[4:], " "))...)
	}
	if cfg.lies("empty_args") {
		argv = slices.DeleteFunc(argv, func(a string) bool { return a == "" })
	}
	program, err := supervise.Look(argv[0], c.Env["PATH"], dir)
	if not := (*supervise.NotRunnable)(nil); errors.As(err, &not) {
		return &sdk.Exit{Cause: sdk.CauseExited, Code: not.Code, NotStarted: !cfg.lies("not_found_exit"), Evidence: not.Why},
			nil
	}
	if cfg.lies("sigpipe_ignored") && err == nil {
		// What a shell ignores stays ignored, no matter who starts it: an init sets right what its host ignores.
		argv = append([]string{"sh", "-c", `trap "" PIPE; exec "$@"`, "sh", program}, argv[1:]...)
		program = "/bin/sh"
	}
	if cfg.lies("fd_leak") && err == nil {
		argv = append([]string{"sh", "-c", `exec 3</dev/null; exec "$@"`, "sh", program}, argv[1:]...)
		program = "/bin/sh"
	}
	return s.run(ctx, c, &launch{program: program, argv: argv, env: env, dir: dir, cred: cred})
}

// environment is the whole environment of a command.
func environment(s *sandbox, c *sdk.Command) ([]string, error) {
	env, err := command.Environment(c, map[string]string{"HOME": s.path("home")})
	if s.st.Config.lies("env_leak") {
		env = slices.Sorted(slices.Values(append(os.Environ(), env...)))
	}
	return env, err
}

// credential finds the user to run as; nil means the present one.
func credential(name string) (*syscall.Credential, error) {
	if name == "" {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			return nil, sdk.Errorf(sdk.ReasonConfig, "there is no user %q", name)
		}
	}
	uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
	switch err := errors.Join(uerr, gerr); {
	case err != nil:
		return nil, err
	case int(uid) == os.Getuid():
		return nil, nil
	case os.Getuid() != 0:
		return nil, sdk.Errorf(sdk.ReasonDenied, "only root is able to run a command as %q", name)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// Reset implements [sdk.Resetter].
func (s *sandbox) Reset(ctx context.Context, hard bool) error {
	s.st.Config.fault("reset")
	if err := killAll(ctx, s.id, brand(s.st.Dir, s.id)); err != nil {
		return err
	}
	wipe := []string{"tmp", "home", "output"}
	if hard && !s.st.Shared && !s.st.Config.lies("reset_keeps") || s.st.Config.lies("reset_soft_wipes") {
		wipe = append(wipe, "workspace")
	}
	for _, d := range wipe {
		if err := removeTree(s.path(d)); err != nil {
			return err
		}
		if err := os.Mkdir(s.path(d), 0o755); err != nil {
			return err
		}
	}
	if slices.Contains(wipe, "workspace") && s.st.Source != "" {
		return copyTree(ctx, s.st.Source, s.st.Workspace)
	}
	return nil
}

// leaveProcess starts what nobody ends while the backend runs.
func leaveProcess(dir string) {
	stdin, _ := untilBackendEnds()
	p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "read gone # " + dir}, &os.ProcAttr{
		Dir: "/", Files: []*os.File{stdin, nil, nil}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err == nil {
		p.Release()
	}
}

// untilBackendEnds is a pipe whose reader sees its end when the process of the backend, which keeps the writer, has
// ended.
var untilBackendEnds = sync.OnceValues(func() (r, w *os.File) {
	r, w, _ = os.Pipe()
	return r, w
})
