package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/supervise"
)

// ownProcesses is how many processes of a command's cgroup are not the command's: the init above it.
const ownProcesses = 1

// running is a command that was started.
type running interface {
	Pid() int
	Wait(ctx context.Context) supervise.Result
}

// naive is the command of the lie keep_setsid: without an init, what has made a session of its own survives its end.
type naive struct {
	cmd   *exec.Cmd
	grace time.Duration
	done  chan struct{}
}

func startNaive(cmd *exec.Cmd, o supervise.Options) (*naive, error) {
	cmd.SysProcAttr.Setpgid = true
	if t := o.Terminal; t != nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = t.Slave, t.Slave, t.Slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		defer t.Slave.Close()
	}
	if err := o.Group.Start(cmd); err != nil {
		return nil, err
	}
	n := &naive{cmd, o.Grace, make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		n.kill(syscall.SIGKILL)
		close(n.done)
	}()
	return n, nil
}

func (n *naive) Pid() int { return n.cmd.Process.Pid }

// kill signals the process group, which is all that a naive backend knows of.
func (n *naive) kill(sig syscall.Signal) { _ = syscall.Kill(-n.Pid(), sig) }

// Wait implements [running].
func (n *naive) Wait(ctx context.Context) supervise.Result {
	var r supervise.Result
	select {
	case <-n.done:
	case <-ctx.Done():
		r.Stopped = context.Cause(ctx)
		n.kill(syscall.SIGTERM)
		select {
		case <-n.done:
		case <-time.After(max(n.grace, 0)):
			n.kill(syscall.SIGKILL)
			<-n.done
		}
	}
	state := n.cmd.ProcessState
	r.Usage.User, r.Usage.Sys = state.UserTime(), state.SystemTime()
	if ru, ok := state.SysUsage().(*syscall.Rusage); ok {
		r.Usage.MaxRSS = ru.Maxrss << 10
	}
	r.Status, _ = state.Sys().(syscall.WaitStatus)
	return r
}

// groups counts those of this process, in which there may be several instances of the backend and, attached to, several
// of a sandbox: each command needs its own name among all of them.
var groups atomic.Int64

// newGroup makes the group of one command.
func (s *sandbox) newGroup() (*limits.Group, error) {
	asked := s.st.Request
	if s.st.Config.lies("unheld_limit") {
		asked = limits.Request{}
	}
	if asked.PIDs > 0 && s.b.support().Mechanism != limits.Rlimit {
		asked.PIDs += ownProcesses
	}
	return s.b.support().New(fmt.Sprintf("%s.%d.%d", s.id, os.Getpid(), groups.Add(1)), asked)
}

// endingSuffix is of a file beside the brand of a sandbox while its commands end, whichever process they belong to.
const endingSuffix = ".ending"

// use locks a sandbox's brand as long as a command runs, so that all processes know of it.
func use(brand string) (*os.File, error) {
	f, err := os.Open(brand)
	if err != nil {
		return nil, err
	}
	return f, unix.Flock(int(f.Fd()), unix.LOCK_SH)
}

// onEnding calls kill while the commands of a sandbox are to end, until over is called.
func onEnding(brand string, kill func()) (over func()) {
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
			if _, err := os.Lstat(brand + endingSuffix); err == nil {
				kill()
			}
		}
	}()
	return func() { close(done) }
}

// endOrphans ends the commands of processes that were killed, unless another process has commands of the sandbox.
func endOrphans(ctx context.Context, id, brand string) error {
	f, err := os.Open(brand)
	if err != nil {
		return nil //nolint:nilerr // what is gone has no commands
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}
	_, err = limits.Sweep(ctx, id+".")
	return err
}

// killAll ends every command of a sandbox, whichever process started it.
func killAll(ctx context.Context, id, brand string) error {
	_, err := limits.Sweep(ctx, id+".")
	return errors.Join(err, endOthers(ctx, brand))
}

// endOthers ends the commands that no cgroup holds, by a file that the processes which started them look for.
func endOthers(ctx context.Context, brand string) error {
	f, err := os.Open(brand)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		return nil
	}
	if err := os.WriteFile(brand+endingSuffix, nil, 0o600); err != nil {
		return err
	}
	defer os.Remove(brand + endingSuffix)
	for unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}
