package main

import (
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// cgroup is a container's cgroup, made by the OCI runtime. Package limits knows only groups of its own making.
type cgroup struct {
	v2  bool
	dir map[string]string // controller -> directory; on v2 all are the same
}

// cgroupOf finds the cgroup of a container's first process; nil when the container has none of its own.
func cgroupOf(pid int) *cgroup {
	lines, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil
	}
	mounts := cgroupMounts()
	g := &cgroup{dir: map[string]string{}}
	for line := range strings.Lines(string(lines)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || !strings.Contains(parts[2], "libpod-") && !strings.Contains(parts[2], "/container") {
			continue
		}
		for c := range strings.SplitSeq(parts[1], ",") {
			m, ok := mounts[c]
			if !ok {
				continue
			}
			rel, err := filepath.Rel(m.root, parts[2])
			if err != nil || strings.HasPrefix(rel, "..") {
				continue
			}
			g.dir[c] = filepath.Join(m.at, rel)
		}
	}
	if all, ok := g.dir[""]; ok && unifiedCgroups() {
		g.v2 = true
		for _, c := range []string{"memory", "pids", "cpu"} {
			g.dir[c] = all
		}
	}
	if len(g.dir) == 0 {
		return nil
	}
	return g
}

type cgroupMount struct{ root, at string }

// cgroupMounts returns the hierarchies by controller; that of cgroup v2 is "".
func cgroupMounts() map[string]cgroupMount {
	out := map[string]cgroupMount{}
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return out
	}
	for head, tail := range mountLines(string(data)) {
		m := cgroupMount{root: head[3], at: head[4]}
		switch tail[0] {
		case "cgroup2":
			out[""] = m
		case "cgroup":
			for o := range strings.SplitSeq(tail[2], ",") {
				out[o] = m
			}
		}
	}
	return out
}

// mountLines yields the fields before and after the dash of each line of a mountinfo file: at least five and three. A
// line may be longer than a bufio.Scanner takes, as that of an overlay with many layers.
func mountLines(mountinfo string) iter.Seq2[[]string, []string] {
	return func(yield func(head, tail []string) bool) {
		for line := range strings.Lines(mountinfo) {
			before, after, _ := strings.Cut(line, " - ")
			head, tail := strings.Fields(before), strings.Fields(after)
			if len(head) >= 5 && len(tail) >= 3 && !yield(head, tail) {
				return
			}
		}
	}
}

// counters are the kernel's counts since the container was made.
type counters struct {
	oomKills, pidsHits uint64
	memoryPeak         uint64
	pidsPeak           uint64
}

// read returns the counters; those that this kernel does not keep are 0, and so are those of a group that is gone.
func (g *cgroup) read() (c counters) {
	if g == nil {
		return c
	}
	memory, pids := g.dir["memory"], g.dir["pids"]
	if g.v2 {
		c.oomKills = keyed(memory+"/memory.events", "oom_kill")
		c.memoryPeak = number(memory + "/memory.peak")
	} else {
		c.oomKills = keyed(memory+"/memory.oom_control", "oom_kill")
		c.memoryPeak = number(memory + "/memory.max_usage_in_bytes")
	}
	c.pidsHits = keyed(pids+"/pids.events", "max")
	c.pidsPeak = number(pids + "/pids.peak")
	return c
}

// wrong compares the kernel's limits with those that were asked for, and names the first that is not there.
func (g *cgroup) wrong(h *held) string {
	check := func(controller, v1, v2 string, want int64) string {
		if want <= 0 {
			return ""
		}
		if g == nil || g.dir[controller] == "" {
			return "the container has no cgroup for " + controller
		}
		file := filepath.Join(g.dir[controller], v1)
		if g.v2 {
			file = filepath.Join(g.dir[controller], v2)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return err.Error()
		}
		// The kernel rounds bytes down to whole pages.
		if got, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err != nil || got > want {
			return fmt.Sprintf("%s is %s and not %d", file, strings.TrimSpace(string(b)), want)
		}
		return ""
	}
	if w := check("memory", "memory.limit_in_bytes", "memory.max", h.memory); w != "" {
		return w
	}
	return check("pids", "pids.max", "pids.max", h.pids)
}

// keyed reads one value of a file of "key value" lines.
func keyed(file, key string) uint64 {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == key {
			n, _ := strconv.ParseUint(f[1], 10, 64)
			return n
		}
	}
	return 0
}

func number(file string) uint64 {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return n
}

// processes lists the processes of a container: those of its first process's pid namespace.
func processes(pid int) (out []int) {
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if other, err := os.Readlink("/proc/" + e.Name() + "/ns/pid"); err == nil && other == ns {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}
