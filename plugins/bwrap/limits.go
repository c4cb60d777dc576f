package main

import (
	"fmt"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/microinit"
	"github.com/hutch-run/hutch/sdk/visible"
)

// What a sandbox gets when nobody asks: enough for any build, too little for a
// fork bomb or a descriptor leak to be felt outside.
const (
	defaultPIDs  = 1024
	defaultFiles = 1024
)

// ownProcesses is how many processes of hutch's own a command's limit must leave
// room for: the namespace's init.
const ownProcesses = 1

// least open files with which a program can be loaded.
const minFiles = 8

// held says how the limits of one sandbox are held.
type held struct {
	group   limits.Request     // what the cgroup holds; zero when none is needed
	rlimits []microinit.Rlimit // what each command takes on itself
	cpus    []int              // the processors that commands run on; nil means all
	fixed   bool               // which is how the cpus limit is held
	sdk.Holds
}

// inGroup says whether commands have to enter a cgroup.
func (h *held) inGroup() bool { return h.group != (limits.Request{}) }

// planLimits decides how each limit is held on a machine with the given support.
// A limit that cannot be held has an empty HeldBy.
func planLimits(l sdk.Limits, s *limits.Support) *held {
	h := &held{}
	if l.Timeout > 0 {
		h.Hold(sdk.LimitTimeout, l.Timeout.String(), "SIGTERM, grace, then SIGKILL to the whole pid namespace")
	}
	switch {
	case l.Memory > 0 && l.Memory < limits.MinMemory:
		h.Refuse(sdk.LimitMemory, sdk.Bytes(l.Memory).String(), "no program can be loaded with so little", "ask for at least "+sdk.Bytes(limits.MinMemory).String())
	case l.Memory > 0:
		h.byGroup(sdk.LimitMemory, sdk.Bytes(l.Memory).String(), s.Limits[limits.Memory], func() { h.group.Memory = uint64(l.Memory) },
			"rlimit RLIMIT_AS, address space of each process, what it reserves and never uses included", unix.RLIMIT_AS, uint64(l.Memory))
	}
	h.holdCPUs(l.CPUs, s.Limits[limits.CPUs])
	const nproc = "rlimit RLIMIT_NPROC in a user namespace of its own, for each command"
	if l.PIDs > 0 {
		h.byGroup(sdk.LimitPIDs, strconv.FormatInt(l.PIDs, 10), s.Limits[limits.Pids], func() { h.group.Pids = uint64(l.PIDs + ownProcesses) },
			nproc, unix.RLIMIT_NPROC, uint64(l.PIDs+ownProcesses))
	} else {
		h.rlimit(unix.RLIMIT_NPROC, defaultPIDs+ownProcesses)
		h.Holds = append(h.Holds, sdk.Hold{Limit: sdk.LimitPIDs, Value: strconv.Itoa(defaultPIDs), Default: true, HeldBy: nproc})
	}
	if l.Disk > 0 {
		if free := limits.MemoryAndSwap(); free > 0 && l.Disk > free {
			h.Refuse(sdk.LimitDisk, sdk.Bytes(l.Disk).String(),
				fmt.Sprintf("it is held by a file system in memory, and this machine has %s of memory and swap", sdk.Bytes(free>>20<<20)),
				"ask for less, or leave the limit away")
		} else {
			h.Hold(sdk.LimitDisk, sdk.Bytes(l.Disk).String(), "tmpfs size: workspace, output, /tmp and /dev/shm are held in memory")
		}
	}
	switch {
	case l.Files >= minFiles:
		h.rlimit(unix.RLIMIT_NOFILE, uint64(l.Files))
		h.Hold(sdk.LimitFiles, strconv.FormatInt(l.Files, 10), "rlimit RLIMIT_NOFILE")
	case l.Files > 0:
		h.Refuse(sdk.LimitFiles, strconv.FormatInt(l.Files, 10), "no program can be loaded with so few descriptors", fmt.Sprintf("ask for at least %d", minFiles))
	default:
		h.rlimit(unix.RLIMIT_NOFILE, defaultFiles)
		h.Holds = append(h.Holds, sdk.Hold{Limit: sdk.LimitFiles, Value: strconv.Itoa(defaultFiles), Default: true, HeldBy: "rlimit RLIMIT_NOFILE"})
	}
	h.rlimit(unix.RLIMIT_CORE, 0) // nobody writes a command's memory to the host
	visible.Mark(h.Holds)
	return h
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
		h.group.CPUs = cpus
		h.Hold(sdk.LimitCPUs, value, how.By)
	case float64(n) != cpus:
		h.Refuse(sdk.LimitCPUs, value, how.Reason+"; a whole number would be held by letting commands use so many processors only", how.Fix)
	default:
		h.fixed = true
		h.Holds = append(h.Holds, sdk.Hold{Limit: sdk.LimitCPUs, Value: value,
			HeldBy: fmt.Sprintf("sched_setaffinity: %d of the %d processors", len(h.cpus), runtime.NumCPU()), Reason: how.Reason, Fix: how.Fix})
	}
}

// byGroup holds a limit by a cgroup where there is one, else by an rlimit.
func (h *held) byGroup(l sdk.Limit, value string, how limits.How, group func(), rlimitText string, resource int, rlimit uint64) {
	switch {
	case how.By != "" && how.Scope == limits.WholeGroup:
		group()
		h.Hold(l, value, how.By)
	default:
		h.rlimit(resource, rlimit)
		h.Holds = append(h.Holds, sdk.Hold{Limit: l, Value: value, HeldBy: rlimitText, Reason: how.Reason, Fix: how.Fix})
	}
}

func (h *held) rlimit(resource int, value uint64) {
	h.rlimits = append(h.rlimits, microinit.Rlimit{Resource: resource, Value: value})
}
