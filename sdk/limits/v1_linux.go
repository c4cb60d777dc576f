package limits

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// v1Place is one directory in each hierarchy of cgroup v1 that is of use. Controllers that are mounted together share one.
type v1Place struct {
	sys  system
	at   map[string]v1Base // by controller
	swap bool              // this machine swaps
}

// v1Base is where groups are made in one hierarchy.
type v1Base struct {
	dir  string
	home string // the cgroup to which a thread of ours goes back after it has forked a child into a group
	park bool   // home has to be made first
}

// The controllers of interest. cpuacct and the freezer hold no limit. The one counts; the other keeps a group from forking
// while it is killed, and is only used where the pids controller cannot do that: it freezes also a thread of a host that
// happens to be inside to fork a child, and when that thread was about to take part in a garbage collection, the whole host
// waits for it, be it the very one that would thaw the group.
var v1Controllers = []string{"memory", "pids", "cpu", "cpuacct", "freezer"}

// v1Delegated is the directory which an administrator gives to a user, beside the cgroup the user is in.
const v1Delegated = "hutch"

func (sys system) v1Fix(mounts []mount) string {
	var dirs []string
	pids := slices.ContainsFunc(mounts, func(m mount) bool { return m.controllers["pids"] })
	for _, c := range v1Controllers {
		if c == "freezer" && pids {
			continue
		}
		for _, m := range mounts {
			if m.controllers[c] && !slices.Contains(dirs, m.dir+"/"+v1Delegated) {
				dirs = append(dirs, m.dir+"/"+v1Delegated)
				break
			}
		}
	}
	list := strings.Join(dirs, " ")
	return fmt.Sprintf("sudo mkdir -p %s && sudo chown -R %d %s", list, sys.euid, list)
}

// findV1 finds, in each hierarchy, the cgroup this process is in, so that limits above it keep holding, or else the
// directory delegated by name.
func (sys system) findV1(mounts []mount, own map[string]string) (*v1Place, refusal) {
	p := &v1Place{sys: sys, at: make(map[string]v1Base), swap: sys.swapOn()}
	var seen, mounted bool
	var last error
	for _, c := range v1Controllers {
		for _, m := range mounts {
			if !m.controllers[c] {
				continue
			}
			mounted = mounted || c == "memory" || c == "pids" || c == "cpu"
			b, err := sys.tryV1(m, own[c])
			if err != nil {
				last = err
				continue
			}
			p.at[c], seen = b, true
			break
		}
	}
	if !mounted {
		return nil, refusal{}
	}
	why := refusal{"cgroup v1 is not delegated to this user", sys.v1Fix(mounts)}
	if !seen || len(p.limits()) == 0 {
		if last != nil {
			why.reason += ": " + last.Error()
		}
		return nil, why
	}
	_, pids := p.at["pids"]
	_, freezer := p.at["freezer"]
	switch {
	case pids:
		delete(p.at, "freezer")
	case !freezer:
		return nil, refusal{"neither the pids nor the freezer controller of cgroup v1 may be written, so a group that forks could not be killed", why.fix}
	}
	return p, why
}

func (sys system) tryV1(m mount, own string) (v1Base, error) {
	dir, ok := sys.dirOf(m, own)
	if ok {
		if err := sys.writable(dir, dir+"/tasks"); err == nil {
			return v1Base{dir: dir, home: dir}, nil
		}
	}
	given := strings.TrimSuffix(sys.root+m.dir, "/") + "/" + v1Delegated
	err := sys.writable(given, given+"/tasks")
	if err != nil {
		return v1Base{}, err
	}
	if ok && sys.writable(dir+"/tasks") == nil {
		return v1Base{dir: given, home: dir}, nil
	}
	return v1Base{dir: given, home: given + "/" + leafName, park: true}, nil
}

func (p *v1Place) where() []string {
	var out []string
	for _, c := range v1Controllers {
		if b, ok := p.at[c]; ok && !slices.Contains(out, b.dir) {
			out = append(out, b.dir)
		}
	}
	return out
}

func (p *v1Place) limits() map[Limit]How {
	out := make(map[Limit]How)
	if p == nil {
		return out
	}
	for _, k := range []struct {
		controller, file string
		limit            Limit
	}{{"memory", "memory.limit_in_bytes", Memory}, {"pids", "pids.max", Pids}, {"cpu", "cpu.cfs_quota_us", CPUs}} {
		b, ok := p.at[k.controller]
		if !ok || k.limit == CPUs && !exists(b.dir+"/cpu.shares") {
			continue
		}
		out[k.limit] = How{By: "cgroup v1 " + k.file, Scope: WholeGroup}
	}
	if h, ok := out[Memory]; ok {
		switch {
		case exists(p.at["memory"].dir + "/memory.memsw.usage_in_bytes"):
			h.By += " and memory.memsw.limit_in_bytes"
		case p.swap:
			// Swappiness 0 keeps a v1 group out of swap, whatever the rest of the machine does.
			h.By += " and memory.swappiness"
		}
		out[Memory] = h
	}
	return out
}

func (p *v1Place) make(id string, r Request) (cgroup, error) {
	g := &v1Group{}
	undo := func(err error) (cgroup, error) {
		ctx, cancel := context.WithTimeout(context.Background(), undoTime)
		defer cancel()
		err = errors.Join(err, g.remove(ctx))
		g.close()
		return nil, err
	}
	bases := make(map[string]bool)
	for _, c := range v1Controllers {
		b, ok := p.at[c]
		if !ok || bases[b.dir] {
			continue
		}
		bases[b.dir] = true
		if b.park {
			if err := p.sys.mkdir(b.home); err != nil && !errors.Is(err, os.ErrExist) {
				return undo(err)
			}
		}
		dir := b.dir + "/" + dirPrefix + id
		if err := p.sys.mkdir(dir); err != nil {
			return undo(err)
		}
		g.parts = append(g.parts, v1Part{dir: dir, home: b.home, tasks: -1, homeTasks: -1})
	}
	g.learn()
	if err := g.setUp(r, p.swap); err != nil {
		return undo(err)
	}
	return g, nil
}

// v1Group is a directory in each of several hierarchies.
type v1Group struct {
	parts []v1Part
	// The directories with the files of each controller; empty where there is none.
	memory, pid, cpu, cpuacct, freezer string
	maxPids                            uint64
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

// learn tells the controllers by their files, so that Open needs to be told directories only.
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
	if r.Pids != 0 {
		g.maxPids = r.Pids
		if err := write(g.pid+"/pids.max", strconv.FormatUint(r.Pids, 10)); err != nil {
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

// start puts a child into the group before it runs. v1 has no clone flag for it, but a child is born where its parent
// thread is: one OS thread, locked to this goroutine, writes itself into the group, forks, and goes back. The kernel
// takes a thread that moves itself without the lock over all forks of the machine, so this costs microseconds, where
// moving a child after its start would cost milliseconds and leave it free for that long.
//
// While the thread is inside it counts as one of the group's pids, so the limit is raised by one for just that long;
// the group itself never gets more than its own, because our thread takes the extra one.
func (g *v1Group) start(cmd *exec.Cmd) (err error) {
	g.starting.Lock()
	defer g.starting.Unlock()
	if err := g.openTasks(); err != nil {
		return err
	}
	if g.maxPids != 0 {
		if err := write(g.pid+"/pids.max", strconv.FormatUint(g.maxPids+1, 10)); err != nil {
			return err
		}
	}
	return offFirstThread(func() error { return g.startHere(cmd) })
}

// offFirstThread runs fn on any thread but the first of the process. The kernel says of a process that it is where its first
// thread is, so with that one inside, another host would take us for a member of the group, and kill us with it.
func offFirstThread(fn func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Gettid() != os.Getpid() {
		return fn()
	}
	done := make(chan error)
	go func() { done <- fn() }() // elsewhere, because this thread is ours until it is done
	return <-done
}

// startHere starts cmd on the calling thread.
func (g *v1Group) startHere(cmd *exec.Cmd) (err error) {
	runtime.LockOSThread()
	var in int
	for ; in < len(g.parts) && err == nil; in++ {
		if err = writeFD(g.parts[in].tasks, "0"); err != nil {
			err = fmt.Errorf("join cgroup %s: %w", g.parts[in].dir, err)
			break
		}
	}
	if err == nil {
		err = cmd.Start()
	}
	if g.maxPids != 0 {
		// Before the thread leaves, so that its place is never anybody else's.
		err = errors.Join(err, write(g.pid+"/pids.max", strconv.FormatUint(g.maxPids, 10)))
	}
	var stuck error
	for _, p := range g.parts[:in] {
		if e := writeFD(p.homeTasks, "0"); e != nil {
			stuck = errors.Join(stuck, fmt.Errorf("leave cgroup %s: %w", p.dir, e))
		}
	}
	if stuck != nil {
		// The thread stays locked, so it ends with this goroutine and never runs anything else inside the group.
		return errors.Join(err, stuck)
	}
	runtime.UnlockOSThread()
	return err
}

func (g *v1Group) openTasks() error {
	for i := range g.parts {
		p := &g.parts[i]
		for _, k := range []struct {
			fd  *int
			dir string
		}{{&p.tasks, p.dir}, {&p.homeTasks, p.home}} {
			if *k.fd >= 0 {
				continue
			}
			fd, err := unix.Open(k.dir+"/tasks", unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				if err == unix.ENOENT {
					return ErrGone
				}
				return fmt.Errorf("open cgroup %s: %w", k.dir, err)
			}
			*k.fd = fd
		}
	}
	return nil
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
	pids, err := readPids(g.main() + "/cgroup.procs")
	if gone(err) {
		err = ErrGone
	}
	return slices.DeleteFunc(pids, g.guest), err
}

// guest tells a process that only has a thread in the group, to fork a child there: this one or another host. The kernel
// lists it, and nobody may kill it. A process whose first thread has ended is no guest: v1 says nothing about where a dead
// thread was.
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
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// pid (any name) state …
	i := strings.LastIndexByte(string(stat), ')')
	return i > 0 && i+2 < len(stat) && stat[i+2] != 'Z' && stat[i+2] != 'X'
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
		s.PidsPeak, s.Counts.PidsPeak = readUint(g.pid + "/pids.peak")
		ev := readKeyed(g.pid + "/pids.events")
		s.PidsHits, s.Counts.PidsHits = ev["max"], ev != nil
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
		list:  func() ([]int, error) { return readPids(g.main() + "/cgroup.procs") },
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
