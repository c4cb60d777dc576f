package main

import (
	"fmt"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/hold"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/supervise/microinit"
	"github.com/hutch-run/hutch/sdk/visible"
)

// ownProcesses is how many processes of hutch's own a command's limit must leave
// room for: the namespace's init.
const ownProcesses = 1

// held says how the limits of one sandbox are held.
type held struct {
	hold.Plan
	group   limits.Request     // what the cgroup holds; zero when none is needed
	rlimits []microinit.Rlimit // what each command takes on itself
	cpus    []int              // the processors that commands run on; nil means all
	fixed   bool               // which is how the cpus limit is held
	// bytes of the memory file system behind /tmp and /dev/shm, and of all files where Plan.InMemory
	scratch int64
}

// inGroup says whether commands have to enter a cgroup.
func (h *held) inGroup() bool { return h.group != (limits.Request{}) }

// planLimits decides how each limit is held on a machine with the given support, for a sandbox whose files lie in dir,
// "" while that is not known. A limit that cannot be held has an empty HeldBy. defaultMemory is that of a sandbox that
// exists already; 0 computes one.
func planLimits(spec *sdk.Spec, keep bool, dir string, s *limits.Support, defaultMemory int64) *held {
	h := &held{Plan: hold.Plan{DefaultMemory: defaultMemory}}
	l := spec.Limits
	if l.Timeout > 0 {
		h.Hold(sdk.LimitTimeout, l.Timeout.String(), "SIGTERM, grace, then SIGKILL to the whole pid namespace")
	}
	h.holdCPUs(l.CPUs, s.Limits[limits.CPUs])
	h.holdPIDs(l.PIDs, s.Limits[limits.PIDs])
	// A default is sampled unless the sandbox has a cgroup for another limit: making, entering and removing one of version
	// 1 for memory alone took 16 to 47 ms (medians of 200 on a busy machine), and starting the process in it 6 to 7 ms.
	if h.Memory(l.Memory, s.Limits[limits.Memory], h.inGroup(), "the command that uses most is killed") {
		h.group.Memory = h.Shown.Memory
	}
	h.HoldDisk(spec, hold.Disk{Dir: dir, Keep: keep, Memory: "workspace, output, /tmp and /dev/shm are held in memory"})
	h.scratch = int64(configOf(spec).TmpSize)
	switch {
	case h.InMemory:
		h.scratch = l.Disk
	case h.Disk > 0:
		h.scratch = min(h.scratch, int64(h.Disk))
	}
	h.rlimit(unix.RLIMIT_NOFILE, h.Rlimit(sdk.LimitFiles, unix.RLIMIT_NOFILE, l.Files, limits.DefaultFiles, 0,
		"rlimit RLIMIT_NOFILE", limits.How{}))
	h.Show(visible.Where)
	return h
}

// holdPIDs holds the limit by a cgroup where somebody asks and there is one, else by an rlimit.
func (h *held) holdPIDs(n int64, how limits.How) {
	if n > 0 && how.By != "" && how.Scope == limits.WholeGroup {
		h.group.PIDs, h.Shown.PIDs = n+ownProcesses, n
		h.Hold(sdk.LimitPIDs, strconv.FormatInt(n, 10), how.By)
		return
	}
	h.rlimit(unix.RLIMIT_NPROC, h.Rlimit(sdk.LimitPIDs, unix.RLIMIT_NPROC, n, limits.DefaultPIDs, ownProcesses,
		"rlimit RLIMIT_NPROC in a user namespace of its own, for each command", how))
}

// holdCPUs holds the cpus limit by a cgroup's quota, else, for whole numbers, by
// letting commands run on so many processors only; then the system call filter
// refuses to change that.
func (h *held) holdCPUs(cpus float64, how limits.How) {
	value := strconv.FormatFloat(cpus, 'g', -1, 64)
	h.cpus = visible.Processors(cpus)
	switch n := int(cpus); {
	case cpus <= 0:
	case how.By != "" && how.Scope == limits.WholeGroup:
		h.group.CPUs, h.Shown.CPUs = cpus, cpus
		h.Hold(sdk.LimitCPUs, value, how.By)
	case float64(n) != cpus:
		h.Refuse(sdk.LimitCPUs, value,
			how.Reason+"; a whole number would be held by letting commands use so many processors only", how.Fix)
	default:
		h.fixed, h.Shown.CPUs = true, cpus
		h.Holds = append(h.Holds, sdk.Hold{Limit: sdk.LimitCPUs, Value: value,
			HeldBy: fmt.Sprintf("sched_setaffinity: %d of the %d processors", len(h.cpus), runtime.NumCPU()),
			Reason: how.Reason, Fix: how.Fix})
	}
}

// rlimit adds an rlimit; 0 is one that cannot be held.
func (h *held) rlimit(resource int, value uint64) {
	if value > 0 {
		h.rlimits = append(h.rlimits, microinit.Rlimit{Resource: resource, Value: value})
	}
}
