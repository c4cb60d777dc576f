package limits

import (
	"fmt"
	"strconv"
)

// Foreign is the cgroup that another program made around a process, such as a container's. It is only read. A nil
// *Foreign counts nothing.
type Foreign struct {
	cg          cgroup
	memory, pid string // the directories with the files of each controller; empty without it
	v2          bool
}

// Of finds the cgroup of a process, of which own recognises the path; nil when the process is in no such cgroup.
func Of(pid int, own func(path string) bool) *Foreign { return thisSystem().of(pid, own) }

func (sys system) of(pid int, own func(path string) bool) *Foreign {
	mounts, err := sys.mounts()
	if err != nil {
		return nil
	}
	paths, err := sys.cgroupsOf(strconv.Itoa(pid))
	if err != nil {
		return nil
	}
	v1, unified := &v1Group{}, ""
	for _, m := range mounts {
		controllers := m.controllers
		if m.v2 {
			controllers = map[string]bool{"": true}
		}
		for c := range controllers {
			p, in := paths[c]
			if !in || !own(p) {
				continue
			}
			if dir, there := sys.dirOf(m, p); there && m.v2 {
				unified = dir
			} else if there {
				v1.parts = append(v1.parts, dir)
			}
		}
	}
	switch {
	case len(v1.parts) > 0:
		v1.learn()
		return &Foreign{cg: v1, memory: v1.memory, pid: v1.pid}
	case unified != "":
		return &Foreign{cg: &v2Group{dir: unified}, memory: unified, pid: unified, v2: true}
	}
	return nil
}

// Stats reads the kernel's counters; those of a group that is gone are 0.
func (f *Foreign) Stats() Stats {
	if f == nil {
		return Stats{}
	}
	s, err := f.cg.stats()
	if err != nil {
		return Stats{}
	}
	return s
}

// Verify compares a limit, [Memory] or [PIDs], with what the kernel holds, which rounds bytes down to whole pages.
func (f *Foreign) Verify(l Limit, want uint64) error {
	dir, file := "", "pids.max"
	if f != nil {
		dir = f.pid
		if l == Memory {
			dir, file = f.memory, "memory.limit_in_bytes"
			if f.v2 {
				file = "memory.max"
			}
		}
	}
	if dir == "" {
		return fmt.Errorf("there is no cgroup for %s", l)
	}
	got, ok := readUint(dir + "/" + file)
	if !ok || got > want {
		return fmt.Errorf("%s/%s is not %d", dir, file, want)
	}
	return nil
}
