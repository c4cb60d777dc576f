package main

import (
	"fmt"
	"math"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/microinit"
	"github.com/hutch-run/hutch/sdk/visible"
)

// ownProcesses is how many processes of hutch's own a command's limit must leave
// room for: the namespace's init.
const ownProcesses = 1

// held says how the limits of one sandbox are held.
type held struct {
	group   limits.Request     // what the cgroup holds; zero when none is needed
	rlimits []microinit.Rlimit // what each command takes on itself
	cpus    []int              // the processors that commands run on; nil means all
	fixed   bool               // which is how the cpus limit is held
	scratch int64              // bytes of the memory file system behind /tmp and /dev/shm
	inside  bool               // whether workspace and output lie there, too
	memory  int64              // sampled; 0 for no limit
	disk    int64              // likewise
	sdk.Holds

	defaultMemory int64 // bytes; a sandbox keeps it, however much memory is free later
}

// inGroup says whether commands have to enter a cgroup.
func (h *held) inGroup() bool { return h.group != (limits.Request{}) }

// planLimits decides how each limit is held on a machine with the given support, for a sandbox whose files lie in dir, ""
// while that is not known. A limit that cannot be held has an empty HeldBy. defaultMemory is that of a sandbox that exists
// already; 0 computes one.
func planLimits(spec *sdk.Spec, keep bool, dir string, s *limits.Support, defaultMemory int64) *held {
	h := &held{defaultMemory: defaultMemory}
	l := spec.Limits
	if l.Timeout > 0 {
		h.Hold(sdk.LimitTimeout, l.Timeout.String(), "SIGTERM, grace, then SIGKILL to the whole pid namespace")
	}
	h.holdCPUs(l.CPUs, s.Limits[limits.CPUs])
	h.holdPIDs(l.PIDs, s.Limits[limits.PIDs])
	h.holdMemory(l.Memory, s.Limits[limits.Memory])
	h.holdDisk(spec, keep, dir)
	h.holdRlimit(sdk.LimitFiles, unix.RLIMIT_NOFILE, l.Files, limits.DefaultFiles, 0, "rlimit RLIMIT_NOFILE", limits.How{})
	h.rlimit(unix.RLIMIT_CORE, 0) // nobody writes a command's memory to the host
	visible.Mark(h.Holds)
	return h
}

const sampledMemory = ": private and shared memory of all processes together, and files in memory; the command that uses most is killed"

// holdMemory holds the memory limit by a cgroup where there is one, else by sampling. A default is not worth the time that
// it takes to make a cgroup.
func (h *held) holdMemory(n int64, how limits.How) {
	grouped := how.By != "" && how.Scope == limits.WholeGroup
	hold := sdk.Hold{Limit: sdk.LimitMemory, Value: sdk.Bytes(n).String()}
	if n <= 0 {
		if h.defaultMemory == 0 {
			h.defaultMemory = int64(limits.DefaultMemory())
		}
		n = h.defaultMemory
		hold.Default, hold.Value = true, sdk.Bytes(n).String()
		if n == 0 {
			hold.Value, hold.Reason = "", "this machine does not say how much memory is available"
			h.Holds = append(h.Holds, hold)
			return
		}
		grouped = grouped && h.inGroup()
	}
	switch {
	case n < limits.MinMemory:
		hold.Reason, hold.Fix = "no program can be loaded with so little", "ask for at least "+sdk.Bytes(limits.MinMemory).String()
	case grouped:
		h.group.Memory = uint64(n)
		hold.HeldBy = how.By
	default:
		h.memory = n
		hold.HeldBy, hold.Reason, hold.Fix = limits.Sampled+sampledMemory, how.Reason, how.Fix
	}
	h.Holds = append(h.Holds, hold)
}

// holdPIDs holds the limit by a cgroup where somebody asks and there is one, else by an rlimit.
func (h *held) holdPIDs(n int64, how limits.How) {
	if n > 0 && how.By != "" && how.Scope == limits.WholeGroup {
		h.group.PIDs = n + ownProcesses
		h.Hold(sdk.LimitPIDs, strconv.FormatInt(n, 10), how.By)
		return
	}
	h.holdRlimit(sdk.LimitPIDs, unix.RLIMIT_NPROC, n, limits.DefaultPIDs, ownProcesses, "rlimit RLIMIT_NPROC in a user namespace of its own, for each command", how)
}

// holdRlimit holds a limit by an rlimit with room for own more. Nothing can have more than the hard limit of this process:
// a default becomes that, and who asks for more is refused.
func (h *held) holdRlimit(l sdk.Limit, resource int, n, byDefault, own int64, by string, how limits.How) {
	hold := sdk.Hold{Limit: l, Default: n <= 0, HeldBy: by, Reason: how.Reason, Fix: how.Fix}
	most := int64(min(limits.HardLimit(resource), math.MaxInt64)) - own
	if hold.Default {
		n = min(byDefault, most)
	}
	switch {
	case l == sdk.LimitFiles && n < limits.MinFiles:
		hold.HeldBy, hold.Reason, hold.Fix = "", "no program can be loaded with so few descriptors", fmt.Sprintf("ask for at least %d", limits.MinFiles)
	case n > most:
		flag := map[int]string{unix.RLIMIT_NPROC: "-u", unix.RLIMIT_NOFILE: "-n"}[resource]
		hold.HeldBy, hold.Reason = "", fmt.Sprintf("the hard limit of this process is %d, and nothing that it starts can have more", most+own)
		hold.Fix = fmt.Sprintf("ask for at most %d, or raise the hard limit (ulimit -H%s) where hutch is started", most, flag)
	default:
		h.rlimit(resource, uint64(n+own))
	}
	hold.Value = strconv.FormatInt(n, 10)
	h.Holds = append(h.Holds, hold)
}

// holdDisk holds the disk limit by a memory file system where somebody asks for one that fits, else by sampling a layer
// on disk. Either way it bounds the number of files, too.
func (h *held) holdDisk(spec *sdk.Spec, keep bool, dir string) {
	n := spec.Limits.Disk
	h.scratch = int64(configOf(spec).TmpSize)
	hold := sdk.Hold{Limit: sdk.LimitDisk, Default: n <= 0}
	switch {
	case !hold.Default:
	case keep:
		n = limits.DefaultDisk // and not of what is free beside what it has written before
	default:
		n = int64(limits.DiskDefault(dir))
	}
	hold.Value = sdk.Bytes(n).String()
	files := limits.FilesOf(uint64(n))
	shared := spec.Workspace.Source != "" && spec.Workspace.Mode == sdk.WorkspaceShared
	switch {
	case shared:
		hold.Reason = "a shared workspace is the project itself, whose file system has no limit for one sandbox"
		hold.Fix = "use a private workspace and hutch apply, or leave the limit out"
		if hold.Default {
			h.disk = n // of the output
		}
	case !hold.Default && !keep && uint64(n) <= limits.DefaultMemory()/2:
		h.scratch, h.inside = n, true
		hold.HeldBy = fmt.Sprintf("tmpfs size, and %d files: workspace, output, /tmp and /dev/shm are held in memory", files)
	default:
		h.disk = n
		h.scratch = min(h.scratch, n)
		hold.HeldBy = fmt.Sprintf("%s, and %d files: workspace, output, /tmp and /dev/shm together; all commands are killed", limits.Sampled, files)
	}
	h.Holds = append(h.Holds, hold)
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

func (h *held) rlimit(resource int, value uint64) {
	h.rlimits = append(h.rlimits, microinit.Rlimit{Resource: resource, Value: value})
}
