// Package visible shows the commands of a sandbox the limits that hold for them. The kernel shows a program its cgroup,
// if at all, and nothing else that bounds it: /proc and /sys describe the machine. So nproc, free, os.cpu_count, make
// -j and the heap of a runtime follow the machine, and the program dies of the limit.
//
// What starts commands on the kernel in question, a backend or its program in a virtual machine, calls two functions:
//
//	cpus := visible.Processors(limits.CPUs)         // let commands run on these: Pin, or sched_setaffinity
//	for _, f := range visible.Files(limits, cpus) { // mount each over f.Path, read-only
//
// and the backend sets [sdk.Hold.Visible] of the limits that are held with sdk.Holds.Show([Where]).
//
// The files are written once, when a sandbox or a command starts: memory that commands use does not show in them.
// sysinfo(2), which no file can answer, still describes the machine; the JVM takes the size of its heap from it and
// busybox its free.
package visible

// CgroupDir is the directory of the files that look like a cgroup of version 2. A backend whose commands see their real
// cgroup there leaves those files out.
const CgroupDir = "/sys/fs/cgroup/"

// File is one file as commands shall see it.
type File struct {
	Path string // absolute, inside the sandbox
	Data []byte
}

// Where says for the name of each limit where commands see it.
var Where = map[string]string{
	"memory": "/proc/meminfo and /sys/fs/cgroup, not in sysinfo(2)",
	"cpus":   "sched_getaffinity, /proc/cpuinfo, /proc/stat, /sys/devices/system/cpu/online and /sys/fs/cgroup",
	"pids":   "/sys/fs/cgroup",
}
