package visible

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/limits"
)

// cpuPeriod is the period of a quota in cpu.max, in microseconds.
const cpuPeriod = 100_000

// next is where Processors goes on, so that sandboxes do not crowd on the first processors.
var next atomic.Uint32

func init() { next.Store(rand.Uint32() >> 8) }

// Processors chooses the processors for commands under a limit of cpus: as many as cpus, rounded up, of those this
// process may use. It returns nil where there is no limit. The numbers are the machine's own, so that they agree with
// what sched_getcpu says.
func Processors(cpus float64) []int {
	if cpus <= 0 {
		return nil
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil
	}
	var all, out []int
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			all = append(all, i)
		}
	}
	n := min(int(math.Ceil(cpus)), len(all))
	start := int(next.Add(uint32(n))) - n
	for i := range n {
		out = append(out, all[(start+i)%len(all)])
	}
	slices.Sort(out)
	return out
}

// Pin lets a process with all its threads, and what they start from now on, run on processors alone; nil changes
// nothing.
func Pin(pid int, processors []int) error {
	if len(processors) == 0 {
		return nil
	}
	var set unix.CPUSet
	for _, n := range processors {
		set.Set(n)
	}
	done := map[string]bool{}
	for more := true; more; { // until there is no thread that one begot meanwhile
		more = false
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return fmt.Errorf("list the threads of process %d: %w", pid, err)
		}
		for _, t := range threads {
			if done[t.Name()] {
				continue
			}
			done[t.Name()], more = true, true
			tid, err := strconv.Atoi(t.Name())
			if err == nil {
				err = unix.SchedSetaffinity(tid, &set)
			}
			if err != nil && err != unix.ESRCH {
				return fmt.Errorf("keep process %d to processors %s: %w", pid, list(processors), err)
			}
		}
	}
	return nil
}

// Files returns what commands shall see at places that describe the machine, given the limits that are held and which
// processors commands run on: nothing about memory and processors that are not limited. It may be called concurrently.
func Files(held limits.Request, processors []int) []File {
	memory, cpus, pids := int64(held.Memory), held.CPUs, held.PIDs
	var out []File
	add := func(path, data string) { out = append(out, File{path, []byte(data)}) }
	if total := machineMemory(); memory > 0 && (total == 0 || memory < total) {
		add("/proc/meminfo", meminfo(memory>>10))
	}
	if len(processors) > 0 {
		add("/proc/cpuinfo", cpuinfo(hostCPUs(), processors))
		add("/proc/stat", stat(processors))
		add("/proc/loadavg", "0.00 0.00 0.00 1/1 1\n")
		add("/sys/devices/system/cpu/online", list(processors)+"\n")
	}
	if memory <= 0 && cpus <= 0 && pids <= 0 {
		return out
	}
	add(CgroupDir+"cgroup.controllers", "cpu memory pids\n")
	add(CgroupDir+"memory.max", orMax(memory&^4095))
	add(CgroupDir+"memory.high", orMax(0))
	add(CgroupDir+"memory.swap.max", "0\n")
	quota := "max"
	if cpus > 0 {
		quota = strconv.Itoa(int(math.Round(cpus * cpuPeriod)))
	}
	add(CgroupDir+"cpu.max", fmt.Sprintln(quota, cpuPeriod))
	add(CgroupDir+"pids.max", orMax(pids))
	return out
}

func orMax(n int64) string {
	if n <= 0 {
		return "max\n"
	}
	return strconv.FormatInt(n, 10) + "\n"
}

// machineMemory is the memory of this machine in bytes, 0 if unknown.
func machineMemory() int64 {
	var s unix.Sysinfo_t
	if err := unix.Sysinfo(&s); err != nil {
		return 0
	}
	return int64(s.Totalram) * int64(s.Unit)
}

// meminfo is /proc/meminfo of a machine whose memory is free, and that has no swap.
func meminfo(kB int64) string {
	var b strings.Builder
	for _, f := range []struct {
		name string
		kB   int64
	}{
		{"MemTotal", kB}, {"MemFree", kB}, {"MemAvailable", kB}, {"Buffers", 0}, {"Cached", 0}, {"SwapCached", 0},
		{"Active", 0}, {"Inactive", 0},
		{"SwapTotal", 0}, {"SwapFree", 0}, {"Dirty", 0}, {"Writeback", 0}, {"AnonPages", 0}, {"Mapped", 0}, {"Shmem", 0},
		{"Slab", 0},
		{"SReclaimable", 0}, {"SUnreclaim", 0}, {"CommitLimit", kB}, {"Committed_AS", 0},
	} {
		fmt.Fprintf(&b, "%-15s %8d kB\n", f.name+":", f.kB)
	}
	return b.String()
}

// hostCPUs is the machine's /proc/cpuinfo, read once: on a large machine that takes milliseconds.
var hostCPUs = sync.OnceValue(func() []byte {
	data, _ := os.ReadFile("/proc/cpuinfo")
	return data
})

// cpuinfo is what host says of processors, and of none besides.
func cpuinfo(host []byte, processors []int) string {
	var b strings.Builder
	for _, block := range bytes.Split(host, []byte("\n\n")) {
		if len(block) == 0 {
			continue
		}
		var kept strings.Builder
		show := true
		for line := range strings.Lines(string(block)) {
			key, value, _ := strings.Cut(line, ":")
			n, err := strconv.Atoi(strings.TrimSpace(value))
			switch strings.TrimSpace(key) {
			case "processor":
				show = show && (err != nil || slices.Contains(processors, n))
			case "siblings", "cpu cores": // by which physical processors are counted
				if err == nil {
					line = key + ": " + strconv.Itoa(min(n, len(processors))) + "\n"
				}
			}
			kept.WriteString(line)
		}
		if show {
			b.WriteString(strings.TrimSuffix(kept.String(), "\n") + "\n\n")
		}
	}
	return b.String()
}

// stat is /proc/stat of a machine that has been idle since it started.
func stat(processors []int) string {
	var up unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &up)
	const ticks = 100 // in a second, of USER_HZ
	idle := up.Sec * ticks
	var b strings.Builder
	fmt.Fprintf(&b, "cpu  0 0 0 %d 0 0 0 0 0 0\n", idle*int64(len(processors)))
	for _, n := range processors {
		fmt.Fprintf(&b, "cpu%d 0 0 0 %d 0 0 0 0 0 0\n", n, idle)
	}
	fmt.Fprintf(&b, "intr 0\nctxt 0\nbtime %d\nprocesses 1\nprocs_running 1\nprocs_blocked 0\nsoftirq 0\n",
		time.Now().Unix()-up.Sec)
	return b.String()
}

// list writes processors as the kernel does: "0-2,5".
func list(processors []int) string {
	var parts []string
	for i := 0; i < len(processors); {
		j := i
		for j+1 < len(processors) && processors[j+1] == processors[j]+1 {
			j++
		}
		part := strconv.Itoa(processors[i])
		if j > i {
			part += "-" + strconv.Itoa(processors[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}
