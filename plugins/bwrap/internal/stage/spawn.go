package stage

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/wire"
	"github.com/hutch-run/hutch/sdk/network/netns"
	"github.com/hutch-run/hutch/sdk/supervise"
	"github.com/hutch-run/hutch/sdk/supervise/microinit"
)

// Descriptors that bwrap is started with, besides its stderr. Those up to 8 that the command's replace, see
// package microinit, are bwrap's stderr, too.
const (
	statusFD  = 3 // for pid 1: microinit.StatusFD
	argsFD    = 4
	seccompFD = 5
)

// spawn starts bwrap for one command and waits for it on its own thread.
// The descriptor that it returns is bwrap's pidfd: the plugin knows it by another number.
func (h *holder) spawn(c *supervise.Socket, e *wire.Exec, fds []int) (*wire.Reply, []int, error) {
	want := 2
	if len(e.Observe) > 0 {
		want++
	}
	if len(fds) != want {
		return nil, nil, fmt.Errorf("an exec came with %d descriptors, not %d", len(fds), want)
	}
	// bwrap takes the filter and its arguments from descriptors with an offset of
	// their own, so that commands can start at the same time.
	seccomp, err := memfd("seccomp", h.setup.Seccomp)
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(seccomp)
	options := append([]string(nil), h.setup.Args...)
	options = append(options, "--seccomp", strconv.Itoa(seccompFD))
	args, err := memfd("args", joinArgs(options))
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(args)

	files := slices.Repeat([]uintptr{uintptr(fds[0])}, microinit.BlockFD+1)
	files[statusFD], files[argsFD], files[seccompFD] = uintptr(fds[1]), uintptr(args), uintptr(seccomp)
	line := []string{"bwrap", "--args", strconv.Itoa(argsFD), "--", e.Program} // all users of the host can read it
	program := fmt.Sprintf("/proc/self/fd/%d", h.bwrap)
	if len(e.Observe) > 0 {
		filter, err := memfd("filter", e.Observe)
		if err != nil {
			return nil, nil, err
		}
		defer unix.Close(filter)
		line = append([]string{wire.ObserverName, strconv.Itoa(len(files))}, line...)
		files = append(files, uintptr(filter), uintptr(fds[want-1]), uintptr(h.bwrap))
		program = "/proc/self/exe"
	}
	attr := &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{}, // the command could read bwrap's from /proc
		Files: files,
		Sys: &syscall.SysProcAttr{
			Setsid:     true,
			Pdeathsig:  syscall.SIGKILL,
			Credential: &syscall.Credential{Uid: uint32(h.setup.UID), Gid: uint32(h.setup.GID), NoSetGroups: true},
		},
	}
	if h.setup.Filtered {
		attr.Sys.Cloneflags = syscall.CLONE_NEWNET
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	pid, err := syscall.ForkExec(program, line, attr)
	if err != nil {
		return nil, nil, fmt.Errorf("start bwrap: %w", err)
	}
	pidfd, err := unix.PidfdOpen(pid, 0) // before anybody reaps it
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = syscall.Wait4(pid, nil, 0, nil)
		return nil, nil, fmt.Errorf("hold on to bwrap: %w", err)
	}
	give := []int{pidfd}
	if h.setup.Filtered {
		l, err := netns.Filter(pidfd, h.setup.Loopback)
		if err != nil {
			_ = unix.Kill(-1, unix.SIGKILL) // bwrap alone would leave a child that waits for its network
			unix.Close(pidfd)
			return nil, nil, fmt.Errorf(wire.NoFilter+": %w", err)
		}
		give = append(give, l.FDs()...)
	}
	h.running.Add(1)
	if h.persistent != nil {
		h.persistent.started(c, pid)
	}
	go h.wait(c, e.ID, pid)
	return &wire.Reply{Spawned: &wire.Spawned{ID: e.ID}}, give, nil
}

// wait reaps bwrap and answers the plugin. A plugin that is gone needs no answer.
func (h *holder) wait(c *supervise.Socket, id uint64, pid int) {
	var status syscall.WaitStatus
	var usage syscall.Rusage
	reap := func() {
		for {
			_, err := syscall.Wait4(pid, &status, 0, &usage)
			if !errors.Is(err, syscall.EINTR) {
				return
			}
		}
	}
	if h.persistent == nil {
		reap()
	} else if !h.reaped(pid, reap) {
		return
	}
	h.running.Add(-1)
	_ = send(c, &wire.Reply{Ended: &wire.Ended{
		ID: id, Status: int(status),
		UserUS: usage.Utime.Nano() / 1000, SysUS: usage.Stime.Nano() / 1000, MaxRSSKB: usage.Maxrss,
	}})
}

// sendPTY makes a terminal in the sandbox's own instance of devpts and sends the plugin both ends.
func (h *holder) sendPTY(c *supervise.Socket) error {
	t, err := supervise.OpenTerminalAt("/root/dev/pts/ptmx", 0, 0)
	if err == nil {
		defer t.Close()
		err = t.Slave.Chown(h.setup.UID, h.setup.GID)
	}
	if err != nil {
		return send(c, &wire.Reply{Err: err.Error()})
	}
	return send(c, &wire.Reply{PTY: t.Slave.Name()}, int(t.Master.Fd()), int(t.Slave.Fd()))
}

// memfd returns a descriptor whose content is data, at its beginning.
func memfd(name string, data []byte) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	for off := 0; off < len(data); {
		n, err := unix.Pwrite(fd, data[off:], int64(off))
		if err != nil {
			unix.Close(fd)
			return -1, err
		}
		off += n
	}
	return fd, nil
}

func joinArgs(args []string) []byte {
	var b bytes.Buffer
	for _, a := range args {
		b.WriteString(a)
		b.WriteByte(0)
	}
	return b.Bytes()
}

// end kills every other process of the namespace and returns when none is left.
func end() {
	for {
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if errors.Is(err, syscall.ECHILD) {
				return
			}
			if pid <= 0 {
				break
			}
		}
		_ = unix.Kill(-1, unix.SIGKILL)
		time.Sleep(endRound)
	}
}

// endRound is the time that the killed get to be gone before end looks again.
const endRound = time.Millisecond
