package limits

import (
	"math"
	"path"

	"golang.org/x/sys/unix"
)

// DefaultMemory is the memory limit in bytes of a sandbox for which nobody asks for one: three quarters of what is
// available now to this process, by the machine and by the cgroups it is in; in whole MiB, 0 if that is not known.
func DefaultMemory() uint64 { return thisSystem().defaultMemory() }

func (sys system) defaultMemory() uint64 {
	free := field(readFile(sys.root+"/proc/meminfo"), "MemAvailable:")
	if free == 0 {
		return 0
	}
	mounts, err1 := sys.mounts()
	own, err2 := sys.ownCgroups()
	if err1 == nil && err2 == nil {
		for _, m := range mounts {
			p, ok := own["memory"]
			limit, usage, inactive := "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
			if m.v2 {
				p, ok = own[""]
				limit, usage, inactive = "memory.max", "memory.current", "inactive_file"
			} else if !m.controllers["memory"] {
				continue
			}
			dir, there := sys.dirOf(m, p)
			if !ok || !there {
				continue
			}
			for top := sys.root + m.dir; len(dir) >= len(top); dir = path.Dir(dir) {
				most, limited := readUint(dir + "/" + limit)
				used, _ := readUint(dir + "/" + usage)
				used -= min(readKeyed(dir + "/memory.stat")[inactive], used) // the kernel takes it back when somebody needs it
				if limited && most < math.MaxInt64>>1 {
					free = min(free, most-min(used, most))
				}
			}
		}
	}
	return threeQuarters(free) >> 20 << 20
}

// DiskDefault is the disk limit in bytes of a sandbox for which nobody asks for one, whose files lie in dir:
// DefaultDisk, or three quarters of what is free there.
func DiskDefault(dir string) uint64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return DefaultDisk
	}
	return min(DefaultDisk, threeQuarters(st.Bavail*uint64(st.Bsize))>>20<<20)
}

// HardLimit returns the hard limit of this process for a resource, which nothing that it starts may exceed.
func HardLimit(resource int) uint64 {
	var r unix.Rlimit
	if err := unix.Getrlimit(resource, &r); err != nil {
		return unix.RLIM_INFINITY
	}
	return r.Max
}
