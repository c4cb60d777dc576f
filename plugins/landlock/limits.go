package main

import (
	"fmt"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/hold"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/visible"
)

// countedTasks is how the limit of processes is held. An rlimit counts all processes of the user, and none of root.
var countedTasks = limits.Sampled + ": processes and threads of each command alone, which is killed"

// held says how the limits of one sandbox are held.
type held struct {
	hold.Plan
	rlimits limits.Rlimits
	pids    int   // processes and threads of a command
	cpus    []int // the processors that commands run on; nil means all
}

// planLimits decides how each limit is held for a sandbox whose files lie in dir, "/" while that is not known.
func planLimits(spec *sdk.Spec, dir string) *held {
	h := &held{}
	l := spec.Limits
	if l.Timeout > 0 {
		h.Hold(sdk.LimitTimeout, l.Timeout.String(),
			"SIGTERM, grace, then SIGKILL to all descendants of the command's reaper")
	}
	h.holdCPUs(l.CPUs)
	pids := sdk.Hold{Limit: sdk.LimitPIDs, Default: l.PIDs <= 0, HeldBy: countedTasks}
	h.pids = int(l.PIDs)
	if pids.Default {
		h.pids = limits.DefaultPIDs
	}
	pids.Value = strconv.Itoa(h.pids)
	h.Holds = append(h.Holds, pids)
	h.Memory(l.Memory, limits.How{}, false, "the command that uses most is killed")
	h.HoldDisk(spec, hold.Disk{Dir: dir, Places: "workspace, output and TMPDIR"})
	files, core := h.Rlimit(sdk.LimitFiles, unix.RLIMIT_NOFILE, l.Files, limits.DefaultFiles, 0, "rlimit RLIMIT_NOFILE",
		limits.How{}), uint64(limits.NoCore)
	h.rlimits.Core = &core // nobody writes a command's memory to the host
	if files > 0 {
		h.rlimits.NoFile = &files
	}
	return h
}

// holdCPUs holds a whole number by letting commands run on so many processors only, which the filter keeps them from
// changing.
func (h *held) holdCPUs(cpus float64) {
	value := strconv.FormatFloat(cpus, 'g', -1, 64)
	switch n := int(cpus); {
	case cpus <= 0:
	case float64(n) != cpus:
		h.Refuse(sdk.LimitCPUs, value,
			"without a cgroup a whole number is held, by letting commands use so many processors only",
			"ask for a whole number, or use another backend")
	default:
		h.cpus = visible.Processors(cpus)
		h.Hold(sdk.LimitCPUs, value, fmt.Sprintf("sched_setaffinity: %d of the %d processors", len(h.cpus), runtime.NumCPU()))
	}
}
