package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/supervise/descendants"
)

// tracker is the group of one command. With cgroups the kernel knows its processes;
// without, they are what descends from the leader, and an orphan can get away.
type tracker struct {
	*limits.Group
	cgroup        bool
	spareSessions bool // a lie
	leader        int
}

// tracks reports whether the tracker is what keeps the processes together. Without a cgroup a keeper of package process
// does it better, which an orphan does not get away from; but a limit of the command itself has to be set by the
// tracker.
func (t *tracker) tracks() bool {
	r := t.Rlimits()
	return t.cgroup || t.spareSessions || r.NProc != nil || r.NoFile != nil || r.FSize != nil
}

// Start implements process.Group. Rlimits are set while the program is held at its
// first instruction.
func (t *tracker) Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr.Ptrace = true
	if err := t.Group.Start(cmd); err != nil {
		return err
	}
	t.leader = cmd.Process.Pid
	var ws unix.WaitStatus
	if _, err := unix.Wait4(t.leader, &ws, unix.WALL, nil); err != nil {
		return fmt.Errorf("holding the command at its start: %w", err)
	}
	return errors.Join(t.Rlimits().ApplyTo(t.leader), unix.PtraceDetach(t.leader))
}

// PIDs implements process.Group.
func (t *tracker) PIDs() (pids []int, err error) {
	if t.cgroup {
		pids, err = t.Group.PIDs()
	} else {
		pids = descendants.Below([]int{t.leader})
	}
	if t.spareSessions {
		pids = slices.DeleteFunc(pids, func(pid int) bool {
			sid, err := unix.Getsid(pid)
			return err == nil && sid == pid && pid != t.leader
		})
	}
	return pids, err
}

// Kill implements process.Group.
func (t *tracker) Kill(ctx context.Context) error {
	if t.cgroup && !t.spareSessions {
		return t.Group.Kill(ctx)
	}
	for {
		pids, err := t.PIDs()
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

// groups counts those of this process, in which there may be several instances of the backend and, attached to, several
// of a sandbox: each command needs its own name among all of them.
var groups atomic.Int64

// newGroup makes the group of one command.
func (s *sandbox) newGroup() (*tracker, error) {
	asked := s.st.Request
	if s.st.Config.lies("unheld_limit") {
		asked = limits.Request{}
	}
	g, err := s.b.support().New(fmt.Sprintf("%s.%d.%d", s.id, os.Getpid(), groups.Add(1)), asked)
	if err != nil {
		return nil, err
	}
	return &tracker{Group: g, cgroup: g.Handle() != nil, spareSessions: s.st.Config.lies("keep_setsid")}, nil
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
