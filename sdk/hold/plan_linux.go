package hold

import (
	"cmp"
	"fmt"
	"math"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/limits"
)

// Plan says how the limits of one sandbox are held. The zero value holds nothing; each method adds one limit.
type Plan struct {
	sdk.Holds
	Shown    limits.Request // what is held, for visible.Files
	Sampled  uint64         // bytes of memory that a [limits.Sampler] holds; 0 for no limit
	Disk     uint64         // likewise of disk
	InMemory bool           // all that the sandbox writes lies on a memory file system of Shown's disk limit

	// DefaultMemory is the default in bytes. A sandbox keeps it, however much memory is free later; 0 computes one.
	DefaultMemory int64
}

// Memory holds n bytes of memory, or the default where n is 0. It reports whether the backend has to hold
// [Plan.Shown]'s memory by a cgroup, which takes a default only if group says that the sandbox has one. Else the memory
// is sampled; kills says what is killed then.
func (p *Plan) Memory(n int64, how limits.How, group bool, kills string) (grouped bool) {
	h := sdk.Hold{Limit: sdk.LimitMemory, Default: n <= 0}
	if h.Default {
		if p.DefaultMemory == 0 {
			p.DefaultMemory = int64(limits.DefaultMemory())
		}
		n = p.DefaultMemory
	}
	h.Value = sdk.Bytes(n).String()
	switch {
	case n == 0:
		h.Value, h.Reason = "", "this machine does not say how much memory is available"
	case n < limits.MinMemory:
		h.Reason, h.Fix = "no program can be loaded with so little", "ask for at least "+sdk.Bytes(limits.MinMemory).String()
	case how.By != "" && how.Scope == limits.WholeGroup && (group || !h.Default):
		grouped = true
		h.HeldBy = how.By
	default:
		p.Sampled = uint64(n)
		h.HeldBy, h.Reason, h.Fix = limits.Sampled+": private and shared memory of all processes together, and files in "+
			"memory; "+kills, how.Reason, how.Fix
	}
	if h.HeldBy != "" {
		p.Shown.Memory = uint64(n)
	}
	p.Holds = append(p.Holds, h)
	return grouped
}

// Disk is how the limit of disk can be held for one sandbox.
type Disk struct {
	Dir         string // where its files lie; "/" while that is not known
	Keep        bool   // it is persistent
	Places      string // what counts together; "" for workspace, output, /tmp and /dev/shm
	Memory      string // the mechanism of a memory file system, which holds what fits there; "" for none
	Reason, Fix string // why nothing can hold it; "" where something can
}

// HoldDisk holds the limit of disk, or the default: by a memory file system where somebody asks for
// one that fits, else by sampling a layer on disk. Either way it bounds the number of files, too.
func (p *Plan) HoldDisk(spec *sdk.Spec, d Disk) {
	n := spec.Limits.Disk
	h := sdk.Hold{Limit: sdk.LimitDisk, Default: n <= 0, Reason: d.Reason, Fix: d.Fix}
	switch {
	case !h.Default:
	case d.Keep:
		n = limits.DefaultDisk // and not of what is free beside what it has written before
	default:
		n = int64(limits.DiskDefault(d.Dir))
	}
	h.Value = sdk.Bytes(n).String()
	shared := spec.Workspace.Source != "" && spec.Workspace.Mode == sdk.WorkspaceShared
	if shared {
		h.Reason = "a shared workspace is the project itself, whose file system has no limit for one sandbox"
		h.Fix = "use a private workspace and hutch apply, or leave the limit out"
	}
	for _, m := range spec.Mounts {
		if !m.ReadOnly {
			h.Reason = fmt.Sprintf("%s is a directory of the host that commands may write to, and its file system has no "+
				"limit for one sandbox", m.Target)
			h.Fix = "mount it read-only, or leave the limit out"
		}
	}
	files := limits.FilesOf(uint64(n))
	switch {
	case h.Reason != "":
		if h.Default && shared {
			p.Disk = uint64(n) // of the output
		}
	case !h.Default && !d.Keep && d.Memory != "" && uint64(n) <= limits.DefaultMemory()/2:
		p.InMemory = true
		h.HeldBy = fmt.Sprintf("tmpfs size, and %d files: %s", files, d.Memory)
	default:
		p.Disk = uint64(n)
		h.HeldBy = fmt.Sprintf("%s, and %d files: %s together; all commands are killed", limits.Sampled, files,
			cmp.Or(d.Places, "workspace, output, /tmp and /dev/shm"))
	}
	p.Holds = append(p.Holds, h)
}

// Rlimit holds a limit of n by an rlimit with room for own more, and returns the value to set, 0 where it cannot be
// held. Nothing can have more than the hard limit of this process: a default becomes that, and who asks for more is
// refused.
func (p *Plan) Rlimit(l sdk.Limit, resource int, n, byDefault, own int64, by string, how limits.How) (value uint64) {
	h := sdk.Hold{Limit: l, Default: n <= 0, HeldBy: by, Reason: how.Reason, Fix: how.Fix}
	most := int64(min(limits.HardLimit(resource), math.MaxInt64)) - own
	if h.Default {
		n = min(byDefault, most)
	}
	switch {
	case l == sdk.LimitFiles && n < limits.MinFiles:
		h.HeldBy, h.Reason, h.Fix = "", "no program can be loaded with so few descriptors",
			fmt.Sprintf("ask for at least %d", limits.MinFiles)
	case n > most:
		flag := map[int]string{unix.RLIMIT_NPROC: "-u", unix.RLIMIT_NOFILE: "-n"}[resource]
		h.HeldBy, h.Reason = "",
			fmt.Sprintf("the hard limit of this process is %d, and nothing that it starts can have more", most+own)
		h.Fix = fmt.Sprintf("ask for at most %d, or raise the hard limit (ulimit -H%s) where hutch is started", most, flag)
	default:
		value = uint64(n + own)
		if l == sdk.LimitPIDs {
			p.Shown.PIDs = n
		}
	}
	h.Value = strconv.FormatInt(n, 10)
	p.Holds = append(p.Holds, h)
	return value
}
