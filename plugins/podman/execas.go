package main

import (
	"cmp"
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
	"github.com/hutch-run/hutch/sdk/command"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/safefile"
	"github.com/hutch-run/hutch/sdk/supervise"
)

// execAs runs a command as another user of the image, which the agent cannot, for it has no right to become one: by
// podman exec, which knows the image's users and is forty times slower. What such a command starts is distinguished
// from everything else by its user, so that all of it can be ended; commands of one user therefore run one after the
// other.
func (s *sandbox) execAs(ctx context.Context, c *sdk.Command, env []string) (*sdk.Exit, error) {
	if !regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?$`).MatchString(c.User) {
		return nil, sdk.Errorf(sdk.ReasonConfig, "%q is no name of a user", c.User)
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
	network, err := s.network(ctx, c)
	if err != nil {
		return nil, err
	}
	defer network()
	before, start := s.group.Stats(), time.Now()
	args := []string{"exec", "--interactive", "--user=" + c.User, "--workdir=" + cmp.Or(c.Dir, workspacePath)}
	for _, kv := range env {
		args = append(args, "--env="+kv)
	}
	if c.TTY != nil {
		args = append(args, "--tty", "--detach-keys=") // every key is the command's
	}
	args = append(append(args, s.name()), c.Argv...)
	// Podman's own log would be between what the command prints. What it fails with it says all the same.
	cmd := exec.Command(s.podman.path, slices.Concat(s.podman.globals, []string{"--log-level=fatal"}, args)...)
	cmd.Dir, cmd.Env = "/", s.podman.env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	term, err := startAs(cmd, c)
	if err != nil {
		return nil, fmt.Errorf("start podman exec: %w", err)
	}
	defer term.Close()
	as := &client{s, uid, cmd.Process}
	sampled := s.watch(as.Kill)
	stop := command.Watch(ctx, as, c, term.Resize)
	err = cmd.Wait()
	over, _ := sampled()
	stop()
	term.Drain()
	if err := s.endUser(uid); err != nil {
		return nil, err
	}
	exit, err := s.exitAs(ctx, err, before, over, start)
	if exit != nil {
		exit.Traffic, exit.TrafficMore = network()
	}
	return exit, err
}

// startAs starts podman exec, with a terminal of ours when the command shall have one. Podman gives the command another
// one inside, whose size follows that of ours; ours passes every byte on as it is.
func startAs(cmd *exec.Cmd, c *sdk.Command) (*command.Terminal, error) {
	if c.TTY == nil {
		return nil, cmd.Start()
	}
	pty, err := supervise.OpenTerminal(c.TTY.Rows, c.TTY.Cols)
	if err != nil {
		return nil, err
	}
	if err := pty.Raw(); err != nil {
		pty.Close()
		return nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = pty.Slave, pty.Slave, pty.Slave
	cmd.SysProcAttr.Setctty = true // descriptor 0; a change of size is sent to its owner
	if err := cmd.Start(); err != nil {
		pty.Close()
		return nil, err
	}
	_ = pty.Slave.Close() // podman's by now
	term, err := command.OpenTerminal(pty.Master, c)
	if err != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}
	return term, err
}

// client is a command that podman exec started as another user: what it gets, all processes of that user get.
type client struct {
	s      *sandbox
	uid    int
	podman *os.Process
}

// started is closed: that the command runs is not known, and podman's client does.
var started = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Started implements [command.Running].
func (*client) Started() <-chan struct{} { return started }

// Executed implements [command.Running].
func (*client) Executed() bool { return true }

// Signal implements [command.Running].
func (c *client) Signal(sig syscall.Signal) error {
	c.s.killUser(c.uid, sig)
	return nil
}

// SignalGroup implements [command.Running].
func (c *client) SignalGroup(sig syscall.Signal) error { return c.Signal(sig) }

// Kill implements [command.Running]. The client goes; what it started is ended when it is gone. One that has not yet
// started anything would start it later.
func (c *client) Kill() error { return syscall.Kill(-c.podman.Pid, syscall.SIGKILL) }

// exitAs says how podman exec ended; its exit codes are those of the command, and its own from 125 to 127.
func (s *sandbox) exitAs(ctx context.Context, err error, before limits.Stats, over *limits.Overrun,
	start time.Time) (*sdk.Exit, error) {
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
		return s.containerEnded(ctx, before, over)
	}
	command.Blame(ctx, exit, s.met(before, s.group.Stats(), over))
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
		time.Sleep(time.Millisecond) // the kernel needs a moment, and notifies only their parent
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
		if n < 0 || n > maxUser {
			return 0, sdk.Errorf(sdk.ReasonConfig, "there is no user %s in the sandbox", name)
		}
		return n, nil
	}
	passwd, err := safefile.ReadFile(s.root, "etc/passwd", 1<<20)
	if err != nil {
		return 0, sdk.Errorf(sdk.ReasonConfig, "there is no user %q in the sandbox: %w", name, err)
	}
	if n, ok := userIn(string(passwd), first); ok {
		return n, nil
	}
	return 0, sdk.Errorf(sdk.ReasonConfig, "there is no user %q in the sandbox",
		name).WithFix("leave the user away, or take one of the image's")
}

// maxUser is the highest number of a user in a container.
const maxUser = 65534

// userIn finds a user's number in the image's passwd file, which may say anything.
func userIn(passwd, name string) (int, bool) {
	for line := range strings.Lines(passwd) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) > 2 && f[0] == name {
			if n, err := strconv.Atoi(f[2]); err == nil && n >= 0 && n <= maxUser {
				return n, true
			}
		}
	}
	return 0, false
}
