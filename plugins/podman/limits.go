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

// What a sandbox gets when nobody asks.
const (
	defaultPIDs  = 2048
	defaultFiles = 1024
)

// maxProcesses is the rlimit of processes where a cgroup holds the limit: podman lowers its own, and where that cannot be
// raised again a container that asks for more does not start.
const maxProcesses = 16384

// minFiles is the least of open files with which a program can be loaded.
const minFiles = 8

// held says how the limits of one sandbox are held.
type held struct {
	sdk.Holds
	flags []string // of podman run
	// checks are the kernel's values that must stand in the container's cgroup once it runs; a limit that is not there
	// after all ends the creation.
	cgroup bool
	cpus   []int // the processors that commands run on; nil means all
	memory int64
	pids   int64 // with the room for our own processes
	files  uint64
	nproc  uint64
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
	for l, file := range map[limits.Limit]string{limits.Memory: "memory.max", limits.CPUs: "cpu.max", limits.Pids: "pids.max"} {
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

// planLimits decides how each limit is held. One that cannot be held has an empty HeldBy.
func planLimits(l sdk.Limits, c *Config, m *machine) *held {
	h := &held{}
	if l.Timeout > 0 {
		h.Hold(sdk.LimitTimeout, l.Timeout.String(), "SIGTERM, grace, then SIGKILL to all that the command started")
	}
	if l.Memory > 0 {
		h.byCgroup(sdk.LimitMemory, sdk.Bytes(l.Memory).String(), m.limits[limits.Memory], func() {
			h.memory = l.Memory
			h.flag("--memory=%db", l.Memory)
			h.flag("--memory-swap=%db", l.Memory)
		})
	}
	if l.CPUs > 0 {
		h.byCgroup(sdk.LimitCPUs, strconv.FormatFloat(l.CPUs, 'g', -1, 64), m.limits[limits.CPUs], func() {
			h.flag("--cpus=%s", strconv.FormatFloat(l.CPUs, 'f', -1, 64))
		})
	}
	h.cpus = visible.Processors(l.CPUs)
	h.holdPIDs(l.PIDs, m)
	h.holdDisk(l.Disk, c, m)
	h.holdFiles(l.Files)
	visible.Mark(h.Holds)
	return h
}

func (h *held) holdPIDs(n int64, m *machine) {
	how := m.limits[limits.Pids]
	if how.By != "" && how.Scope == limits.WholeGroup {
		asked := n > 0
		if !asked {
			n = defaultPIDs
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
	h.nproc = hardLimit(unix.RLIMIT_NPROC, 4096)
	h.Holds = append(h.Holds, sdk.Hold{Limit: sdk.LimitPIDs, Value: strconv.FormatUint(h.nproc, 10), Default: true,
		HeldBy: "rlimit RLIMIT_NPROC, of all containers of this user together", Reason: how.Reason, Fix: how.Fix})
}

func (h *held) holdDisk(n int64, c *Config, m *machine) {
	if n <= 0 {
		return
	}
	value := sdk.Bytes(n).String()
	switch free := limits.MemoryAndSwap(); {
	case m.rootless:
		h.Refuse(sdk.LimitDisk, value, "it is held by a sized file system under the workspace, which only root can mount", "run hutch as root, or use the backend bwrap")
	case !c.Root:
		h.Refuse(sdk.LimitDisk, value, "the image's own files can be written to, and Podman's storage has no quota", "set read_only = true")
	case len(c.Tmpfs) > 0:
		h.Refuse(sdk.LimitDisk, value, "each path of tmpfs has a size of its own", "leave tmpfs away, /tmp is there anyway")
	case free > 0 && n > free:
		h.Refuse(sdk.LimitDisk, value, fmt.Sprintf("it is held by a file system in memory, and this machine has %s of memory and swap", sdk.Bytes(free>>20<<20)), "ask for less, or leave the limit away")
	default:
		h.Hold(sdk.LimitDisk, value, "tmpfs size: workspace, output, /tmp and /dev/shm are held in memory")
	}
}

func (h *held) holdFiles(n int64) {
	by := "rlimit RLIMIT_NOFILE"
	asked := n > 0
	if !asked {
		n = defaultFiles
	}
	h.files = uint64(n)
	value := strconv.FormatInt(n, 10)
	switch most := hardLimit(unix.RLIMIT_NOFILE, 1<<20); {
	case n < minFiles:
		h.Refuse(sdk.LimitFiles, value, "no program can be loaded with so few descriptors", fmt.Sprintf("ask for at least %d", minFiles))
	case h.files > most && asked:
		h.Refuse(sdk.LimitFiles, value, fmt.Sprintf("the limit of this process is %d, and Podman cannot raise it", most), "raise the hard limit of open files, or ask for less")
	default:
		h.files = min(h.files, most)
		h.Holds = append(h.Holds, sdk.Hold{Limit: sdk.LimitFiles, Value: strconv.FormatUint(h.files, 10), Default: !asked, HeldBy: by})
	}
}

// hardLimit returns the hard limit of this process, at the most atMost. Where it cannot be raised, a container that asks
// for more does not start.
func hardLimit(resource int, atMost uint64) uint64 {
	var r unix.Rlimit
	if err := unix.Getrlimit(resource, &r); err != nil {
		return atMost
	}
	return min(r.Max, atMost)
}

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
