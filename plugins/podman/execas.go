package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/process"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// execAs runs a command as another user of the image, which the agent cannot, for it has no right to become one: by podman
// exec, which knows the image's users and is forty times slower. What such a command starts is told from everything else
// by its user, so that all of it can be ended; commands of one user therefore run one after the other.
func (s *sandbox) execAs(ctx context.Context, c *sdk.Command) (*sdk.Exit, error) {
	if !regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?$`).MatchString(c.User) {
		return nil, sdk.Errorf(sdk.ReasonConfig, "%q is no name of a user", c.User)
	}
	if c.TTY != nil {
		return nil, sdk.Errorf(sdk.ReasonUnsupported, "a command of another user than %d cannot have a terminal", s.who.uid).WithFix("leave the user or the terminal away")
	}
	lock, _ := s.users.LoadOrStore(c.User, &sync.Mutex{})
	lock.(*sync.Mutex).Lock()
	defer lock.(*sync.Mutex).Unlock()
	uid, err := s.uidOf(c.User)
	if err != nil {
		return nil, err
	}
	if uid == s.who.uid {
		alias := *c
		alias.User = ""
		return s.Exec(ctx, &alias)
	}
	before, start := s.group.read(), time.Now()
	args := []string{"exec", "--interactive", "--user=" + c.User, "--workdir=" + cmpString(c.Dir, workspacePath)}
	for _, kv := range s.environment(c) {
		args = append(args, "--env="+kv)
	}
	args = append(append(args, s.name()), c.Argv...)
	cmd := exec.Command(s.podman.path, slices.Concat(s.podman.globals, args)...)
	cmd.Dir, cmd.Env = "/", s.podman.env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start podman exec: %w", err)
	}
	if c.Started != nil {
		c.Started()
	}
	done := make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		s.minder(ctx, c, uid, cmd, done)
	}()
	err = cmd.Wait()
	close(done)
	<-finished
	if err := s.endUser(uid); err != nil {
		return nil, err
	}
	return s.exitAs(ctx, err, before, start)
}

// minder passes signals on, and ends everything of the user when ctx does.
func (s *sandbox) minder(ctx context.Context, c *sdk.Command, uid int, cmd *exec.Cmd, done <-chan struct{}) {
	signals := c.Signals
	for {
		select {
		case <-done:
			return
		case n, ok := <-signals:
			if !ok {
				signals = nil
				continue
			}
			s.killUser(uid, syscall.Signal(n))
		case <-ctx.Done():
			s.killUser(uid, unix.SIGTERM)
			grace := c.Grace
			if grace <= 0 {
				grace = process.DefaultGrace
			}
			timer := time.NewTimer(grace)
			defer timer.Stop()
			select {
			case <-done:
				return
			case <-timer.C:
			}
			// A client that has not yet started anything would start it after this.
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			return
		}
	}
}

// exitAs says how podman exec ended; its exit codes are those of the command, and its own from 125 to 127.
func (s *sandbox) exitAs(ctx context.Context, err error, before counters, start time.Time) (*sdk.Exit, error) {
	exit := &sdk.Exit{Cause: sdk.CauseExited, Usage: sdk.Usage{Wall: time.Since(start)}}
	var e *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &e):
		return nil, fmt.Errorf("podman exec: %w", err)
	case e != nil && e.ExitCode() < 0:
		exit.Code, exit.Signal, exit.Cause = 137, "SIGKILL", sdk.CauseSignaled
	case e != nil:
		exit.Code = e.ExitCode()
	}
	if exit.Code > 128 && exit.Code <= 128+64 {
		if name := unix.SignalName(syscall.Signal(exit.Code - 128)); name != "" {
			exit.Signal, exit.Cause = name, sdk.CauseSignaled
		}
	}
	exit.Evidence = fmt.Sprintf("podman exec: exit %d", exit.Code)
	if !alive(s.container) {
		return s.containerEnded(ctx, before)
	}
	s.cause(ctx, exit, before, s.group.read())
	return exit, nil
}

// killUser signals all processes of a user of the container, whose number is that of the container, and says how many
// there were.
func (s *sandbox) killUser(uid int, sig syscall.Signal) (n int) {
	for _, pid := range processes(s.pid) {
		if pid != s.pid && insideUID(pid, s.pid) == uid && syscall.Kill(pid, sig) == nil {
			n++
		}
	}
	return n
}

// killTime bounds the killing of what forks while it is killed.
const killTime = 10 * time.Second

// endUser kills all processes of a user until none is left.
func (s *sandbox) endUser(uid int) error {
	deadline := time.Now().Add(killTime)
	for s.killUser(uid, unix.SIGKILL) > 0 {
		if time.Now().After(deadline) {
			return sdk.Errorf(sdk.ReasonInternal, "processes of user %d cannot be killed", uid)
		}
		time.Sleep(time.Millisecond) // the kernel needs a moment, and tells nobody but their parent
	}
	return nil
}

// insideUID is the user of a process as a container counts.
func insideUID(pid, container int) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return -1
	}
	_, rest, _ := strings.Cut(string(status), "\nUid:")
	f := strings.Fields(rest)
	if len(f) == 0 {
		return -1
	}
	host, err := strconv.Atoi(f[0])
	if err != nil {
		return -1
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", container))
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(maps)) {
		var inside, outside, n int
		if _, err := fmt.Sscan(line, &inside, &outside, &n); err == nil && host >= outside && host < outside+n {
			return inside + host - outside
		}
	}
	return -1
}

// uidOf looks a user up as the image's own files say.
func (s *sandbox) uidOf(name string) (int, error) {
	first, _, _ := strings.Cut(name, ":")
	if n, err := strconv.Atoi(first); err == nil {
		if n < 0 || n > 65534 {
			return 0, sdk.Errorf(sdk.ReasonConfig, "there is no user %s in the sandbox", name)
		}
		return n, nil
	}
	passwd, err := safefile.ReadFile(s.root, "etc/passwd", 1<<20)
	if err != nil {
		return 0, sdk.Errorf(sdk.ReasonConfig, "there is no user %q in the sandbox: %w", name, err)
	}
	for line := range strings.Lines(string(passwd)) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) > 2 && f[0] == first {
			if n, err := strconv.Atoi(f[2]); err == nil {
				return n, nil
			}
		}
	}
	return 0, sdk.Errorf(sdk.ReasonConfig, "there is no user %q in the sandbox", name).WithFix("leave the user away, or take one of the image's")
}
