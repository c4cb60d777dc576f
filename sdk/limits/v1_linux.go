package limits

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/supervise/procstat"
)

// v1Group is a directory in each of several hierarchies.
type v1Group struct {
	parts []v1Part
	// The directories with the files of each controller; empty for others.
	memory, pid, cpu, cpuacct, freezer string
	maxPIDs                            int64
	starting                           *sync.Mutex // see start; shared by all that this process has of one group
}

// startLocks holds the starting locks by the group's directory.
var startLocks sync.Map

func startLock(dir string) *sync.Mutex {
	l, _ := startLocks.LoadOrStore(dir, new(sync.Mutex))
	return l.(*sync.Mutex)
}

type v1Part struct {
	dir, home        string
	tasks, homeTasks int // descriptors of the tasks files of both, opened at the first start
}

// learn recognises the controllers by their files, so that Open needs directories only.
func (g *v1Group) learn() {
	g.starting = startLock(g.parts[0].dir)
	for _, k := range []struct {
		file string
		at   *string
	}{
		{"memory.limit_in_bytes", &g.memory}, {"pids.max", &g.pid}, {"cpu.shares", &g.cpu},
		{"cpuacct.usage", &g.cpuacct}, {"freezer.state", &g.freezer},
	} {
		for _, p := range g.parts {
			if exists(p.dir + "/" + k.file) {
				*k.at = p.dir
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
		g.maxPIDs = r.PIDs
		if err := write(g.pid+"/pids.max", strconv.FormatInt(r.PIDs, 10)); err != nil {
			return err
		}
	}
	return nil
}

func (g *v1Group) dirs() []string {
	var out []string
	for _, p := range g.parts {
		out = append(out, p.dir)
	}
	return out
}

func (g *v1Group) close() {
	if len(g.parts) > 0 && !exists(g.parts[0].dir) {
		startLocks.Delete(g.parts[0].dir)
	}
	for i := range g.parts {
		for _, fd := range []*int{&g.parts[i].tasks, &g.parts[i].homeTasks} {
			if *fd >= 0 {
				unix.Close(*fd)
				*fd = -1
			}
		}
	}
}

func (g *v1Group) add(pid int) error {
	for _, p := range g.parts {
		if err := write(p.dir+"/cgroup.procs", strconv.Itoa(pid)); err != nil {
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
	return g.parts[0].dir
}

func (g *v1Group) pids() ([]int, error) {
	pids, err := readPIDs(g.main() + "/cgroup.procs")
	if gone(err) {
		err = ErrGone
	}
	return slices.DeleteFunc(pids, g.guest), err
}

// guest recognises a process that only has a thread in the group, to fork a child there: this one or another host. The
// kernel lists it, and nobody may kill it. A process whose first thread has ended is no guest: v1 says nothing about
// where a dead thread was.
func (g *v1Group) guest(pid int) bool {
	if pid == os.Getpid() {
		return true
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false
	}
	if strings.Contains(string(data), "/"+filepath.Base(g.parts[0].dir)+"\n") {
		return false
	}
	return procstat.Alive(pid)
}

func (g *v1Group) stats() (Stats, error) {
	var s Stats
	if !exists(g.main()) {
		return s, ErrGone
	}
	if g.memory != "" {
		s.MemoryPeak, s.Counts.MemoryPeak = readUint(g.memory + "/memory.max_usage_in_bytes")
		ev := readKeyed(g.memory + "/memory.oom_control")
		s.OOMKills, s.Counts.OOMKills = ev["oom_kill"], ev != nil
	}
	if g.pid != "" {
		s.PIDsPeak, s.Counts.PIDsPeak = readUint(g.pid + "/pids.peak")
		ev := readKeyed(g.pid + "/pids.events")
		s.PIDsHits, s.Counts.PIDsHits = ev["max"], ev != nil
	}
	if g.cpuacct != "" {
		var n, u, k uint64
		n, s.Counts.CPU = readUint(g.cpuacct + "/cpuacct.usage")
		u, _ = readUint(g.cpuacct + "/cpuacct.usage_user")
		k, _ = readUint(g.cpuacct + "/cpuacct.usage_sys")
		s.CPU, s.CPUUser, s.CPUSystem = time.Duration(n), time.Duration(u), time.Duration(k)
	}
	if g.cpu != "" {
		st := readKeyed(g.cpu + "/cpu.stat")
		s.Periods, s.Throttled, s.Waited = st["nr_periods"], st["nr_throttled"], time.Duration(st["throttled_time"])
		s.Counts.Throttled = st != nil
	}
	return s, nil
}

// kill keeps the group from forking, by a pids limit of 0 or else by the freezer, and kills until nothing is left.
func (g *v1Group) kill(ctx context.Context) error {
	if g.starting == nil {
		g.learn() // it was never finished
	}
	g.starting.Lock()
	defer g.starting.Unlock()
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
	k := killer{
		list:  func() ([]int, error) { return readPIDs(g.main() + "/cgroup.procs") },
		spare: g.guest,
	}
	if f := g.freezer + "/freezer.state"; g.freezer != "" && g.pid == "" {
		// A frozen process dies only when it is thawed: freezing makes the list complete, thawing makes it end.
		k.freeze = func() error { return write(f, "FROZEN") }
		k.thaw = func() error { return write(f, "THAWED") }
	}
	return k.run(ctx)
}

func (g *v1Group) remove(ctx context.Context) error {
	busy := false
	for _, p := range g.parts {
		if err := unix.Rmdir(p.dir); err == unix.EBUSY || err == unix.ENOTEMPTY {
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
	for _, p := range g.parts {
		errs = append(errs, removeTree(ctx, p.dir))
	}
	return errors.Join(errs...)
}
