package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/visible"
)

// maxProcesses is the rlimit of processes where a cgroup holds the limit: podman lowers its own, and where that cannot be
// raised again a container that asks for more does not start.
const maxProcesses = 16384

// held says how the limits of one sandbox are held.
type held struct {
	sdk.Holds
	flags []string // of podman run
	// checks are the kernel's values that must stand in the container's cgroup once it runs; a limit that is not there
	// after all ends the creation.
	cgroup  bool
	memory  int64
	pids    int64 // with the room for our own processes
	files   uint64
	nproc   uint64
	inside  bool   // whether all that the sandbox writes lies in a memory file system
	sampled uint64 // bytes of memory, where no cgroup holds them; 0 for no limit
	disk    int64  // likewise of disk
	cpus    []int  // the processors that commands run on; nil means all

	defaultMemory int64 // bytes; a sandbox keeps it, however much memory is free later
}

// machine is what this machine lets Podman hold, found without starting anything.
type machine struct {
	rootless bool
	limits   map[limits.Limit]limits.How
}

// probeMachine looks at the cgroups.
func probeMachine() *machine {
	m := &machine{rootless: os.Geteuid() != 0, limits: map[limits.Limit]limits.How{}}
	if !m.rootless {
		m.limits = limits.Probe().Limits
		return m
	}
	controllers := delegated()
	for l, file := range map[limits.Limit]string{limits.Memory: "memory.max", limits.CPUs: "cpu.max", limits.PIDs: "pids.max"} {
		name, _, _ := strings.Cut(file, ".")
		switch {
		case slices.Contains(controllers, name):
			m.limits[l] = limits.How{By: "cgroup v2 " + file, Scope: limits.WholeGroup}
		case !unifiedCgroups():
			m.limits[l] = limits.How{Reason: "without root Podman holds it only on cgroup v2, and this machine has v1",
				Fix: "boot with systemd.unified_cgroup_hierarchy=1, run hutch as root, or use the backend bwrap"}
		default:
			m.limits[l] = limits.How{Reason: "the controller " + name + " is not delegated to this user, or the user has no systemd session",
				Fix: "log in through systemd and set Delegate=cpu cpuset io memory pids for user@.service"}
		}
	}
	return m
}

// delegated lists the cgroup v2 controllers that systemd lets this user hand on.
func delegated() []string {
	if !unifiedCgroups() || !systemdManages(true) {
		return nil
	}
	uid := os.Geteuid()
	b, err := os.ReadFile(fmt.Sprintf("/sys/fs/cgroup/user.slice/user-%d.slice/user@%d.service/cgroup.controllers", uid, uid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

// planLimits decides how each limit is held, for a sandbox whose files lie in dir. One that cannot be held has an empty
// HeldBy. defaultMemory is that of a sandbox that exists already; 0 computes one.
func planLimits(spec *sdk.Spec, keep bool, dir string, m *machine, defaultMemory int64) *held {
	h := &held{defaultMemory: defaultMemory}
	l, c := spec.Limits, configOf(spec)
	if l.Timeout > 0 {
		h.Hold(sdk.LimitTimeout, l.Timeout.String(), "SIGTERM, grace, then SIGKILL to all that the command started")
	}
	h.holdMemory(l.Memory, m.limits[limits.Memory])
	if l.CPUs > 0 {
		h.byCgroup(sdk.LimitCPUs, strconv.FormatFloat(l.CPUs, 'g', -1, 64), m.limits[limits.CPUs], func() {
			h.flag("--cpus=%s", strconv.FormatFloat(l.CPUs, 'f', -1, 64))
		})
	}
	h.cpus = visible.Processors(l.CPUs)
	h.holdPIDs(l.PIDs, m)
	h.holdDisk(spec, c, keep, dir, m)
	h.holdFiles(l.Files)
	visible.Mark(h.Holds)
	return h
}

// holdMemory holds the memory limit by the container's cgroup where it has one, else by sampling.
func (h *held) holdMemory(n int64, how limits.How) {
	hold := sdk.Hold{Limit: sdk.LimitMemory, Default: n <= 0}
	if hold.Default {
		if h.defaultMemory == 0 {
			h.defaultMemory = int64(limits.DefaultMemory())
		}
		n = h.defaultMemory
	}
	hold.Value = sdk.Bytes(n).String()
	switch {
	case n == 0:
		hold.Value, hold.Reason = "", "this machine does not say how much memory is available"
	case n < limits.MinMemory:
		hold.Reason, hold.Fix = "no program can be loaded with so little", "ask for at least "+sdk.Bytes(limits.MinMemory).String()
	case how.By != "" && how.Scope == limits.WholeGroup:
		h.cgroup, h.memory = true, n
		h.flag("--memory=%db", n)
		h.flag("--memory-swap=%db", n)
		hold.HeldBy = how.By
	default:
		h.sampled = uint64(n)
		hold.HeldBy, hold.Reason, hold.Fix = limits.Sampled+": private and shared memory of all processes together, and files in memory; all commands are killed", how.Reason, how.Fix
	}
	h.Holds = append(h.Holds, hold)
}

func (h *held) holdPIDs(n int64, m *machine) {
	how := m.limits[limits.PIDs]
	if how.By != "" && how.Scope == limits.WholeGroup {
		asked := n > 0
		if !asked {
			n = limits.DefaultPIDs
		}
		h.cgroup, h.pids = true, n+ownProcesses
		h.flag("--pids-limit=%d", h.pids)
		h.Holds = append(h.Holds, sdk.Hold{Limit: sdk.LimitPIDs, Value: strconv.FormatInt(n, 10), Default: !asked, HeldBy: how.By})
		h.nproc = hardLimit(unix.RLIMIT_NPROC, maxProcesses)
		return
	}
	h.flag("--pids-limit=0")
	if n > 0 {
		h.Refuse(sdk.LimitPIDs, strconv.FormatInt(n, 10), how.Reason, how.Fix)
		h.nproc = hardLimit(unix.RLIMIT_NPROC, maxProcesses)
		return
	}
	h.nproc = hardLimit(unix.RLIMIT_NPROC, limits.DefaultPIDs)
	h.Holds = append(h.Holds, sdk.Hold{Limit: sdk.LimitPIDs, Value: strconv.FormatUint(h.nproc, 10), Default: true,
		HeldBy: "rlimit RLIMIT_NPROC, of all containers of this user together", Reason: how.Reason, Fix: how.Fix})
}

// holdDisk holds the disk limit by a memory file system under all that the sandbox writes, which takes root, else by
// sampling. Either way it bounds the number of files, too.
func (h *held) holdDisk(spec *sdk.Spec, c *Config, keep bool, dir string, m *machine) {
	n := spec.Limits.Disk
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
	switch {
	case spec.Workspace.Source != "" && spec.Workspace.Mode == sdk.WorkspaceShared:
		hold.Reason = "a shared workspace is the project itself, whose file system has no limit for one sandbox"
		hold.Fix = "use a private workspace and hutch apply, or leave the limit out"
	case !c.Root:
		hold.Reason, hold.Fix = "the image's own files can be written to, and Podman's storage has no quota", "set read_only = true"
	case !hold.Default && !keep && !m.rootless && len(c.Tmpfs) == 0 && uint64(n) <= limits.DefaultMemory()/2:
		h.inside, h.disk = true, n // where commands are root they can write to /dev, too
		hold.HeldBy = fmt.Sprintf("tmpfs size, and %d files: workspace, output, /tmp and /dev/shm are held in memory; with /dev %s", files, limits.Sampled)
	default:
		h.disk = n
		hold.HeldBy = fmt.Sprintf("%s, and %d files: workspace, output, /tmp and /dev/shm together; all commands are killed", limits.Sampled, files)
	}
	h.Holds = append(h.Holds, hold)
}

func (h *held) holdFiles(n int64) {
	by := "rlimit RLIMIT_NOFILE"
	asked := n > 0
	if !asked {
		n = limits.DefaultFiles
	}
	h.files = uint64(n)
	value := strconv.FormatInt(n, 10)
	switch most := hardLimit(unix.RLIMIT_NOFILE, 1<<20); {
	case n < limits.MinFiles:
		h.Refuse(sdk.LimitFiles, value, "no program can be loaded with so few descriptors", fmt.Sprintf("ask for at least %d", limits.MinFiles))
	case h.files > most && asked:
		h.Refuse(sdk.LimitFiles, value, fmt.Sprintf("the limit of this process is %d, and Podman cannot raise it", most), "raise the hard limit of open files, or ask for less")
	default:
		h.files = min(h.files, most)
		h.Holds = append(h.Holds, sdk.Hold{Limit: sdk.LimitFiles, Value: strconv.FormatUint(h.files, 10), Default: !asked, HeldBy: by})
	}
}

// hardLimit returns the hard limit of this process, at the most atMost. Where it cannot be raised, a container that asks
// for more does not start.
func hardLimit(resource int, atMost uint64) uint64 { return min(limits.HardLimit(resource), atMost) }

// byCgroup holds a limit by the container's cgroup, or refuses it.
func (h *held) byCgroup(l sdk.Limit, value string, how limits.How, flags func()) {
	if how.By == "" || how.Scope != limits.WholeGroup {
		reason := how.Reason
		if reason == "" {
			reason = "this machine has no cgroup that Podman could use for it"
		}
		h.Refuse(l, value, reason, how.Fix)
		return
	}
	h.cgroup = true
	flags()
	h.Hold(l, value, how.By)
}

func (h *held) flag(format string, args ...any) {
	h.flags = append(h.flags, fmt.Sprintf(format, args...))
}
