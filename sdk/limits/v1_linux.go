package limits

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// v1Group is a directory in each of several hierarchies.
type v1Group struct {
	parts []string
	// The directories with the files of each controller; empty for others.
	memory, pid, cpu, freezer string
}

// learn recognises the controllers by their files, so that Open needs directories only.
func (g *v1Group) learn() {
	for _, k := range []struct {
		file string
		at   *string
	}{
		{"memory.limit_in_bytes", &g.memory}, {"pids.max", &g.pid}, {"cpu.shares", &g.cpu},
		{"freezer.state", &g.freezer},
	} {
		for _, dir := range g.parts {
			if exists(dir + "/" + k.file) {
				*k.at = dir
			}
		}
	}
}

func (g *v1Group) setUp(r Request, swap bool) error {
	if r.Memory != 0 {
		bytes := strconv.FormatUint(r.Memory, 10)
		// In this order: the sum of memory and swap may never be below memory.
		if err := write(g.memory+"/memory.limit_in_bytes", bytes); err != nil {
			return err
		}
		if f := g.memory + "/memory.memsw.limit_in_bytes"; exists(f) {
			if err := write(f, bytes); err != nil {
				return err
			}
		} else if swap {
			if err := write(g.memory+"/memory.swappiness", "0"); err != nil {
				return err
			}
		}
	}
	if r.CPUs != 0 {
		if err := write(g.cpu+"/cpu.cfs_period_us", strconv.Itoa(cpuPeriod)); err != nil {
			return err
		}
		if err := write(g.cpu+"/cpu.cfs_quota_us", strconv.FormatInt(quota(r.CPUs), 10)); err != nil {
			if errors.Is(err, unix.EINVAL) {
				err = fmt.Errorf("%w: a cgroup above has a smaller quota", err)
			}
			return err
		}
	}
	if r.PIDs != 0 {
		if err := write(g.pid+"/pids.max", strconv.FormatInt(r.PIDs, 10)); err != nil {
			return err
		}
	}
	return nil
}

func (g *v1Group) dirs() []string { return g.parts }
func (g *v1Group) close()         {}

// start lets the kernel stop the child at its first instruction, as it does for debuggers, and moves it before it goes
// on: v1 has no clone flag that makes a child in a group.
func (g *v1Group) start(cmd *exec.Cmd) error {
	runtime.LockOSThread() // only the thread that made the child may let it go on
	defer runtime.UnlockOSThread()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Ptrace = true
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	err := awaitStop(pid)
	if err == nil {
		err = g.add(pid)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fmt.Errorf("put a command into its cgroup: %w", err)
	}
	_ = unix.PtraceDetach(pid) // it fails when the child was killed meanwhile, which Wait reports
	return nil
}

// awaitStop waits until a child that asked to be traced stops, or is dead.
func awaitStop(pid int) error {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err
		}
	}
}

func (g *v1Group) add(pid int) error {
	for _, dir := range g.parts {
		if err := write(dir+"/cgroup.procs", strconv.Itoa(pid)); err != nil {
			if gone(err) {
				err = ErrGone
			}
			return err
		}
	}
	return nil
}

// main is the directory whose list of processes is the group's: all have the same.
func (g *v1Group) main() string {
	for _, d := range []string{g.pid, g.freezer} {
		if d != "" {
			return d
		}
	}
	return g.parts[0]
}

func (g *v1Group) pids() ([]int, error) {
	pids, err := readPIDs(g.main() + "/cgroup.procs")
	if gone(err) {
		err = ErrGone
	}
	return pids, err
}

func (g *v1Group) stats() (s Stats, err error) {
	if !exists(g.main()) {
		return s, ErrGone
	}
	if g.memory != "" {
		s.MemoryPeak, _ = readUint(g.memory + "/memory.max_usage_in_bytes")
		s.OOMKills = readKeyed(g.memory + "/memory.oom_control")["oom_kill"]
	}
	if g.pid != "" {
		s.PIDsPeak, _ = readUint(g.pid + "/pids.peak")
		s.PIDsHits = readKeyed(g.pid + "/pids.events")["max"]
	}
	return s, nil
}

// kill keeps the group from forking, by a pids limit of 0 or else by the freezer, and kills until nothing is left.
func (g *v1Group) kill(ctx context.Context) error {
	if g.pid != "" {
		old, err := os.ReadFile(g.pid + "/pids.max")
		if gone(err) {
			return nil
		}
		if err == nil {
			if err := write(g.pid+"/pids.max", "0"); err != nil && !gone(err) {
				return err
			}
			defer func() { _ = write(g.pid+"/pids.max", strings.TrimSpace(string(old))) }()
		}
	}
	k := killer{list: func() ([]int, error) { return readPIDs(g.main() + "/cgroup.procs") }}
	if f := g.freezer + "/freezer.state"; g.freezer != "" && g.pid == "" {
		// A frozen process dies only when it is thawed: freezing makes the list complete, thawing makes it end.
		k.freeze = func() error { return write(f, "FROZEN") }
		k.thaw = func() error { return write(f, "THAWED") }
	}
	return k.run(ctx)
}

func (g *v1Group) remove(ctx context.Context) error {
	busy := false
	for _, dir := range g.parts {
		if err := unix.Rmdir(dir); err == unix.EBUSY || err == unix.ENOTEMPTY {
			busy = true
		}
	}
	if !busy {
		return nil
	}
	if err := g.kill(ctx); err != nil {
		return err
	}
	var errs []error
	for _, dir := range g.parts {
		errs = append(errs, removeTree(ctx, dir))
	}
	return errors.Join(errs...)
}
