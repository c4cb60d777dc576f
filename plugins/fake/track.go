package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/limits"
)

// tracker is the group of one command. With cgroups the kernel knows its processes;
// without, they are what descends from the leader, and an orphan can get away.
type tracker struct {
	*limits.Group
	cgroup        bool
	spareSessions bool // a lie
	leader        int
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

// Pids implements process.Group.
func (t *tracker) Pids() (pids []int, err error) {
	if t.cgroup {
		pids, err = t.Group.Pids()
	} else {
		pids = descendants(t.leader)
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
		pids, err := t.Pids()
		if err != nil || !slices.ContainsFunc(pids, alive) {
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

// descendants lists pid and all below it.
func descendants(pid int) []int {
	out := []int{pid}
	for i := 0; i < len(out); i++ {
		out = append(out, children(out[i])...)
	}
	return out
}

// children lists the children of a process.
func children(pid int) []int {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	threads, _ := os.ReadDir(dir) // it may have ended
	var out []int
	for _, th := range threads {
		b, _ := os.ReadFile(dir + "/" + th.Name() + "/children")
		for f := range strings.FieldsSeq(string(b)) {
			if n, err := strconv.Atoi(f); err == nil {
				out = append(out, n)
			}
		}
	}
	return out
}

func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest != "" && rest[0] != 'Z' && rest[0] != 'X'
}

// newGroup makes the group of one command.
func (s *sandbox) newGroup() (*tracker, error) {
	asked := s.st.Request
	if s.st.Config.lies("unheld_limit") {
		asked = limits.Request{}
	}
	g, err := s.b.support().New(fmt.Sprintf("%s.%d.%d", s.id, os.Getpid(), s.count.Add(1)), asked)
	if err != nil {
		return nil, err
	}
	return &tracker{Group: g, cgroup: g.Handle() != nil, spareSessions: s.st.Config.lies("keep_setsid")}, nil
}

// killAll ends every command of a sandbox, whichever process started it.
func killAll(ctx context.Context, id string) error {
	_, err := limits.Sweep(ctx, id+".")
	return err
}
