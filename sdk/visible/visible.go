// Package visible shows the commands of a sandbox the limits that hold for them. The kernel tells a program of its
// cgroup, if at all, and of nothing else that bounds it: /proc and /sys describe the machine. So nproc, free, os.cpu_count,
// make -j and the heap of a runtime follow the machine, and the program dies of the limit.
//
// A backend that shares the kernel of this host calls three functions:
//
//	cpus := visible.Processors(spec.Limits.CPUs)   // let commands run on these: Pin, or sched_setaffinity
//	visible.Mark(holds)                            // plan and result then say where commands see each limit
//	for _, f := range visible.Files(holds, cpus) { // mount each over f.Path, read-only
//
// The files are written once, when a sandbox starts: memory that commands use does not show in them. sysinfo(2), which no
// file can answer, still describes the machine; the JVM takes the size of its heap from it and busybox its free.
package visible

import (
	"strconv"

	"github.com/hutch-run/hutch/sdk"
)

// CgroupDir is the directory of the files that look like a cgroup of version 2. A backend whose commands see their real
// cgroup there leaves those files out.
const CgroupDir = "/sys/fs/cgroup/"

// File is one file as commands shall see it.
type File struct {
	Path string // absolute, inside the sandbox
	Data []byte
}

// where says where commands see a limit.
var where = map[sdk.Limit]string{
	sdk.LimitMemory: "/proc/meminfo and /sys/fs/cgroup, not in sysinfo(2)",
	sdk.LimitCPUs:   "sched_getaffinity, /proc/cpuinfo, /proc/stat, /sys/devices/system/cpu/online and /sys/fs/cgroup",
	sdk.LimitPIDs:   "/sys/fs/cgroup",
}

// Mark sets [sdk.Hold.Visible] of each limit that is held and that Files shows.
func Mark(holds sdk.Holds) {
	for i := range holds {
		if h := &holds[i]; h.HeldBy != "" {
			h.Visible = where[h.Limit]
		}
	}
}

// held returns the value of a limit that is held; 0 when none is.
func held[T int64 | float64](holds sdk.Holds, limit sdk.Limit, parse func(string) (T, error)) T {
	for _, h := range holds {
		if h.Limit == limit && h.HeldBy != "" {
			if v, err := parse(h.Value); err == nil {
				return v
			}
		}
	}
	return 0
}

func parseBytes(s string) (int64, error) {
	n, err := sdk.ParseBytes(s)
	return int64(n), err
}

func parseCount(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }

func parseCPUs(s string) (float64, error) { return strconv.ParseFloat(s, 64) }
