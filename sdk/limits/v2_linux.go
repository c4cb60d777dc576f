package limits

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// v2Group is one directory of the unified hierarchy.
type v2Group struct {
	dir string
	fd  int // the directory, for clone3
}

func (g *v2Group) setUp(r Request, swap bool) error {
	var set [][2]string
	if r.Memory != 0 {
		set = append(set, [2]string{"memory.max", strconv.FormatUint(r.Memory, 10)})
		// With no swap the sum of memory and swap cannot pass the limit.
		if exists(g.dir + "/memory.swap.max") {
			set = append(set, [2]string{"memory.swap.max", "0"})
		} else if swap {
			return errors.New("this machine swaps and its kernel does not count swap by cgroup: boot with swapaccount=1, or " +
				"swapoff -a")
		}
	}
	if r.CPUs != 0 {
		set = append(set, [2]string{"cpu.max", fmt.Sprintf("%d %d", quota(r.CPUs), cpuPeriod)})
	}
	if r.PIDs != 0 {
		set = append(set, [2]string{"pids.max", strconv.FormatInt(r.PIDs, 10)})
	}
	for _, kv := range set {
		if err := write(g.dir+"/"+kv[0], kv[1]); err != nil {
			return err
		}
	}
	return g.open()
}

func (g *v2Group) open() (err error) {
	g.fd, err = unix.Open(g.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open cgroup %s: %w", g.dir, err)
	}
	return nil
}

// cpuPeriod is the kernel's own default period of the processor quota, in microseconds.
const cpuPeriod = 100_000

// quota is how many microseconds of each period n cores are; the kernel takes no less than 1 ms.
func quota(n float64) int64 { return max(1000, int64(n*cpuPeriod+0.5)) }

func (g *v2Group) dirs() []string { return []string{g.dir} }
func (g *v2Group) close()         { unix.Close(g.fd) }

// start lets clone3 make the child inside the cgroup: there is no moment in which it is outside.
func (g *v2Group) start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, g.fd
	return cmd.Start()
}

func (g *v2Group) add(pid int) error { return write(g.dir+"/cgroup.procs", strconv.Itoa(pid)) }

func (g *v2Group) pids() ([]int, error) {
	pids, err := readPIDs(g.dir + "/cgroup.procs")
	if gone(err) {
		err = ErrGone
	}
	return pids, err
}

func (g *v2Group) stats() (s Stats, err error) {
	if !exists(g.dir) {
		return s, ErrGone
	}
	s.MemoryPeak, _ = readUint(g.dir + "/memory.peak")
	s.OOMKills = readKeyed(g.dir + "/memory.events")["oom_kill"]
	s.PIDsPeak, _ = readUint(g.dir + "/pids.peak")
	s.PIDsHits = readKeyed(g.dir + "/pids.events")["max"]
	return s, nil
}

// kill has the kernel kill the whole subtree at once, which no fork can outrun; kernels before 5.14 are asked to freeze
// it first and are then given one process after the other.
func (g *v2Group) kill(ctx context.Context) error {
	err := write(g.dir+"/cgroup.kill", "1")
	if errors.Is(err, os.ErrNotExist) && exists(g.dir) {
		err = g.killEach(ctx)
	}
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return g.waitEmpty(ctx)
}

func (g *v2Group) killEach(ctx context.Context) error {
	k := killer{list: func() ([]int, error) { return readPIDs(g.dir + "/cgroup.procs") }}
	if f := g.dir + "/cgroup.freeze"; exists(f) {
		k.freeze = func() error { return write(f, "1") }
		k.thaw = func() error { return write(f, "0") }
	}
	return k.run(ctx)
}

// waitEmpty waits for the kernel's own event that nothing lives in the cgroup.
func (g *v2Group) waitEmpty(ctx context.Context) error {
	fd, err := unix.Open(g.dir+"/cgroup.events", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		if gone(err) {
			return nil
		}
		return fmt.Errorf("watch cgroup %s: %w", g.dir, err)
	}
	defer unix.Close(fd)
	buf := make([]byte, 256)
	for {
		// Reading arms the event; an event between reading and polling is reported by poll at once.
		n, err := unix.Pread(fd, buf, 0)
		if err != nil {
			if gone(err) {
				return nil
			}
			return fmt.Errorf("watch cgroup %s: %w", g.dir, err)
		}
		if strings.Contains(string(buf[:n]), "populated 0") {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("processes are still in %s: %w", g.dir, context.Cause(ctx))
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}, pollStep); err != nil &&
			err != unix.EINTR {
			return fmt.Errorf("watch cgroup %s: %w", g.dir, err)
		}
	}
}

func (g *v2Group) remove(ctx context.Context) error {
	// The common case, an empty group, costs one system call.
	if err := unix.Rmdir(g.dir); err == nil || err == unix.ENOENT {
		return nil
	}
	if err := g.kill(ctx); err != nil {
		return err
	}
	return removeTree(ctx, g.dir)
}
